// What a server answers, held against the database itself: every request, through shared memory and without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/format/wire_batch.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/sampling/sampler.h"
#include "quarry/storage/training_state.h"
#include "served_database.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::ServedDatabase;
using testing_util::TinyGraph;
using testing_util::WirePeer;

constexpr uint64_t kRequestSeed = 20265;
constexpr uint64_t kNodes = 600;

class RequestsTest : public testing::TestWithParam<uint64_t> {
 protected:
  static void SetUpTestSuite() {
    served_ = new ServedDatabase(TinyGraph{.nodes = kNodes, .both_directions = true});
    const EmbeddingSpec spec = {.row_count = 300, .dim = 100, .seed = kRequestSeed};
    EXPECT_OK(CreateEmbeddings(*served_->store, "nodes", spec));
    served_->Start();
  }
  static void TearDownTestSuite() {
    delete served_;
    served_ = nullptr;
  }
  void SetUp() override {
    ASSERT_OK(peer_.Hello(GetParam()));
    wire::OpenSession request = {.budget_bytes = 64 << 20, .budget_bytes_min = 64 << 20};
    request.client_id.fill(std::byte{1});
    request.wait_ms = 60'000;  // sessions of the tests before may still be ending
    const auto opened = peer_.OpenSession(request);
    ASSERT_OK(opened);
    EXPECT_EQ(opened->budget_bytes, uint64_t{64} << 20);
    EXPECT_EQ(opened->regions.size(), shared() ? 2U : 0U);
  }

  bool shared() const { return (GetParam() & wire::kSharedMemory) != 0; }
  const TinyGraph& graph() const { return served_->tiny.graph(); }
  Store& store() { return *served_->store; }

  std::vector<std::byte> Lookup(const std::string& table, std::vector<NodeId> ids, uint64_t snapshot = 0) {
    auto rows = peer_.CallFor<wire::Rows>(wire::Lookup{table, std::move(ids), snapshot});
    EXPECT_OK(rows);
    if (!rows.ok()) return {};
    auto bytes = peer_.Take(rows->payload);
    EXPECT_OK(bytes);
    return bytes.ok() ? std::move(bytes).value() : std::vector<std::byte>();
  }
  Result<uint64_t> Put(uint64_t number, std::vector<NodeId> ids, std::span<const std::byte> rows,
                       const std::string& table = "feature", WirePeer* peer = nullptr) {
    wire::PutRows put = {.table = table, .rows = ids.size()};
    if (!rows.empty()) put.row_bytes = static_cast<uint32_t>(rows.size() / ids.size());
    std::vector<uint64_t> wide(ids.begin(), ids.end());
    std::vector<std::byte> block(wide.size() * 8);
    std::memcpy(block.data(), wide.data(), block.size());
    block.insert(block.end(), rows.begin(), rows.end());
    put.block = std::move(block);
    QUARRY_TRY(const auto written, (peer == nullptr ? peer_ : *peer)
                                       .CallFor<wire::Written>(wire::Put{.number = number, .tables = {put}}));
    return written.timestamp;
  }
  std::vector<std::byte> RandomRow(uint64_t seed) {
    Rng rng(MixSeed(kRequestSeed, seed));
    std::vector<float> values(graph().dim);
    for (float& value : values) value = static_cast<float>(rng.Unit());
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }
  Status CodeOf(const wire::Request& request) { return peer_.Call(request).status(); }

  static ServedDatabase* served_;
  WirePeer peer_{served_->socket()};
};
ServedDatabase* RequestsTest::served_ = nullptr;

TEST_P(RequestsTest, DescribesWhatTheDatabaseHas) {
  const auto description = peer_.CallFor<wire::Description>(wire::Describe{});
  ASSERT_OK(description);
  EXPECT_EQ(description->node_count, kNodes);
  EXPECT_EQ(description->database_id, store().manifest()->database_id);
  ASSERT_EQ(description->tables.size(), 3U);
  for (const wire::TableInfo& table : description->tables) {
    const std::shared_ptr<const Manifest> manifest = store().manifest();
    const TableRecord* const record = manifest->FindTable(table.name);
    ASSERT_NE(record, nullptr) << table.name;
    EXPECT_EQ(table.row_count, record->row_count);
    EXPECT_EQ(table.dim, record->dim);
  }
  ASSERT_EQ(description->topologies.size(), 1U);
  EXPECT_TRUE(description->topologies[0].has_csr);
  ASSERT_EQ(description->embeddings.size(), 1U);
  EXPECT_EQ(description->embeddings[0].state_dim, 100U);
  EXPECT_EQ(description->limits.outstanding_max, 64U);
  EXPECT_GT(description->limits.budget_bytes, 0U);
}

