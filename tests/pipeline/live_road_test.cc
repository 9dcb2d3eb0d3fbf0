#include "quarry/pipeline/live_road.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <thread>

#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;
using Placement = LiveRoadOptions::TopologyPlacement;

// An open road and what it stands on.
struct OpenRoad {
  std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  std::unique_ptr<Store> store;
  std::unique_ptr<MemoryBudget> budget;
  std::unique_ptr<LiveRoad> road;
  Status status;

  OpenRoad(const std::string& path, const LiveRoadOptions& options, uint64_t memory_bytes = kGiB)
      : budget(std::make_unique<MemoryBudget>(memory_bytes)) {
    auto opened = Store::Open(*backend, path);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    store = std::move(opened).value();
    auto made = LiveRoad::Open(*store, *budget, options);
    status = made.status();
    if (made.ok()) road = std::move(made).value();
  }
};

LiveRoadOptions SmallOptions() {
  LiveRoadOptions options;
  options.fanouts = {4, 3};
  options.batch_size = 32;
  options.seed = 5;
  return options;
}

// One number for everything that a trainer can see of a batch.
uint64_t HashBatch(const Batch& batch) {
  uint64_t hash = MixSeed(1, batch.index());
  const auto add = [&hash](const auto& values) {
    hash = MixSeed(hash, Checksum64(std::as_bytes(std::span(values))));
  };
  add(batch.block().nodes);
  add(batch.block().hop_offsets);
  add(batch.block().indptr);
  add(batch.block().indices);
  add(batch.labels());
  const FeatureView& features = batch.features();
  const uint64_t row_bytes = RowBytes(features.element_type, features.dim);
  for (const uint32_t slot : features.slots) {
    hash = MixSeed(hash, Checksum64({features.base + slot * features.stride_bytes, row_bytes}));
  }
  return hash;
}

// Batch numbers and hashes in the order of delivery.
std::vector<std::pair<uint64_t, uint64_t>> RunPass(Road& road, PassOptions pass,
                                                   StreamStats* stats = nullptr) {
  std::vector<std::pair<uint64_t, uint64_t>> hashes;
  auto stream = road.StartPass(std::move(pass));
  EXPECT_TRUE(stream.ok()) << stream.status().ToString();
  if (!stream.ok()) return hashes;
  for (;;) {
    auto batch = (*stream)->Next();
    EXPECT_TRUE(batch.ok()) << batch.status().ToString();
    if (!batch.ok() || !*batch) break;
    hashes.emplace_back((*batch)->index(), HashBatch(**batch));
  }
  EXPECT_EQ(hashes.size(), (*stream)->batch_count());
  if (stats != nullptr) *stats = (*stream)->stats();
  return hashes;
}

void ExpectBatchIsTrue(const Batch& batch, const TinyGraph& graph,
                       const std::set<std::pair<NodeId, NodeId>>& edges) {
  const Block& block = batch.block();
  ASSERT_EQ(batch.labels().size(), block.seed_count());
  for (uint32_t i = 0; i < block.seed_count(); ++i) {
    EXPECT_EQ(batch.labels()[i], graph.labels ? graph.Label(block.nodes[i]) : -1);
  }
  for (size_t v = 0; v + 1 < block.indptr.size(); ++v) {
    for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; ++e) {
      ASSERT_TRUE(edges.contains({block.nodes[block.indices[e]], block.nodes[v]}))
          << block.nodes[block.indices[e]] << " -> " << block.nodes[v] << " is no edge";
    }
  }
  const FeatureView& features = batch.features();
  ASSERT_EQ(features.slots.size(), block.nodes.size());
  EXPECT_EQ(features.element_type, graph.type);
  EXPECT_EQ(features.dim, graph.dim);
  for (size_t i = 0; i < block.nodes.size(); ++i) {
    const std::vector<std::byte> row = graph.Row(block.nodes[i]);
    ASSERT_EQ(std::memcmp(features.base + features.slots[i] * features.stride_bytes, row.data(), row.size()),
              0)
        << "row of node " << block.nodes[i];
  }
}

