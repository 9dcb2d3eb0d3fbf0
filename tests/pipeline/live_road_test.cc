#include "quarry/pipeline/live_road.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <map>
#include <regex>
#include <stop_token>
#include <thread>

#include "buffer_fill.h"
#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::DrawsOf;
using testing_util::OpenRoad;
using testing_util::OtherDraws;
using testing_util::PassOutcome;
using testing_util::RunPass;
using testing_util::SmallOptions;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;
using testing_util::TryPass;
using Placement = LiveRoadOptions::TopologyPlacement;

void ExpectBatchIsTrue(const Batch& batch, const TinyGraph& graph,
                       const std::set<std::pair<NodeId, NodeId>>& edges) {
  const BatchView& block = batch.view();
  ASSERT_EQ(block.labels.size(), block.seed_count);
  for (uint32_t i = 0; i < block.seed_count; ++i) {
    EXPECT_EQ(block.labels[i], graph.labels ? graph.Label(block.nodes[i]) : -1);
  }
  for (size_t v = 0; v + 1 < block.indptr.size(); ++v) {
    for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; ++e) {
      ASSERT_TRUE(edges.contains({block.nodes[block.indices[e]], block.nodes[v]}))
          << block.nodes[block.indices[e]] << " -> " << block.nodes[v] << " is no edge";
    }
  }
  const FeatureView& features = block.features;
  ASSERT_EQ(features.slots.size(), block.nodes.size());
  EXPECT_EQ(features.element_type, graph.type);
  EXPECT_EQ(features.dim, graph.dim);
  for (size_t i = 0; i < block.nodes.size(); ++i) {
    const std::vector<std::byte> row = graph.Row(block.nodes[i]);
    ASSERT_EQ(std::memcmp(features.Row(i), row.data(), row.size()), 0) << "row of node " << block.nodes[i];
  }
}

// Importing takes a third of a second: most tests read one database of 2,000 nodes.
class LiveRoadTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { database_ = std::make_unique<TinyDatabase>(TinyGraph{.nodes = 2000}); }
  static void TearDownTestSuite() { database_.reset(); }
  static const TinyDatabase& database() { return *database_; }
  static std::vector<NodeId> TrainNodes() { return database_->graph().SplitNodes(Split::kTrain); }

 private:
  static std::unique_ptr<TinyDatabase> database_;
};
std::unique_ptr<TinyDatabase> LiveRoadTest::database_;

TEST_F(LiveRoadTest, DeliversTheRowsLabelsAndEdgesOfTheDatabaseForEveryRowLayout) {
  const std::vector<TinyGraph> graphs = {
      {.dim = 128},                                 // one block a row
      {.nodes = 3000, .dim = 3},                    // many rows a page
      {.dim = 700, .type = ElementType::kFloat16},  // rows that begin within blocks
      {.nodes = 300, .dim = 2000},                  // rows of two pages
      {.dim = 150, .type = ElementType::kInt8, .labels = false},
      {.dim = 33, .type = ElementType::kBfloat16, .splits = false},
  };
  for (const TinyGraph& graph : graphs) {
    SCOPED_TRACE(testing::Message() << graph.nodes << " x " << graph.dim << " "
                                    << ElementTypeName(graph.type));
    const TinyDatabase database(graph);
    std::set<std::pair<NodeId, NodeId>> edges;
    for (const Edge& e : graph.Edges()) edges.emplace(e.source, e.destination);
    LiveRoadOptions options = SmallOptions();
    options.spec.cache_bytes = graph.nodes / 5 * RowBytes(graph.type, graph.dim);
    OpenRoad open(database.path(), options);
    ASSERT_OK(open.status);
    EXPECT_EQ(open.road->feature_dim(), graph.dim);
    EXPECT_EQ(open.road->labels().empty(), !graph.labels);
    EXPECT_EQ(open.road->SplitNodes(Split::kValid).empty(), !graph.splits);

    const std::vector<NodeId> seeds = graph.SplitNodes(Split::kTrain);
    for (uint64_t pass = 0; pass < 2; ++pass) {
      std::multiset<NodeId> seen;
      ASSERT_OK_AND_ASSIGN(auto stream, open.road->StartPass({.seeds = seeds, .pass = pass}));
      for (;;) {
        ASSERT_OK_AND_ASSIGN(auto batch, stream->Next());
        if (!batch) break;
        ExpectBatchIsTrue(*batch, graph, edges);
        if (HasFatalFailure()) return;
        seen.insert(batch->view().seeds().begin(), batch->view().seeds().end());
      }
      EXPECT_TRUE(std::equal(seen.begin(), seen.end(), seeds.begin(), seeds.end())) << "each seed once";
      ASSERT_OK(stream->Next()) << "the end stays the end";
    }
  }
}