TEST_P(RequestsTest, LooksUpRowsInTheOrderOfTheIdsRepeatedOnesToo) {
  Rng rng(kRequestSeed);
  for (const size_t count : {1, 16, 40, 256, 3000}) {
    SCOPED_TRACE(count);
    std::vector<NodeId> ids(count);
    for (NodeId& id : ids) id = static_cast<NodeId>(rng.Below(kNodes));
    const std::vector<std::byte> rows = Lookup("feature", ids);
    std::vector<std::byte> expected;
    for (const NodeId id : ids) {
      const std::vector<std::byte> row = graph().Row(id);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    EXPECT_TRUE(rows == expected);
  }
  EXPECT_TRUE(Lookup("feature", {}).empty());
}

TEST_P(RequestsTest, LooksUpLabelsAndSplitsAsTables) {
  std::vector<NodeId> ids(kNodes);
  std::iota(ids.begin(), ids.end(), NodeId{0});
  const std::vector<std::byte> labels = Lookup("label", ids);
  ASSERT_EQ(labels.size(), kNodes * sizeof(int64_t));
  for (NodeId v = 0; v < kNodes; ++v) {
    int64_t label = 0;
    std::memcpy(&label, &labels[v * sizeof(label)], sizeof(label));
    ASSERT_EQ(label, graph().Label(v)) << v;
  }
  const std::vector<std::byte> splits = Lookup("split", ids);
  ASSERT_EQ(splits.size(), kNodes);
  for (const NodeId v : graph().SplitNodes(Split::kValid)) {
    ASSERT_EQ(std::to_integer<int>(splits[v]), static_cast<int>(Split::kValid)) << v;
  }
}

TEST_P(RequestsTest, TakesIdsFromTheRegionThatTheClientWrites) {
  if (!shared()) GTEST_SKIP() << "there is no region";
  const std::vector<NodeId> ids = {5, 3, 599, 3};
  std::memcpy(peer_.region(1).data() + 64, ids.data(), 16);
  const auto rows = peer_.CallFor<wire::Rows>(
      wire::Lookup{.table = "feature", .ids = wire::Range{.region = 1, .offset = 64, .bytes = 16}});
  ASSERT_OK(rows);
  const auto bytes = peer_.Take(rows->payload);
  ASSERT_OK(bytes);
  EXPECT_TRUE(*bytes == Lookup("feature", ids));
  const wire::Range beyond = {.region = 1, .offset = peer_.region(1).size() - 8, .bytes = 16};
  EXPECT_EQ(CodeOf(wire::Lookup{.table = "feature", .ids = beyond}).code(), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(wire::Lookup{.table = "feature", .ids = wire::Range{.region = 2, .bytes = 16}}).code(),
            Code::kInvalidArgument);
}

TEST_P(RequestsTest, SamplesTheBlockThatTheEngineSamples) {
  const auto topology = store().OpenTopology("graph");
  ASSERT_OK(topology);
  for (const Direction direction : {Direction::kIn, Direction::kOut, Direction::kBoth}) {
    for (const std::vector<uint32_t>& fanouts :
         {std::vector<uint32_t>{3}, std::vector<uint32_t>{4, 1024, 2}}) {
      const wire::Sample request = {
          .seeds = {7, 1, 300, 12}, .fanouts = fanouts, .direction = direction, .stream_seed = 99};
      const auto sampled = peer_.CallFor<wire::Sampled>(request);
      ASSERT_OK(sampled);
      const auto bytes = peer_.Take(sampled->payload);
      ASSERT_OK(bytes);
      IoBuffer aligned = std::move(IoBuffer::Allocate(bytes->size())).value();
      std::ranges::copy(*bytes, aligned.data());
      const auto view = wire::OpenBatch(aligned.span());
      ASSERT_OK(view);
      EXPECT_OK(wire::CheckBatch(*view));
      const NeighborSource source = {
          .topology = topology->get(), .direction = direction, .backend = served_->backend.get()};
      const auto sampler = NeighborSampler::Make(source, {.fanouts = fanouts});
      ASSERT_OK(sampler);
      Block block;
      ASSERT_OK((*sampler)->Sample(request.seeds, 99, block));
      EXPECT_TRUE(std::ranges::equal(view->nodes, block.nodes));
      EXPECT_TRUE(std::ranges::equal(view->indptr, block.indptr));
      EXPECT_TRUE(std::ranges::equal(view->indices, block.indices));
      EXPECT_TRUE(std::ranges::equal(view->hop_offsets, block.hop_offsets));
    }
  }
  EXPECT_EQ(CodeOf(wire::Sample{.topology = "other", .seeds = {1}, .fanouts = {1}}).code(), Code::kNotFound);
  EXPECT_EQ(CodeOf(wire::Sample{.seeds = {1, 1}, .fanouts = {1}}).code(), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(wire::Sample{.seeds = {kNodes}, .fanouts = {1}}).code(), Code::kInvalidArgument);
}

TEST_P(RequestsTest, PutsAreSeenAtOnceAndNotBySnapshotsBeforeThem) {
  const uint64_t base = GetParam() * 1000;  // numbers of this client's writes
  const std::vector<NodeId> ids = {static_cast<NodeId>(GetParam() * 10),
                                   static_cast<NodeId>(GetParam() * 10 + 1)};
  const std::vector<std::byte> before = Lookup("feature", ids);
  const auto snapshot = peer_.CallFor<wire::SnapshotTaken>(wire::TakeSnapshot{});
  ASSERT_OK(snapshot);
  std::vector<std::byte> rows = RandomRow(base);
  const std::vector<std::byte> second = RandomRow(base + 1);
  rows.insert(rows.end(), second.begin(), second.end());
  const auto timestamp = Put(base + 1, ids, rows);
  ASSERT_OK(timestamp);
  EXPECT_GT(*timestamp, snapshot->timestamp);
  EXPECT_TRUE(Lookup("feature", ids) == rows);
  EXPECT_TRUE(Lookup("feature", ids, snapshot->snapshot) == before);
  ASSERT_OK(Put(base + 2, {ids[0]}, {}));  // deleted: zeros
  EXPECT_TRUE(Lookup("feature", {ids[0]}) == std::vector<std::byte>(graph().dim * 4));
  ASSERT_OK(peer_.CallFor<wire::Done>(wire::ReleaseSnapshot{snapshot->snapshot}));
  EXPECT_EQ(CodeOf(wire::ReleaseSnapshot{snapshot->snapshot}).code(), Code::kUsage);
  EXPECT_EQ(CodeOf(wire::Lookup{"feature", ids, snapshot->snapshot}).code(), Code::kUsage);
}

TEST_P(RequestsTest, AWriteThatIsSentAgainIsDoneOnce) {
  const uint64_t number = GetParam() * 1000 + 100;
  const std::vector<std::byte> row = RandomRow(number);
  const auto first = Put(number, {50}, row);
  ASSERT_OK(first);
  const auto other = Put(number + 1, {50}, RandomRow(number + 1));
  ASSERT_OK(other);
  WirePeer again(served_->socket());
  ASSERT_OK(again.Open(8 << 20, GetParam()));
  const auto repeated = Put(number, {50}, row, "feature", &again);
  ASSERT_OK(repeated);
  EXPECT_EQ(*repeated, *first);
  EXPECT_TRUE(Lookup("feature", {50}) == RandomRow(number + 1)) << "the first write was done again";
}

TEST_P(RequestsTest, PutsThatDoNotFitChangeNothing) {
  const uint64_t number = GetParam() * 1000 + 200;
  const std::vector<std::byte> before = Lookup("feature", {1, 2});
  std::vector<std::byte> nan = RandomRow(1);
  std::memset(nan.data(), 0xff, 4);
  EXPECT_THAT(Put(number, {1}, nan).status().ToString(), HasSubstr("row 1: element 0 is"));
  EXPECT_EQ(Put(number + 1, {kNodes}, RandomRow(2)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Put(number + 2, {1}, std::vector<std::byte>(8)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Put(number + 3, {1}, RandomRow(2), "absent").status().code(), Code::kNotFound);
  EXPECT_EQ(Put(number + 4, {1}, std::vector<std::byte>(8, std::byte{0xfe}), "label").status().code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(Lookup("feature", {1, 2}) == before);
}

// Totals of the server, by name.
std::map<std::string, double> ServerCounters(WirePeer& peer) {
  std::map<std::string, double> counters;
  const auto stats = peer.CallFor<wire::Counters>(wire::Stats{});
  EXPECT_OK(stats);
  for (const wire::Counter& counter : stats->counters) counters[counter.name] = counter.value;
  return counters;
}

TEST_P(RequestsTest, EmbeddingsAreReadAndCommittedOnce) {
  const std::vector<uint64_t> ids = {GetParam() * 3, GetParam() * 3 + 1};
  const auto read = [&] {
    auto rows = peer_.CallFor<wire::EmbeddingRows>(wire::ReadEmbeddings{"nodes", ids});
    EXPECT_OK(rows);
    EXPECT_EQ(rows->dim, 100U);
    return std::move(peer_.Take(rows->payload)).value();
  };
  const wire::RowBlockShape shape = {2, 100, 100};
  std::vector<std::byte> block = read();
  const auto arrays = wire::OpenRowBlock(std::span(block), shape);
  ASSERT_OK(arrays);
  EXPECT_TRUE(std::ranges::equal(arrays->ids, ids));
  EXPECT_EQ(arrays->timestamps[0], -1);
  std::vector<float> initial(100);
  InitRow({.row_count = 300, .dim = 100, .seed = kRequestSeed}, ids[0], initial);
  EXPECT_TRUE(std::ranges::equal(arrays->values.first(100), initial));

  std::ranges::fill(arrays->values, 0.5F);
  auto counters = ServerCounters(peer_);
  const wire::CommitEmbeddings commit = {GetParam() * 1000 + 300, {{"nodes", 2, 100, 100, block}}};
  const auto committed = peer_.CallFor<wire::EmbeddingsCommitted>(commit);
  ASSERT_OK(committed);
  EXPECT_GE(committed->timestamp, 0);
  const auto repeated = peer_.CallFor<wire::EmbeddingsCommitted>(commit);
  ASSERT_OK(repeated);
  EXPECT_EQ(repeated->timestamp, committed->timestamp);
  const wire::CommitEmbeddings stale = {commit.number + 1, commit.updates};
  const auto refused = peer_.CallFor<wire::EmbeddingsCommitted>(stale);
  ASSERT_OK(refused);
  EXPECT_EQ(refused->timestamp, -1);
  EXPECT_EQ(refused->stale_rows, 2U);
  auto counted = ServerCounters(peer_);
  for (const char* result : {"accepted", "stale"}) {  // the repeated one was answered from memory
    const std::string name = fmt::format("quarry_embedding_commits_total_{}", result);
    EXPECT_EQ(counted.at(name) - counters.at(name), 1) << name;
  }
  std::vector<std::byte> after = read();
  const auto now = wire::OpenRowBlock(std::span(after), shape);
  EXPECT_EQ(now->timestamps[0], committed->timestamp);
  EXPECT_EQ(now->values[0], 0.5F);
  EXPECT_EQ(CodeOf(wire::ReadEmbeddings{"absent", ids}).code(), Code::kNotFound);
  EXPECT_EQ(CodeOf(wire::ReadEmbeddings{"nodes", std::vector<uint64_t>{2, 1}}).code(),
            Code::kInvalidArgument);
}

TEST_P(RequestsTest, AStreamGivesTheBatchesOfTheRoad) {
  for (const bool replace : {false, true}) {
    SCOPED_TRACE(replace);
    const wire::LiveSpec spec = {
        .fanouts = {4, 3}, .batch_size = 100, .seed = 11, .replace = replace, .edge_ids = replace};
    const auto opened = peer_.OpenStream({.road = spec});
    ASSERT_OK(opened);
    EXPECT_EQ(opened->feature_dim, graph().dim);
    const auto started =
        peer_.CallFor<wire::PassStarted>(wire::StartPass{.stream = opened->stream, .ordered = true});
    ASSERT_OK(started);

    MemoryBudget budget(64 << 20);
    const auto road = LiveRoad::Open(store(), budget, {.spec = spec});
    ASSERT_OK(road);
    const auto stream = (*road)->StartPass({.seeds = (*road)->TrainNodes(), .ordered = true});
    ASSERT_OK(stream);
    EXPECT_EQ(started->batches, (*stream)->batch_count());
    uint64_t batches = 0;
    while (true) {
      const auto response = peer_.Call(wire::NextBatch{opened->stream});
      ASSERT_OK(response);
      auto expected = (*stream)->Next();
      ASSERT_OK(expected);
      if (std::holds_alternative<wire::PassEnded>(*response)) {
        EXPECT_EQ(*expected, nullptr);
        break;
      }
      ASSERT_NE(*expected, nullptr);
      const auto bytes = peer_.Take(std::get<wire::Batch>(*response).payload);
      ASSERT_OK(bytes);
      IoBuffer aligned = std::move(IoBuffer::Allocate(bytes->size())).value();
      std::ranges::copy(*bytes, aligned.data());
      const auto view = wire::OpenBatch(aligned.span());
      ASSERT_OK(view);
      EXPECT_EQ(view->index, (*expected)->index());
      EXPECT_TRUE(std::ranges::equal(view->nodes, (*expected)->view().nodes));
      EXPECT_TRUE(std::ranges::equal(view->labels, (*expected)->view().labels));
      EXPECT_EQ(view->edge_ids.size(), spec.edge_ids ? view->indices.size() : 0);
      EXPECT_TRUE(std::ranges::equal(view->edge_ids, (*expected)->view().edge_ids));
      const FeatureView& features = (*expected)->view().features;
      for (size_t i = 0; i < view->nodes.size(); ++i) {
        ASSERT_EQ(std::memcmp(view->features.Row(i), features.Row(i), graph().dim * 4), 0) << "node " << i;
      }
      ++batches;
    }
    EXPECT_EQ(batches, started->batches);
    const auto stats = peer_.CallFor<wire::Counters>(wire::Stats{opened->stream});
    ASSERT_OK(stats);
    EXPECT_EQ(stats->counters[0], (wire::Counter{"batches", static_cast<double>(batches)}));
    const auto status = peer_.CallFor<wire::ServerStatus>(wire::GetStatus{});
    ASSERT_OK(status);
    const auto mine = std::ranges::find(status->streams, opened->stream, &wire::StreamStatus::id);
    ASSERT_NE(mine, status->streams.end());
    EXPECT_EQ(mine->batches, batches);
    const auto session = std::ranges::find(status->sessions, mine->session, &wire::SessionStatus::id);
    ASSERT_NE(session, status->sessions.end());
    EXPECT_EQ(session->pid, static_cast<uint32_t>(getpid()));
    ASSERT_OK(peer_.CallFor<wire::Done>(wire::CloseStream{opened->stream}));
    EXPECT_EQ(CodeOf(wire::NextBatch{opened->stream}).code(), Code::kUsage);
  }
}

TEST_P(RequestsTest, WhatStreamsAndLookupsDidIsCountedWhenTheyAreGone) {
  auto before = ServerCounters(peer_);
  const auto opened = peer_.OpenStream({.road = wire::LiveSpec{.fanouts = {3, 2}, .batch_size = 100}});
  ASSERT_OK(opened);
  ASSERT_OK(peer_.CallFor<wire::PassStarted>(wire::StartPass{.stream = opened->stream}));
  uint64_t batches = 0, bytes = 0;
  while (true) {
    const auto next = peer_.Call(wire::NextBatch{opened->stream});
    ASSERT_OK(next);
    const auto* const batch = std::get_if<wire::Batch>(&*next);
    if (batch == nullptr) break;
    const auto taken = peer_.Take(batch->payload);
    ASSERT_OK(taken);
    ++batches;
    bytes += taken->size();
  }
  const auto pass = peer_.CallFor<wire::Counters>(wire::Stats{opened->stream});
  ASSERT_OK(pass);
  std::map<std::string, double> of_pass;
  for (const wire::Counter& counter : pass->counters) of_pass[counter.name] = counter.value;
  ASSERT_OK(peer_.CallFor<wire::Done>(wire::CloseStream{opened->stream}));
  ASSERT_OK(peer_.CallFor<wire::Rows>(wire::Lookup{"feature", std::vector<NodeId>{1, 2, 1}}));
  auto after = ServerCounters(peer_);
  const auto grown = [&](const std::string& name) { return after.at(name) - before.at(name); };
  EXPECT_GT(batches, 0u);
  EXPECT_EQ(grown("quarry_road_batches_total_live"), static_cast<double>(batches));
  EXPECT_EQ(grown("quarry_road_bytes_total_live"), static_cast<double>(bytes));
  EXPECT_EQ(grown("quarry_road_read_bytes_total_live"),
            of_pass.at("feature_bytes_read") + of_pass.at("topology_bytes_read"));
  EXPECT_EQ(grown("quarry_road_useful_bytes_total_live"), of_pass.at("bytes_useful"));
  EXPECT_EQ(grown("quarry_road_cache_lookups_total_live"), of_pass.at("cache_lookups"));
  EXPECT_EQ(grown("quarry_road_cache_hits_total_live"), of_pass.at("cache_hits"));
  EXPECT_GT(grown("quarry_road_read_bytes_total_live"), 0);
  EXPECT_EQ(grown("quarry_road_batches_total_planned"), 0);
  EXPECT_EQ(grown("quarry_lookup_rows_total"), 3);
}

TEST_P(RequestsTest, PiecesOfAStateFollowEachOther) {
  const std::vector<std::byte> piece(1000, std::byte{7});
  const auto save = [&](uint64_t offset, uint64_t state_bytes = 3000, const std::string& name = "run") {
    return peer_.Call(
        wire::SaveTraining{.name = name, .state_bytes = state_bytes, .offset = offset, .piece = piece});
  };
  EXPECT_EQ(save(1000).status().code(), Code::kUsage) << "there is no first one";
  EXPECT_TRUE(std::holds_alternative<wire::Done>(save(0).value()));
  EXPECT_EQ(save(2000).status().code(), Code::kUsage) << "one is missing";
  EXPECT_EQ(save(1000).status().code(), Code::kUsage) << "what came before is forgotten then";
  EXPECT_OK(save(0));
  EXPECT_EQ(save(1000, 4000).status().code(), Code::kUsage) << "of another size";
  EXPECT_OK(save(0));
  EXPECT_EQ(save(1000, 3000, "other").status().code(), Code::kUsage) << "of another run";
  EXPECT_EQ(store().manifest()->FindTraining("run"), nullptr) << "half a state is none";
  EXPECT_OK(save(0));
  EXPECT_OK(save(1000));
  EXPECT_TRUE(std::holds_alternative<wire::Training>(save(2000).value()));
  ASSERT_NE(store().manifest()->FindTraining("run"), nullptr);
  const auto read = peer_.CallFor<wire::Training>(wire::ReadTraining{.name = "run"});
  ASSERT_OK(read);
  const auto state = peer_.Take(read->state);
  ASSERT_OK(state);
  EXPECT_EQ(*state, std::vector<std::byte>(3000, std::byte{7}));
  ASSERT_OK(DropTraining(store(), "run"));
}

// The session has 64 MiB: what does not fit is refused with its first piece, before memory is taken for it.
TEST_P(RequestsTest, AStateThatTheSessionCannotHoldIsRefusedWithItsFirstPiece) {
  const uint64_t before = PeakRssBytes();
  const auto save = [&](uint64_t state_bytes) {
    const std::vector<std::byte> piece(1000);
    return CodeOf(wire::SaveTraining{.name = "large", .state_bytes = state_bytes, .piece = piece});
  };
  const Status refused = save(uint64_t{1} << 30);
  EXPECT_EQ(refused.code(), Code::kOutOfBudget);
  EXPECT_THAT(refused.ToString(), HasSubstr("a training state"));
  EXPECT_LT(PeakRssBytes(), before + (16 << 20));
  EXPECT_OK(save(32 << 20)) << "one that fits";
  EXPECT_OK(save(32 << 20)) << "which begins anew, and pays for one";
}

TEST_P(RequestsTest, ClientsMakeAThousandTrainingRunsAndNoMore) {
  const std::vector<std::byte> piece(1000, std::byte{7});
  const auto save = [&](const std::string& name, uint64_t state_bytes) {
    return CodeOf(wire::SaveTraining{.name = name, .state_bytes = state_bytes, .piece = piece});
  };
  ASSERT_OK(save("run", 1000));
  const auto fill = [](size_t count) {
    return [count](Manifest& manifest) {
      const TrainingRecord run = manifest.trainings.front();
      manifest.trainings.resize(1);
      while (manifest.trainings.size() < count) {
        manifest.trainings.push_back(run);
        manifest.trainings.back().name = fmt::format("run-{}", manifest.trainings.size());
      }
      return Status::Ok();
    };
  };
  ASSERT_OK(store().UpdateManifest(fill(999)));
  EXPECT_OK(save("last", 1000));
  for (const uint64_t state_bytes : {1000, 3000}) {  // whole, and the first piece
    const Status refused = save("another", state_bytes);
    EXPECT_EQ(refused.code(), Code::kOutOfBudget);
    EXPECT_THAT(refused.ToString(), HasSubstr("1000 training runs"));
  }
  EXPECT_OK(save("last", 1000)) << "in the place of the one before";
  ASSERT_OK(store().UpdateManifest(fill(1)));
  EXPECT_OK(save("another", 1000));
  for (const char* name : {"run", "another"}) EXPECT_OK(DropTraining(store(), name));
}

TEST_P(RequestsTest, ABatchThatIsCancelledWhileItIsWaitedForIsNoLonger) {
  const auto opened = peer_.OpenStream({.road = wire::LiveSpec{.fanouts = {2}, .batch_size = 10}});
  ASSERT_OK(opened);
  ASSERT_OK(peer_.CallFor<wire::PassStarted>(wire::StartPass{.stream = opened->stream}));
  std::vector<uint64_t> requests;  // one more than there are slots, of which none is released
  for (uint32_t i = 0; i <= opened->slots; ++i)
    requests.push_back(peer_.Send(wire::NextBatch{opened->stream}));
  for (uint32_t i = 0; i < opened->slots && shared(); ++i) EXPECT_OK(peer_.Await(requests[i]));
  const uint64_t last = requests.back();
  EXPECT_OK(peer_.CallFor<wire::Done>(wire::Cancel{last}));
  const auto answer = peer_.Await(last);
  EXPECT_TRUE(!shared() || answer.status().code() == Code::kCancelled) << "inline ones take no slot for long";
  EXPECT_OK(peer_.CallFor<wire::Done>(wire::CloseStream{opened->stream}));
}

TEST_P(RequestsTest, WhatDoesNotExistIsSaidByName) {
  EXPECT_THAT(CodeOf(wire::Lookup{"absent", std::vector<NodeId>{1}}).ToString(),
              HasSubstr("tables: label, split, feature"));
  EXPECT_THAT(CodeOf(wire::Lookup{"feature", std::vector<NodeId>{1, kNodes}}).ToString(),
              HasSubstr("number 1 is 600"));
  EXPECT_EQ(CodeOf(wire::ReadLease{.lease = 77, .bytes = 1}).code(), Code::kUsage);
  EXPECT_OK(peer_.CallFor<wire::Done>(wire::ReleaseLeases{{77, 78}})) << "a retry is harmless";
  EXPECT_EQ(CodeOf(wire::NextBatch{12345}).code(), Code::kUsage);
  EXPECT_EQ(CodeOf(wire::OpenStream{.road = wire::LiveSpec{.feature_table = "absent"}}).code(),
            Code::kNotFound);
}

TEST_P(RequestsTest, AnswersWaitForRoomAndAreRefusedWhereThereCanBeNone) {
  WirePeer small(served_->socket());
  // An answer of up to 1 MiB. Sessions of other tests leave a little after their ends.
  ASSERT_OK(small.Open(8 << 20, GetParam(), /*client=*/1, /*wait_ms=*/30'000));
  const std::vector<NodeId> ids(1800, 7);  // 0.9 MiB
  const uint64_t first = small.Send(wire::Lookup{"feature", ids});
  const auto rows = small.Await(first);
  ASSERT_OK(rows);
  if (shared()) {
    const uint64_t second = small.Send(wire::Lookup{"feature", ids});
    EXPECT_OK(small.CallFor<wire::Done>(wire::Ping{})) << "which is answered meanwhile";
    const auto* const lease = std::get_if<wire::Lease>(&std::get<wire::Rows>(*rows).payload);
    ASSERT_NE(lease, nullptr);
    EXPECT_OK(small.CallFor<wire::Done>(wire::ReleaseLeases{{lease->id}}));
    EXPECT_OK(small.Await(second));
    const uint64_t third = small.Send(wire::Lookup{"feature", ids});
    EXPECT_OK(small.CallFor<wire::Done>(wire::Cancel{third}));
    EXPECT_EQ(small.Await(third).status().code(), Code::kCancelled);
  }
  const std::vector<NodeId> many(100'000, 7);
  EXPECT_EQ(small.Call(wire::Lookup{"feature", many}).status().code(), Code::kOutOfBudget);
}

INSTANTIATE_TEST_SUITE_P(Clients, RequestsTest,
                         testing::Values(wire::kSharedMemory | wire::kInline, wire::kInline),
                         [](const auto& client) {
                           return client.param == wire::kInline ? "Inline" : "Shared";
                         });

}  // namespace
}  // namespace quarry