TEST(LiveRoadTest, DeliversTheRowsLabelsAndEdgesOfTheDatabaseForEveryRowLayout) {
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
    options.cache_bytes = graph.nodes / 5 * RowBytes(graph.type, graph.dim);
    OpenRoad open(database.path(), options);
    ASSERT_TRUE(open.status.ok()) << open.status.ToString();
    EXPECT_EQ(open.road->feature_dim(), graph.dim);
    EXPECT_EQ(open.road->labels().empty(), !graph.labels);
    EXPECT_EQ(open.road->SplitNodes(Split::kValid).empty(), !graph.splits);

    const std::vector<NodeId> seeds = graph.SplitNodes(Split::kTrain);
    for (uint64_t pass = 0; pass < 2; ++pass) {
      std::multiset<NodeId> seen;
      auto stream = open.road->StartPass({.seeds = seeds, .pass = pass});
      ASSERT_TRUE(stream.ok());
      for (;;) {
        auto batch = (*stream)->Next();
        ASSERT_TRUE(batch.ok()) << batch.status().ToString();
        if (!*batch) break;
        ExpectBatchIsTrue(**batch, graph, edges);
        if (HasFatalFailure()) return;
        seen.insert((*batch)->block().seeds().begin(), (*batch)->block().seeds().end());
      }
      EXPECT_TRUE(std::equal(seen.begin(), seen.end(), seeds.begin(), seeds.end())) << "each seed once";
      ASSERT_TRUE((*stream)->Next().ok()) << "the end stays the end";
    }
  }
}

TEST(LiveRoadTest, OrderedPassesAreTheSameForAnyThreadsMemoryAndCache) {
  const TinyDatabase database({.nodes = 2000});
  const std::vector<NodeId> seeds = database.graph().SplitNodes(Split::kTrain);
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
    options.cache_bytes = cache;
    OpenRoad open(database.path(), options);
    ASSERT_TRUE(open.status.ok()) << open.status.ToString();
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

TEST(LiveRoadTest, WithoutShufflingSeedsAreUsedInTheirOrder) {
  const TinyDatabase database({.nodes = 100});
  OpenRoad open(database.path(), SmallOptions());
  ASSERT_TRUE(open.status.ok()) << open.status.ToString();
  const std::vector<NodeId> seeds = {40, 3, 99, 0};
  auto stream = open.road->StartPass({.seeds = seeds, .shuffle = false});
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ((*stream)->batch_count(), 1u);
  auto batch = (*stream)->Next();
  ASSERT_TRUE(batch.ok() && *batch);
  EXPECT_THAT((*batch)->block().seeds(), testing::ElementsAreArray(seeds));
}

TEST(LiveRoadTest, APassWithoutSeedsEndsAtOnce) {
  const TinyDatabase database({.nodes = 100});
  OpenRoad open(database.path(), SmallOptions());
  ASSERT_TRUE(open.status.ok()) << open.status.ToString();
  EXPECT_TRUE(RunPass(*open.road, {}).empty());
}

TEST(LiveRoadTest, ACacheOfTheWholeTableReadsEveryRowOnce) {
  const TinyDatabase database({.nodes = 1000});
  LiveRoadOptions options = SmallOptions();
  options.cache_bytes = 1000 * 512;
  OpenRoad open(database.path(), options);
  ASSERT_TRUE(open.status.ok()) << open.status.ToString();
  std::vector<NodeId> all(1000);
  for (NodeId v = 0; v < 1000; ++v) all[v] = v;
  StreamStats first, second;
  RunPass(*open.road, {.seeds = all}, &first);
  EXPECT_EQ(first.bytes_useful, 1000 * 512u);
  EXPECT_GE(first.feature_bytes_read, first.bytes_useful);
  RunPass(*open.road, {.seeds = all, .pass = 1}, &second);
  EXPECT_EQ(second.feature_bytes_read, 0u);
  EXPECT_EQ(second.read_requests, 0u);
  EXPECT_EQ(second.cache_hits, second.cache_lookups);
}

TEST(LiveRoadTest, StatsCountWhatWasDelivered) {
  const TinyDatabase database({.nodes = 2000});
  LiveRoadOptions options = SmallOptions();
  options.cache_bytes = 200 * 512;
  OpenRoad open(database.path(), options);
  ASSERT_TRUE(open.status.ok()) << open.status.ToString();
  auto stream = open.road->StartPass({.seeds = database.graph().SplitNodes(Split::kTrain)});
  ASSERT_TRUE(stream.ok());
  uint64_t batches = 0, nodes = 0, edges = 0;
  for (;;) {
    auto batch = (*stream)->Next();
    ASSERT_TRUE(batch.ok());
    if (!*batch) break;
    ++batches;
    nodes += (*batch)->block().nodes.size();
    edges += (*batch)->block().indices.size();
  }
  const StreamStats stats = (*stream)->stats();
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

TEST(LiveRoadTest, DestroyingAStreamAtAnyPointLeavesTheRoadWhole) {
  const TinyDatabase database({.nodes = 2000});
  LiveRoadOptions options = SmallOptions();
  options.sampler_threads = 2;
  options.extractor_threads = 2;
  options.cache_bytes = 100 * 512;
  OpenRoad open(database.path(), options);
  ASSERT_TRUE(open.status.ok()) << open.status.ToString();
  const std::vector<NodeId> seeds = database.graph().SplitNodes(Split::kTrain);
  const auto expected = RunPass(*open.road, {.seeds = seeds, .ordered = true});
  Rng rng(3);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    {
      auto stream = open.road->StartPass({.seeds = seeds, .ordered = round % 2 == 0});
      ASSERT_TRUE(stream.ok());
      for (uint64_t i = rng.Below(expected.size()); i > 0; --i) {
        auto batch = (*stream)->Next();
        ASSERT_TRUE(batch.ok() && *batch);
      }
      // Now and then until every stage is blocked on the one after it.
      std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(3000)));
    }
    if (round % 10 == 9) {
      EXPECT_EQ(RunPass(*open.road, {.seeds = seeds, .ordered = true}), expected);
    }
  }
}