TEST_F(LiveRoadTest, OrderedPassesAreTheSameForAnyThreadsMemoryAndCache) {
  const std::vector<NodeId> seeds = TrainNodes();
  std::vector<std::pair<uint64_t, uint64_t>> expected[2];
  for (const auto& [threads, placement, cache] :
       std::vector<std::tuple<unsigned, Placement, uint64_t>>{{1, Placement::kAuto, 0},
                                                              {4, Placement::kAuto, 100 * 512},
                                                              {4, Placement::kDisk, 2000 * 512},
                                                              {2, Placement::kDisk, 0}}) {
    SCOPED_TRACE(testing::Message() << threads << " threads, cache " << cache);
    LiveRoadOptions options = SmallOptions();
    options.sampler_threads = options.extractor_threads = threads;
    options.topology_placement = placement;
    options.spec.cache_bytes = cache;
    OpenRoad open(database().path(), options);
    ASSERT_OK(open.status);
    EXPECT_EQ(open.road->plan().topology_in_memory, placement == Placement::kAuto);
    for (uint64_t pass = 0; pass < 2; ++pass) {
      const auto hashes = RunPass(*open.road, {.seeds = seeds, .pass = pass, .ordered = true});
      for (size_t i = 0; i < hashes.size(); ++i) ASSERT_EQ(hashes[i].first, i);
      if (expected[pass].empty()) expected[pass] = hashes;
      EXPECT_EQ(hashes, expected[pass]);
    }
    // Out of order: the same batches.
    auto hashes = RunPass(*open.road, {.seeds = seeds, .pass = 0, .ordered = false});
    std::sort(hashes.begin(), hashes.end());
    EXPECT_EQ(hashes, expected[0]);
  }
  EXPECT_NE(expected[0].front().second, expected[1].front().second) << "passes shuffle anew";
}

TEST_F(LiveRoadTest, HoweverNeighborsAreDrawnPassesAreTheSameForAnyThreadsAndMemory) {
  const TinyDatabase weighted({.nodes = 2000, .weighted = true});
  const std::vector<NodeId> seeds = TrainNodes();
  std::set<uint64_t> seen;
  for (const RoadSpec& draws : OtherDraws()) {
    SCOPED_TRACE(DrawsOf(draws));
    std::vector<std::pair<uint64_t, uint64_t>> expected;
    for (const auto& [threads, placement] :
         {std::pair(1U, Placement::kMemory), std::pair(4U, Placement::kMemory),
          std::pair(4U, Placement::kDisk)}) {
      LiveRoadOptions options = SmallOptions();
      options.spec = draws;
      options.sampler_threads = options.extractor_threads = threads;
      options.topology_placement = placement;
      OpenRoad open(weighted.path(), options);
      ASSERT_OK(open.status);
      const auto hashes = RunPass(*open.road, {.seeds = seeds, .pass = 3, .ordered = true});
      if (expected.empty()) expected = hashes;
      EXPECT_EQ(hashes, expected) << threads << " threads";
    }
    EXPECT_TRUE(seen.insert(expected.front().second).second) << "as other draws";
  }
}

TEST_F(LiveRoadTest, WeightsAreRefusedWhereThereAreNone) {
  LiveRoadOptions options = SmallOptions();
  options.spec.weighted = true;
  const OpenRoad none(database().path(), options);
  EXPECT_THAT(none.status,
              IsStatus(Code::kInvalidArgument, HasSubstr("the edges have no weights to draw by")));
  EXPECT_EQ(none.budget->used_bytes(), 0u);
}