TEST(LiveRoadTest, HoldingABatchWhileAskingForTheNextIsRefused) {
  const TinyDatabase database({.nodes = 500});
  OpenRoad open(database.path(), SmallOptions());
  ASSERT_TRUE(open.status.ok()) << open.status.ToString();
  auto stream = open.road->StartPass({.seeds = database.graph().SplitNodes(Split::kTrain)});
  ASSERT_TRUE(stream.ok());
  auto held = (*stream)->Next();
  ASSERT_TRUE(held.ok() && *held);
  EXPECT_EQ((*stream)->Next().status().code(), Code::kInternal);
  held->reset();
  EXPECT_TRUE((*stream)->Next().ok());
}

TEST(LiveRoadTest, OneStreamAtATime) {
  const TinyDatabase database({.nodes = 500});
  OpenRoad open(database.path(), SmallOptions());
  ASSERT_TRUE(open.status.ok()) << open.status.ToString();
  auto stream = open.road->StartPass({.seeds = {1, 2, 3}});
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(open.road->StartPass({.seeds = {1}}).status().code(), Code::kInternal);
  stream->reset();
  EXPECT_TRUE(open.road->StartPass({.seeds = {1}}).ok());
}

TEST(LiveRoadTest, ReservesWhatItPlansAndGivesItBack) {
  const TinyDatabase database({.nodes = 2000});
  LiveRoadOptions options = SmallOptions();
  options.topology_placement = Placement::kDisk;
  options.cache_bytes = 100 * 512;
  OpenRoad open(database.path(), options, 64 * kMiB);
  ASSERT_TRUE(open.status.ok()) << open.status.ToString();
  EXPECT_EQ(open.road->plan().total_bytes(), open.budget->used_bytes());
  EXPECT_LE(open.budget->used_bytes(), open.budget->limit_bytes());
  EXPECT_EQ(open.road->plan().retained_max, 100u);
  open.road.reset();
  EXPECT_EQ(open.budget->used_bytes(), 0u);
}

TEST(LiveRoadTest, ABudgetTooSmallNamesTheLeastAndTheLeastWorks) {
  const TinyDatabase database({.nodes = 20000});
  LiveRoadOptions options = SmallOptions();
  options.batch_size = 512;
  options.cache_bytes = 4 * kMiB;
  uint64_t least = 0;
  {
    const OpenRoad refused(database.path(), options, 6 * kMiB);
    ASSERT_EQ(refused.status.code(), Code::kOutOfBudget);
    const std::string message(refused.status.message());
    std::smatch match;
    ASSERT_TRUE(std::regex_search(message, match, std::regex("--memory ([0-9]+)MiB"))) << message;
    EXPECT_EQ(refused.budget->used_bytes(), 0u);
    least = std::stoull(match[1]) * kMiB;
  }
  const std::vector<NodeId> seeds = database.graph().SplitNodes(Split::kTest);
  std::vector<std::pair<uint64_t, uint64_t>> tight, roomy;
  {
    OpenRoad open(database.path(), options, least);
    ASSERT_TRUE(open.status.ok()) << open.status.ToString();
    EXPECT_EQ(open.road->plan().batches_in_flight, 1u);
    tight = RunPass(*open.road, {.seeds = seeds, .ordered = true});
  }
  OpenRoad open(database.path(), options, kGiB);
  ASSERT_TRUE(open.status.ok()) << open.status.ToString();
  roomy = RunPass(*open.road, {.seeds = seeds, .ordered = true});
  EXPECT_EQ(tight, roomy);
}