TEST_F(LiveRoadTest, WithoutShufflingSeedsAreUsedInTheirOrder) {
  OpenRoad open(database().path(), SmallOptions());
  ASSERT_OK(open.status);
  const std::vector<NodeId> seeds = {40, 3, 99, 0};
  ASSERT_OK_AND_ASSIGN(auto stream, open.road->StartPass({.seeds = seeds, .shuffle = false}));
  EXPECT_EQ(stream->batch_count(), 1u);
  auto batch = stream->Next();
  ASSERT_OK(batch);
  ASSERT_TRUE(*batch);
  EXPECT_THAT((*batch)->view().seeds(), testing::ElementsAreArray(seeds));
}

TEST_F(LiveRoadTest, APassWithoutSeedsEndsAtOnce) {
  OpenRoad open(database().path(), SmallOptions());
  ASSERT_OK(open.status);
  EXPECT_TRUE(RunPass(*open.road, {}).empty());
}

TEST_F(LiveRoadTest, ACacheOfTheWholeTableReadsEveryRowOnce) {
  LiveRoadOptions options = SmallOptions();
  options.spec.cache_bytes = 2000 * 512;
  OpenRoad open(database().path(), options);
  ASSERT_OK(open.status);
  std::vector<NodeId> all(2000);
  for (NodeId v = 0; v < 2000; ++v) all[v] = v;
  StreamStats first, second;
  RunPass(*open.road, {.seeds = all}, &first);
  EXPECT_EQ(first.bytes_useful, 2000 * 512u);
  EXPECT_GE(first.feature_bytes_read, first.bytes_useful);
  RunPass(*open.road, {.seeds = all, .pass = 1}, &second);
  EXPECT_EQ(second.feature_bytes_read, 0u);
  EXPECT_EQ(second.read_requests, 0u);
  EXPECT_EQ(second.cache_hits, second.cache_lookups);
}

TEST_F(LiveRoadTest, AProbeCountsTheNodesOfItsBatchesAndChangesNothing) {
  const OpenRoad open(database().path(), SmallOptions());
  ASSERT_OK(open.status);
  LiveRoad* const road = open.road.get();
  const PassOptions pass{.seeds = TrainNodes(), .pass = 1, .ordered = true};
  const auto before = RunPass(*road, pass);
  for (const uint32_t batches : {1, 5, 40, 255}) {
    SCOPED_TRACE(batches);
    ASSERT_OK_AND_ASSIGN(const RoadProbe probe, road->ProbeTraining(batches));
    EXPECT_EQ(probe.batches, batches);
    ASSERT_EQ(probe.nodes_by_uses.size(), batches + 1);
    uint64_t nodes = 0, uses = 0;
    for (uint64_t count = 0; count <= batches; ++count) {
      nodes += probe.nodes_by_uses[count];
      uses += count * probe.nodes_by_uses[count];
    }
    EXPECT_EQ(nodes, database().graph().nodes);
    EXPECT_EQ(uses, probe.input_nodes);
    EXPECT_LE(probe.last.nodes.size(), uses);
    EXPECT_GT(probe.edges, 0u);
    EXPECT_GT(probe.sample_seconds, 0);
    ASSERT_OK_AND_ASSIGN(const RoadProbe again, road->ProbeTraining(batches));
    EXPECT_EQ(again.nodes_by_uses, probe.nodes_by_uses);
    EXPECT_EQ(again.last.nodes, probe.last.nodes);
  }
  EXPECT_EQ(RunPass(*road, pass), before);
}

TEST_F(LiveRoadTest, StatsCountWhatWasDelivered) {
  LiveRoadOptions options = SmallOptions();
  options.spec.cache_bytes = 200 * 512;
  OpenRoad open(database().path(), options);
  ASSERT_OK(open.status);
  ASSERT_OK_AND_ASSIGN(auto stream, open.road->StartPass({.seeds = TrainNodes()}));
  uint64_t batches = 0, nodes = 0, edges = 0;
  for (;;) {
    ASSERT_OK_AND_ASSIGN(auto batch, stream->Next());
    if (!batch) break;
    ++batches;
    nodes += batch->view().nodes.size();
    edges += batch->view().indices.size();
  }
  const StreamStats stats = stream->stats();
  EXPECT_EQ(stats.batches, batches);
  EXPECT_EQ(stats.input_nodes, nodes);
  EXPECT_EQ(stats.cache_lookups, nodes);
  EXPECT_EQ(stats.sampled_edges, edges);
  EXPECT_GT(stats.cache_hits, 0u);
  EXPECT_EQ(stats.bytes_useful, (stats.cache_lookups - stats.cache_hits) * 512);
  EXPECT_GE(stats.feature_bytes_read, stats.bytes_useful);
  EXPECT_GT(stats.read_requests, 0u);
  EXPECT_EQ(stats.topology_bytes_read, 0u);
  EXPECT_GT(stats.sample_seconds, 0);
  EXPECT_GT(stats.extract_seconds, 0);
}

TEST_F(LiveRoadTest, DestroyingAStreamAtAnyPointLeavesTheRoadWhole) {
  LiveRoadOptions options = SmallOptions();
  options.sampler_threads = 2;
  options.extractor_threads = 2;
  options.spec.cache_bytes = 100 * 512;
  OpenRoad open(database().path(), options);
  ASSERT_OK(open.status);
  const std::vector<NodeId> seeds = TrainNodes();
  const auto expected = RunPass(*open.road, {.seeds = seeds, .ordered = true});
  Rng rng(3);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    {
      ASSERT_OK_AND_ASSIGN(auto stream, open.road->StartPass({.seeds = seeds, .ordered = round % 2 == 0}));
      for (uint64_t i = rng.Below(expected.size()); i > 0; --i) {
        auto batch = stream->Next();
        ASSERT_OK(batch);
        ASSERT_TRUE(*batch);
      }
      // Now and then every stage is blocked on the one after it.
      if (rng.Below(2) == 0) testing_util::WaitUntilAllSleep();
    }
    if (round % 10 == 9) {
      EXPECT_EQ(RunPass(*open.road, {.seeds = seeds, .ordered = true}), expected);
    }
  }
}

TEST_F(LiveRoadTest, HoldingABatchWhileAskingForTheNextIsRefused) {
  OpenRoad open(database().path(), SmallOptions());
  ASSERT_OK(open.status);
  ASSERT_OK_AND_ASSIGN(auto stream, open.road->StartPass({.seeds = TrainNodes()}));
  auto held = stream->Next();
  ASSERT_OK(held);
  ASSERT_TRUE(*held);
  EXPECT_THAT(stream->Next(), IsStatus(Code::kInternal));
  held->reset();
  EXPECT_OK(stream->Next());
}

TEST_F(LiveRoadTest, OneStreamAtATime) {
  OpenRoad open(database().path(), SmallOptions());
  ASSERT_OK(open.status);
  ASSERT_OK_AND_ASSIGN(auto stream, open.road->StartPass({.seeds = {1, 2, 3}}));
  EXPECT_THAT(open.road->StartPass({.seeds = {1}}), IsStatus(Code::kInternal));
  stream.reset();
  EXPECT_OK(open.road->StartPass({.seeds = {1}}));
}

TEST_F(LiveRoadTest, ReservesWhatItPlansAndGivesItBack) {
  LiveRoadOptions options = SmallOptions();
  options.topology_placement = Placement::kDisk;
  options.spec.cache_bytes = 100 * 512;
  OpenRoad open(database().path(), options, 64 * kMiB);
  ASSERT_OK(open.status);
  EXPECT_EQ(open.road->plan().total_bytes(), open.budget->used_bytes());
  EXPECT_LE(open.budget->used_bytes(), open.budget->limit_bytes());
  EXPECT_EQ(open.road->plan().retained_max, 100u);
  open.road.reset();
  EXPECT_EQ(open.budget->used_bytes(), 0u);
}