TEST(LiveRoadTest, ABatchFarLargerThanThoseProbedIsRefusedWithWhatItNeeds) {
  // Every split lies among nodes without neighbors, so that probing sees batches of seeds alone.
  TinyGraph graph{.nodes = 20000, .degree = 20, .lonely_from = 2000, .split_from = 2000};
  const TinyDatabase database(graph);
  LiveRoadOptions options = SmallOptions();
  options.fanouts = {20, 20};
  options.batch_size = 16;
  OpenRoad open(database.path(), options);
  ASSERT_TRUE(open.status.ok()) << open.status.ToString();
  ASSERT_LT(open.road->plan().slot_count, 5000u);
  std::vector<NodeId> seeds(2000);
  for (NodeId v = 0; v < 2000; ++v) seeds[v] = v;
  auto stream = open.road->StartPass({.seeds = seeds});
  ASSERT_TRUE(stream.ok());
  Status status;
  while (status.ok()) {
    auto batch = (*stream)->Next();
    status = batch.status();
    if (!batch.ok()) break;
    ASSERT_TRUE(*batch) << "the pass ended without the refusal";
  }
  EXPECT_EQ(status.code(), Code::kOutOfBudget);
  EXPECT_THAT(std::string(status.message()), HasSubstr("raise --memory by at least"));
  EXPECT_EQ((*stream)->Next().status().message(), status.message()) << "it comes back at every call";
}

TEST(LiveRoadTest, SamplesAlongEdgesAndBothWaysWhenTheTopologyHasBothSides) {
  const TinyDatabase database({.nodes = 500, .both_directions = true});
  for (const Direction direction : {Direction::kOut, Direction::kBoth}) {
    std::vector<std::pair<uint64_t, uint64_t>> expected;
    for (const Placement placement : {Placement::kMemory, Placement::kDisk}) {
      LiveRoadOptions options = SmallOptions();
      options.direction = direction;
      options.topology_placement = placement;
      OpenRoad open(database.path(), options);
      ASSERT_TRUE(open.status.ok()) << open.status.ToString();
      const auto hashes =
          RunPass(*open.road, {.seeds = database.graph().SplitNodes(Split::kTrain), .ordered = true});
      if (expected.empty()) expected = hashes;
      EXPECT_EQ(hashes, expected);
    }
  }
  const TinyDatabase one_sided({.nodes = 100});
  LiveRoadOptions options = SmallOptions();
  options.direction = Direction::kOut;
  EXPECT_EQ(OpenRoad(one_sided.path(), options).status.code(), Code::kInvalidArgument);
}

TEST(LiveRoadTest, RefusesOptionsThatMakeNoSense) {
  const TinyDatabase database({.nodes = 100});
  LiveRoadOptions options = SmallOptions();
  options.batch_size = 0;
  EXPECT_EQ(OpenRoad(database.path(), options).status.code(), Code::kUsage);
  options = SmallOptions();
  options.fanouts = {3, 0};
  EXPECT_EQ(OpenRoad(database.path(), options).status.code(), Code::kUsage);
  options = SmallOptions();
  options.sampler_threads = 0;
  EXPECT_EQ(OpenRoad(database.path(), options).status.code(), Code::kUsage);
  options = SmallOptions();
  options.feature_table = "nothing";
  EXPECT_EQ(OpenRoad(database.path(), options).status.code(), Code::kNotFound);
}

TEST(LiveRoadTest, ASeedOutOfRangeComesBackAsTheError) {
  const TinyDatabase database({.nodes = 100});
  OpenRoad open(database.path(), SmallOptions());
  ASSERT_TRUE(open.status.ok());
  auto stream = open.road->StartPass({.seeds = {1, 2, 100}});
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ((*stream)->Next().status().code(), Code::kInvalidArgument);
}

TEST(LiveRoadTest, ADamagedRowIsCorruptionThatNamesTheFileAndIsNeverDelivered) {
  const TinyDatabase database({.nodes = 500});
  OpenRoad open(database.path(), SmallOptions());
  ASSERT_TRUE(open.status.ok());
  const TableRecord* record = open.store->manifest().FindTable("feature");
  ASSERT_NE(record, nullptr);
  {
    std::fstream file(database.path() + "/" + record->file, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 77 * 512 + 13);  // within the row of node 77
    file.put('\x55');
  }
  std::vector<NodeId> all(500);
  for (NodeId v = 0; v < 500; ++v) all[v] = v;
  auto stream = open.road->StartPass({.seeds = all});
  ASSERT_TRUE(stream.ok());
  Status status;
  while (status.ok()) {
    auto batch = (*stream)->Next();
    status = batch.status();
    if (!batch.ok()) break;
    ASSERT_TRUE(*batch) << "the damage was not noticed";
    EXPECT_THAT((*batch)->block().nodes, testing::Not(testing::Contains(77u)));
  }
  EXPECT_EQ(status.code(), Code::kCorruption) << status.ToString();
  EXPECT_THAT(std::string(status.message()), HasSubstr(record->file));
}

}  // namespace
}  // namespace quarry