TEST_F(LiveRoadTest, ABudgetTooSmallNamesTheLeastAndTheLeastWorks) {
  const TinyDatabase database({.nodes = 20000});
  LiveRoadOptions options = SmallOptions();
  options.spec.batch_size = 512;
  options.spec.cache_bytes = 4 * kMiB;
  uint64_t least = 0;
  {
    const OpenRoad refused(database.path(), options, 6 * kMiB);
    ASSERT_THAT(refused.status, IsStatus(Code::kOutOfBudget));
    const std::string message(refused.status.message());
    std::smatch match;
    ASSERT_TRUE(std::regex_search(message, match, std::regex("memory budget of ([0-9]+)MiB"))) << message;
    EXPECT_EQ(refused.budget->used_bytes(), 0u);
    least = std::stoull(match[1]) * kMiB;
  }
  const std::vector<NodeId> seeds = database.graph().SplitNodes(Split::kTest);
  std::vector<std::pair<uint64_t, uint64_t>> tight, roomy;
  {
    OpenRoad open(database.path(), options, least);
    ASSERT_OK(open.status);
    EXPECT_EQ(open.road->plan().batches_in_flight, 1u);
    tight = RunPass(*open.road, {.seeds = seeds, .ordered = true});
  }
  OpenRoad open(database.path(), options, kGiB);
  ASSERT_OK(open.status);
  roomy = RunPass(*open.road, {.seeds = seeds, .ordered = true});
  EXPECT_EQ(tight, roomy);
}

// What an open road says of others is what opening them finds; measuring says the same and holds nothing beyond its
// budget.
TEST_F(LiveRoadTest, TheNeedIsTheLeastThatOpensWhetherOpenOrMeasured) {
  const TinyDatabase database({.nodes = 20000});
  for (const uint64_t cache_bytes : {uint64_t{0}, uint64_t{1000 * 512}}) {
    for (const Placement placement : {Placement::kAuto, Placement::kDisk, Placement::kMemory}) {
      SCOPED_TRACE(fmt::format("cache {}, placement {}", cache_bytes, static_cast<int>(placement)));
      LiveRoadOptions options = SmallOptions();
      options.spec.batch_size = 512;
      options.topology_placement = placement;
      options.cache_takes_what_is_left = true;
      OpenRoad roomy(database.path(), options, kGiB);
      ASSERT_OK(roomy.status);
      const LiveRoadNeed need = roomy.road->NeedWith(cache_bytes);
      EXPECT_EQ(need.batch_nodes_max, roomy.road->plan().batch_nodes_max);
      roomy.road.reset();
      options.cache_takes_what_is_left = false;
      options.spec.cache_bytes = cache_bytes;
      MemoryBudget least(need.least_bytes), less(need.least_bytes - 1);
      ASSERT_OK_AND_ASSIGN(const LiveRoadNeed measured, LiveRoad::Measure(*roomy.store, least, options));
      EXPECT_EQ(measured.least_bytes, need.least_bytes);
      EXPECT_EQ(measured.batch_nodes_max, need.batch_nodes_max);
      EXPECT_EQ(least.used_bytes(), 0u);
      EXPECT_OK(LiveRoad::Open(*roomy.store, least, options));
      EXPECT_THAT(LiveRoad::Open(*roomy.store, less, options), IsStatus(Code::kOutOfBudget));
    }
  }
  MemoryBudget nothing(kKiB);
  EXPECT_THAT(LiveRoad::Measure(*OpenRoad(database.path(), SmallOptions()).store, nothing, SmallOptions()),
              IsStatus(Code::kOutOfBudget));
}

TEST_F(LiveRoadTest, TheNeedHasWeightsAndTheListsThatLaborReads) {
  const TinyDatabase database({.nodes = 20000, .weighted = true});
  const uint64_t weights_bytes = IoBuffer::MappedBytes(database.graph().Edges().size() * sizeof(float));
  MemoryBudget roomy(kGiB);
  LiveRoadOptions options = SmallOptions();
  options.spec.batch_size = 512;
  const OpenRoad plain(database.path(), options);
  ASSERT_OK_AND_ASSIGN(const LiveRoadNeed without, LiveRoad::Measure(*plain.store, roomy, options));
  for (const RoadSpec& draws : OtherDraws()) {
    SCOPED_TRACE(DrawsOf(draws));
    for (const Placement placement : {Placement::kAuto, Placement::kDisk, Placement::kMemory}) {
      options.spec = draws;
      options.spec.batch_size = 512;
      options.topology_placement = placement;
      ASSERT_OK_AND_ASSIGN(const LiveRoadNeed need, LiveRoad::Measure(*plain.store, roomy, options));
      // Others find fewer nodes, or read lists.
      if (draws.weighted && draws.sampler == SamplerKind::kNeighbor && !draws.replace) {
        EXPECT_GE(need.least_bytes, without.least_bytes + weights_bytes / 2);
      }
      MemoryBudget least(need.least_bytes), less(need.least_bytes - 1);
      EXPECT_OK(LiveRoad::Open(*plain.store, least, options));
      EXPECT_THAT(LiveRoad::Open(*plain.store, less, options), IsStatus(Code::kOutOfBudget));
    }
  }
}

// With a budget that is not the road's, a batch of any size was once sampled.
TEST_F(LiveRoadTest, MeasuringRefusesABatchThatTheBudgetCannotHold) {
  const TinyDatabase database({.nodes = 200'000, .degree = 20});
  LiveRoadOptions options = SmallOptions();
  options.spec.fanouts = {20, 20, 20};
  options.spec.batch_size = 4096;
  OpenRoad refused(database.path(), options, 12 * kMiB);
  ASSERT_THAT(refused.status, IsStatus(Code::kOutOfBudget, HasSubstr("one batch of 4096 seeds")));
  MemoryBudget small(12 * kMiB);
  EXPECT_THAT(LiveRoad::Measure(*refused.store, small, options),
              IsStatus(Code::kOutOfBudget, HasSubstr("one batch of 4096 seeds")));
}

TEST_F(LiveRoadTest, ManyExtractorsKeepTheOrderWhereOnlyOneBatchFits) {
  const TinyDatabase database({.nodes = 20000});
  const std::vector<NodeId> seeds = database.graph().SplitNodes(Split::kTrain);
  LiveRoadOptions options = SmallOptions();
  options.spec.batch_size = 512;
  options.sampler_threads = options.extractor_threads = 4;
  OpenRoad open(database.path(), options);
  ASSERT_OK(open.status);
  const auto expected = RunPass(*open.road, {.seeds = seeds, .ordered = true});
  // The least memory, found by asking for too little.
  open.road.reset();
  MemoryBudget nothing(kMiB);
  const auto refused = LiveRoad::Open(*open.store, nothing, options);
  const std::string message(refused.status().message());
  std::smatch match;
  ASSERT_TRUE(std::regex_search(message, match, std::regex("memory budget of ([0-9]+)MiB"))) << message;
  MemoryBudget least(std::stoull(match[1]) * kMiB);
  ASSERT_OK_AND_ASSIGN(auto road, LiveRoad::Open(*open.store, least, options));
  ASSERT_EQ(road->plan().batches_in_flight, 1u);
  for (int round = 0; round < 4; ++round) {  // a batch that overtook another would hold its slots for ever
    EXPECT_EQ(RunPass(*road, {.seeds = seeds, .ordered = true}), expected);
    EXPECT_EQ(RunPass(*road, {.seeds = seeds, .ordered = false}).size(), expected.size());
  }
}

TEST_F(LiveRoadTest, ABatchFarLargerThanThoseProbedIsRefusedWithWhatItNeeds) {
  // Every split lies among nodes without neighbors, so that probing sees batches of seeds alone.
  TinyGraph graph{.nodes = 20000, .degree = 20, .lonely_from = 2000, .split_from = 2000};
  const TinyDatabase database(graph);
  LiveRoadOptions options = SmallOptions();
  options.spec.fanouts = {20, 20};
  options.spec.batch_size = 16;
  OpenRoad open(database.path(), options);
  ASSERT_OK(open.status);
  ASSERT_LT(open.road->plan().slot_count, 5000u);
  std::vector<NodeId> seeds(2000);
  for (NodeId v = 0; v < 2000; ++v) seeds[v] = v;
  ASSERT_OK_AND_ASSIGN(auto stream, open.road->StartPass({.seeds = seeds}));
  Status status;
  while (status.ok()) {
    auto batch = stream->Next();
    status = batch.status();
    if (!batch.ok()) break;
    ASSERT_TRUE(*batch) << "the pass ended without the refusal";
  }
  EXPECT_THAT(status, IsStatus(Code::kOutOfBudget, HasSubstr("raise the memory budget by at least")));
  EXPECT_EQ(stream->Next().status().message(), status.message()) << "it comes back at every call";
}

TEST_F(LiveRoadTest, SamplesAlongEdgesAndBothWaysWhenTheTopologyHasBothSides) {
  const TinyDatabase database({.nodes = 500, .both_directions = true});
  for (const Direction direction : {Direction::kOut, Direction::kBoth}) {
    std::vector<std::pair<uint64_t, uint64_t>> expected;
    for (const Placement placement : {Placement::kMemory, Placement::kDisk}) {
      LiveRoadOptions options = SmallOptions();
      options.spec.direction = direction;
      options.topology_placement = placement;
      OpenRoad open(database.path(), options);
      ASSERT_OK(open.status);
      const auto hashes =
          RunPass(*open.road, {.seeds = database.graph().SplitNodes(Split::kTrain), .ordered = true});
      if (expected.empty()) expected = hashes;
      EXPECT_EQ(hashes, expected);
    }
  }
  LiveRoadOptions options = SmallOptions();
  options.spec.direction = Direction::kOut;
  EXPECT_THAT(OpenRoad(LiveRoadTest::database().path(), options).status, IsStatus(Code::kInvalidArgument));
}

TEST_F(LiveRoadTest, RefusesOptionsThatMakeNoSense) {
  LiveRoadOptions options = SmallOptions();
  options.spec.batch_size = 0;
  EXPECT_THAT(OpenRoad(database().path(), options).status, IsStatus(Code::kUsage));
  options = SmallOptions();
  options.spec.fanouts = {3, 0};
  EXPECT_THAT(OpenRoad(database().path(), options).status, IsStatus(Code::kUsage));
  options = SmallOptions();
  options.sampler_threads = 0;
  EXPECT_THAT(OpenRoad(database().path(), options).status, IsStatus(Code::kUsage));
  options = SmallOptions();
  options.spec.feature_table = "nothing";
  EXPECT_THAT(OpenRoad(database().path(), options).status, IsStatus(Code::kNotFound));
}

TEST_F(LiveRoadTest, ASeedOutOfRangeComesBackAsTheError) {
  OpenRoad open(database().path(), SmallOptions());
  ASSERT_OK(open.status);
  ASSERT_OK_AND_ASSIGN(auto stream, open.road->StartPass({.seeds = {1, 2, 2000}}));
  EXPECT_THAT(stream->Next(), IsStatus(Code::kInvalidArgument));
}

TEST_F(LiveRoadTest, ADamagedRowIsCorruptionThatNamesTheFileAndIsNeverDelivered) {
  const TinyDatabase database({.nodes = 500});
  OpenRoad open(database.path(), SmallOptions());
  ASSERT_OK(open.status);
  const std::shared_ptr<const Manifest> manifest = open.store->manifest();
  const TableRecord* record = manifest->FindTable("feature");
  ASSERT_NE(record, nullptr);
  {
    std::fstream file(database.path() + "/" + record->file, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 77 * 512 + 13);  // within the row of node 77
    file.put('\x55');
  }
  std::vector<NodeId> all(500);
  for (NodeId v = 0; v < 500; ++v) all[v] = v;
  ASSERT_OK_AND_ASSIGN(auto stream, open.road->StartPass({.seeds = all}));
  Status status;
  while (status.ok()) {
    auto batch = stream->Next();
    status = batch.status();
    if (!batch.ok()) break;
    ASSERT_TRUE(*batch) << "the damage was not noticed";
    EXPECT_THAT((*batch)->view().nodes, testing::Not(testing::Contains(77u)));
  }
  EXPECT_THAT(status, IsStatus(Code::kCorruption, HasSubstr(record->file)));
}

LiveRoadOptions OptionsOfAllRows(double random_reads_per_second) {
  LiveRoadOptions options = SmallOptions();
  options.cache_takes_what_is_left = true;
  options.device = DeviceProfile{.random_reads_per_second = random_reads_per_second};
  return options;
}

// Bytes of the rows, as far as they are read by whole blocks.
uint64_t RowsOnDisk(const OpenRoad& open) {
  return open.store->manifest()->FindTable("feature")->row_count * 512;
}

TEST_F(LiveRoadTest, OneScanBringsInAllRowsWhereTheyFit) {
  PassOutcome first, second;
  const auto pass = [](OpenRoad& open, uint64_t number) {
    return TryPass(*open.road, {.seeds = TrainNodes(), .pass = number, .ordered = true});
  };
  {
    OpenRoad open(database().path(), OptionsOfAllRows(1000));
    ASSERT_OK(open.status);
    EXPECT_EQ(open.road->plan().retained_max, 2000u);
    first = pass(open, 1);
    EXPECT_GE(first.stats.feature_bytes_read, RowsOnDisk(open));
    EXPECT_LE(first.stats.feature_bytes_read, RowsOnDisk(open) * 101 / 100 + 64 * kKiB);
    EXPECT_EQ(first.stats.cache_hits, first.stats.cache_lookups);
    EXPECT_EQ(first.stats.bytes_useful, RowsOnDisk(open));
    second = pass(open, 2);
    EXPECT_EQ(second.stats.feature_bytes_read, 0u);
  }
  OpenRoad other(database().path(), SmallOptions());  // reads what its batches need
  ASSERT_OK(other.status);
  EXPECT_EQ(pass(other, 1).hashes, first.hashes);
  EXPECT_EQ(pass(other, 2).hashes, second.hashes);
}

TEST_F(LiveRoadTest, AScanThatWouldCostMoreThanThePassIsNotMade) {
  OpenRoad open(database().path(), OptionsOfAllRows(1e9));
  ASSERT_OK(open.status);
  const std::vector<NodeId> one = {TrainNodes().front()};
  EXPECT_LT(TryPass(*open.road, {.seeds = one, .pass = 1}).stats.feature_bytes_read, RowsOnDisk(open) / 4);
}

TEST_F(LiveRoadTest, AScanThatFailsOrIsNotWantedEndsThePassAndMayBeMadeAgain) {
  OpenRoad open(database().path(), OptionsOfAllRows(1000));
  ASSERT_OK(open.status);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(open.road->StartPass({.seeds = TrainNodes(), .pass = 1, .stop = stop.get_token()}),
              IsStatus(Code::kCancelled));
  open.backend.SetPlans({{.kind = FaultKind::kRead, .at = 2, .sticky = true, .error = EIO}});
  EXPECT_THAT(open.road->StartPass({.seeds = TrainNodes(), .pass = 1}), IsStatus(Code::kIoError));
  open.backend.SetPlans({});
  const PassOutcome pass = TryPass(*open.road, {.seeds = TrainNodes(), .pass = 1});
  EXPECT_OK(pass.status);
  EXPECT_GT(pass.stats.feature_bytes_read, 0u) << "what had not arrived";
  EXPECT_EQ(pass.stats.cache_hits, pass.stats.cache_lookups);
}

// 400 nodes, of which batches take 40 each: all over, or always the same.
TEST(BufferFillTest, DistinctNodesAreEstimatedFromWhatBatchesShare) {
  EXPECT_EQ(DistinctNodes({.distinct_nodes = {40, 76}}, 1, 400), 40u);
  EXPECT_NEAR(DistinctNodes({.distinct_nodes = {40, 76}}, 10, 400), 400 * (1 - std::pow(0.9, 10)), 1);
  EXPECT_EQ(DistinctNodes({.distinct_nodes = {40, 40}}, 1000, 400), 40u);
  EXPECT_EQ(DistinctNodes({.distinct_nodes = {40, 80}}, 1'000'000, 400), 400u);
  EXPECT_EQ(DistinctNodes({.distinct_nodes = {40}}, 0, 400), 0u);
}

}  // namespace
}  // namespace quarry
