// Roads over nodes at several times: neighbors are those of the place, at the node's own time; rows are the table's, with the
// columns of place and time behind them, as a join of the arrays has them; an epoch goes from time to time.
#include "quarry/storage/times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "pipeline/batch_meaning.h"
#include "pipeline/pass_util.h"
#include "quarry/format/fanouts.h"
#include "quarry/import/dataset.h"
#include "quarry/import/graph_change.h"
#include "quarry/import/import.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/pipeline/superbatch_road.h"
#include "quarry/sampling/seed_order.h"
#include "quarry/storage/training_state.h"
#include "support/array_files.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::Meaning;
using testing_util::OpenRoad;
using testing_util::RunEpoch;
using testing_util::RunPass;

constexpr uint64_t kPlaces = 41, kTimes = 23, kNodes = kPlaces * kTimes;
constexpr uint64_t kDim = 5, kPlaceDim = 3, kTimeDim = 2, kAllDim = kDim + kPlaceDim + kTimeDim;

class TimesTest : public testing::Test {
 protected:
  void SetUp() override {
    Rng rng(kSeed);
    RecordProperty("seed", std::to_string(kSeed));
    for (uint64_t i = 0; i < 6 * kPlaces; ++i) {  // the last place has no neighbor
      const auto source = static_cast<int64_t>(rng.Below(kPlaces));
      edges_.emplace_back(source, static_cast<int64_t>(rng.Below(kPlaces - 1)));
    }
    const auto fill = [&](std::vector<float>& values, uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(rng.Unit()));
    };
    fill(features_, kNodes * kDim);
    fill(place_columns_, kPlaces * kPlaceDim);
    fill(time_columns_, kTimes * kTimeDim);
    std::vector<int64_t> splits[3];  // a node in nine is of none
    for (int64_t node = 0; node < static_cast<int64_t>(kNodes); ++node) {
      if (const uint64_t which = rng.Below(9); which < 8)
        splits[which < 5 ? 0 : which < 7 ? 1 : 2].push_back(node);
    }
    Write("edges.npy", NpyEdges(edges_));
    Write("features.npy", NpyFile(features_, {kTimes, kPlaces, kDim}));
    Write("place_features.npy", NpyFile(place_columns_, {kPlaces, kPlaceDim}));
    Write("time_features.npy", NpyFile(time_columns_, {kTimes, kTimeDim}));
    for (const auto& [name, ids] : {std::pair("train_idx.npy", &splits[0]),
                                    {"valid_idx.npy", &splits[1]},
                                    {"test_idx.npy", &splits[2]}}) {
      Write(name, NpyVector(*ids));
    }
    ASSERT_OK(Import());
  }

  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(source_ / name, std::ios::binary) << bytes;
  }
  Status Import(const SourceHints& hints = {}, const ImportOptions& options = {}) const {
    std::filesystem::remove_all(database_);
    QUARRY_TRY(Dataset dataset, OpenDataset(source_.path(), hints));
    return ImportDatabase(*backend_, database_, std::move(dataset), options);
  }

  static LiveRoadOptions Options() {
    LiveRoadOptions options = testing_util::SmallOptions();
    options.sampler_threads = 2;
    options.extractor_threads = 2;
    return options;
  }

  std::vector<float> Joined(uint64_t node) const {
    std::vector<float> row(features_.begin() + node * kDim, features_.begin() + (node + 1) * kDim);
    const uint64_t place = node % kPlaces, time = node / kPlaces;
    row.insert(row.end(), place_columns_.begin() + place * kPlaceDim,
               place_columns_.begin() + (place + 1) * kPlaceDim);
    row.insert(row.end(), time_columns_.begin() + time * kTimeDim,
               time_columns_.begin() + (time + 1) * kTimeDim);
    return row;
  }

  // Every row, and every edge: as many of a node's as the fanout, or all, and each the place's.
  void ExpectBatch(const BatchView& batch, std::span<const uint32_t> fanouts) const {
    ASSERT_EQ(batch.features.dim, kAllDim);
    for (size_t i = 0; i < batch.nodes.size(); ++i) {
      std::vector<float> row(kAllDim);
      std::memcpy(row.data(), batch.features.Row(i), kAllDim * sizeof(float));
      ASSERT_EQ(row, Joined(batch.nodes[i])) << "node " << batch.nodes[i];
    }
    for (uint32_t v = 0; v < batch.target_count(); ++v) {
      const uint64_t place = batch.nodes[v] % kPlaces, time = batch.nodes[v] / kPlaces;
      std::map<uint64_t, int64_t> left;  // places, by how often an edge comes from there
      uint64_t degree = 0;
      for (const auto& [source, destination] : edges_) {
        if (static_cast<uint64_t>(destination) != place) continue;
        ++left[source];
        ++degree;
      }
      const uint32_t fanout = fanouts[v < batch.hop_offsets[0] ? 0 : 1];
      ASSERT_EQ(batch.indptr[v + 1] - batch.indptr[v], std::min<uint64_t>(degree, fanout))
          << "node " << batch.nodes[v];
      for (uint32_t e = batch.indptr[v]; e < batch.indptr[v + 1]; ++e) {
        const uint64_t neighbor = batch.nodes[batch.indices[e]];
        ASSERT_EQ(neighbor / kPlaces, time) << "a neighbor at another time";
        ASSERT_GE(--left[neighbor % kPlaces], 0) << "place " << neighbor % kPlaces << " of " << place;
      }
    }
  }

  // The number of times that a batch of an epoch has seeds at, at most.
  uint64_t ExpectPass(Road& road, PassOptions pass, std::span<const uint32_t> fanouts) const {
    pass.ordered = true;
    std::set<NodeId> left(pass.seeds.begin(), pass.seeds.end());
    auto stream = road.StartPass(std::move(pass));
    EXPECT_OK(stream);
    uint64_t times_max = 0;
    std::set<uint64_t> begun, before;  // times; those of the batch before
    while (stream.ok()) {
      auto batch = (*stream)->Next();
      EXPECT_OK(batch);
      if (!batch.ok() || *batch == nullptr) break;
      const BatchView& view = (*batch)->view();
      ExpectBatch(view, fanouts);
      std::set<uint64_t> times;
      for (const NodeId seed : view.seeds()) {  // planned ones are in another order within a batch
        EXPECT_EQ(left.erase(seed), 1);
        times.insert(seed / kPlaces);
      }
      for (const uint64_t time : times) {
        const bool first = begun.insert(time).second;
        EXPECT_TRUE(first || before.contains(time)) << "time " << time << " is come back to";
      }
      before = times;
      times_max = std::max<uint64_t>(times_max, times.size());
    }
    EXPECT_TRUE(left.empty());
    return times_max;
  }

  static constexpr uint64_t kSeed = 20;
  const TemporaryFolder source_{"times-set"};
  const TemporaryFolder folder_{"times"};
  const std::string database_ = folder_ / "times.db";
  const std::unique_ptr<IoBackend> backend_ = MakeThreadBackend(2);
  std::vector<std::pair<int64_t, int64_t>> edges_;
  std::vector<float> features_, place_columns_, time_columns_;
};

TEST_F(TimesTest, BatchesAreJoinedAndOfFewTimesWhereverListsAndRowsLie) {
  using ListPlace = LiveRoadOptions::TopologyPlacement;
  std::set<std::vector<std::pair<uint64_t, uint64_t>>> passes;
  for (const ListPlace placement : {ListPlace::kMemory, ListPlace::kDisk}) {
    for (const uint64_t cache_bytes : {uint64_t{0}, uint64_t{4'000}, 64 * kMiB}) {
      LiveRoadOptions options = Options();
      options.topology_placement = placement;
      options.spec.cache_bytes = cache_bytes;
      const OpenRoad opened(database_, options);
      ASSERT_OK(opened.status);
      EXPECT_EQ(opened.road->feature_dim(), kAllDim);
      const std::vector<NodeId> train = opened.road->TrainNodes();
      const uint64_t times = ExpectPass(*opened.road, {.seeds = train, .pass = 1}, options.spec.fanouts);
      EXPECT_LE(times, 3U) << "of " << train.size() << " seeds at " << kTimes << " times, 32 a batch";
      passes.insert(RunPass(*opened.road, {.seeds = train, .pass = 1, .ordered = true}));
      EXPECT_NE(RunPass(*opened.road, {.seeds = train, .pass = 2, .ordered = true}), *passes.begin());
    }
  }
  EXPECT_EQ(passes.size(), 1U) << "batches depend on where lists lie, or on the cache";
}

TEST_F(TimesTest, TakesAllNeighborsAndTheirEdges) {
  LiveRoadOptions options = Options();
  options.spec.fanouts = {kAllNeighbors, kAllNeighbors};
  options.spec.edge_ids = true;
  const OpenRoad opened(database_, options);
  ASSERT_OK(opened.status);
  const std::vector<uint32_t> all = {1000, 1000};
  ExpectPass(*opened.road, {.seeds = opened.road->SplitNodes(Split::kTest), .shuffle = false}, all);
  ASSERT_OK_AND_ASSIGN(const auto stream,
                       opened.road->StartPass({.seeds = {kPlaces * 3 + 1, kPlaces * 7 + 1}}));
  ASSERT_OK_AND_ASSIGN(const auto batch, stream->Next());
  const BatchView& view = batch->view();
  const auto ids_of = [&](uint32_t v) {
    return std::set(view.edge_ids.begin() + view.indptr[v], view.edge_ids.begin() + view.indptr[v + 1]);
  };
  EXPECT_EQ(ids_of(0), ids_of(1)) << "edges are the places'";
  EXPECT_LT(*std::ranges::max_element(view.edge_ids), edges_.size());
}

TEST_F(TimesTest, HasTheNewestRowsAndColumns) {
  OpenRoad opened(database_, Options());
  ASSERT_OK(opened.status);
  const std::vector<NodeId> seeds = opened.road->SplitNodes(Split::kValid);
  const PassOptions pass{.seeds = seeds, .shuffle = false, .ordered = true};
  const auto before = RunPass(*opened.road, pass);
  WriteBatch batch;
  const auto change = [&](const std::string& table, std::vector<float>& values, uint64_t row, uint64_t dim) {
    std::fill_n(values.begin() + static_cast<ptrdiff_t>(row * dim), dim, 0.5F);
    batch.Put(table, row, std::as_bytes(std::span(values).subspan(row * dim, dim)));
  };
  for (const NodeId node : {NodeId{3}, seeds[5], seeds.back()}) change("feature", features_, node, kDim);
  change("place_feature", place_columns_, seeds[7] % kPlaces, kPlaceDim);
  change("time_feature", time_columns_, seeds[9] / kPlaces, kTimeDim);
  ASSERT_OK(opened.store->Write(batch));
  EXPECT_EQ(RunPass(*opened.road, pass), before) << "of the road's snapshot";
  opened.Reopen(Options());
  ASSERT_OK(opened.status);
  ExpectPass(*opened.road, pass, Options().spec.fanouts);
  EXPECT_NE(RunPass(*opened.road, pass), before);
}

// Layouts have room for what is joined, and it is joined when they are read: what is newer is seen without building anew.
TEST_F(TimesTest, PlannedEpochsAreTheLiveOnes) {
  OpenRoad open(database_, Options());
  ASSERT_OK(open.status);
  const std::vector<NodeId> train = open.road->TrainNodes();
  std::vector<std::vector<Meaning>> live;
  for (uint64_t pass = 1; pass <= 2; ++pass) {
    ASSERT_OK_AND_ASSIGN(live.emplace_back(), RunEpoch(*open.road, train, pass));
  }
  open.road.reset();
  int segmented = 0;
  for (const Packing packing : {Packing::kAlways, Packing::kNever}) {
    for (const PolicyKind policy : {PolicyKind::kBelady, PolicyKind::kStaticDegree}) {
      for (const uint64_t cache_bytes : {uint64_t{0}, uint64_t{9'000}}) {
        uint64_t whole_bytes = 0;
        for (const bool small_disk : {false, true}) {
          LayoutSpec spec{
              .road = Options().spec.ForOtherPasses(), .epochs = 2, .policy = policy, .threads = 2};
          spec.road.cache_bytes = cache_bytes;
          spec.packing = packing;
          if (small_disk) spec.disk_bytes = whole_bytes - 8 * kKiB;
          if (small_disk && packing == Packing::kNever) continue;
          const Result<LayoutRecord> built = BuildLayout(*open.store, *open.budget, spec, false, {});
          // With a cache, what is left to pack is less than the smallest ring of segments.
          if (small_disk && built.status().code() == Code::kNoSpace) continue;
          ASSERT_OK(built);
          const LayoutRecord& record = *built;
          EXPECT_TRUE(IsLayoutOf(*open.store->manifest(), record, spec));
          EXPECT_EQ(record.batches_per_segment > 0, small_disk);
          segmented += small_disk ? 1 : 0;
          whole_bytes = record.total_bytes();
          ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(*open.store, *open.budget, {}));
          for (uint32_t pass = 0; pass < 3; ++pass) {  // the cycle, and its beginning again
            ASSERT_OK_AND_ASSIGN(const auto got, RunEpoch(*road, train, 77));
            ASSERT_EQ(got, live[pass % 2]) << NameOf(policy) << ", pass " << pass;
          }
        }
      }
    }
  }
  EXPECT_GT(segmented, 0);
  WriteBatch batch;
  std::fill_n(place_columns_.begin(), kPlaceDim, 0.25F);
  batch.Put("place_feature", 0, std::as_bytes(std::span(place_columns_).first(kPlaceDim)));
  std::fill_n(features_.begin() + train[2] * kDim, kDim, 0.75F);
  batch.Put("feature", train[2], std::as_bytes(std::span(features_).subspan(train[2] * kDim, kDim)));
  ASSERT_OK(open.store->Write(batch));
  ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(*open.store, *open.budget, {}));
  ExpectPass(*road, {.seeds = train}, Options().spec.fanouts);
}

// A model has the joined columns among its inputs, and a layout room for them.
TEST_F(TimesTest, ColumnsStayWhileARunOrALayoutNeedsThem) {
  MemoryBudget budget(kGiB);
  ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(*backend_, database_));
  const std::vector<std::byte> state(8);
  for (const std::string name : {"sky", "other"}) {
    ASSERT_OK(
        CheckpointTraining(*store, {.name = name, .settings = "--task node", .state = state},
                           [&](const ManifestChange& change) { return store->UpdateManifest(change); }));
  }
  LayoutSpec spec{.road = Options().spec.ForOtherPasses(), .threads = 2};
  spec.road.cache_bytes = 100 * kAllDim * sizeof(float);
  ASSERT_OK(BuildLayout(*store, budget, spec, false, {}));
  for (const std::string table : {"place_feature", "time_feature"}) {
    EXPECT_THAT(store->DropTable(table),
                IsStatus(Code::kInvalidArgument,
                         HasSubstr("layout \"default\" needs table \"" + table + "\": drop that first")));
  }
  ASSERT_OK(DropLayout(*store, "default"));
  for (const std::string run : {"other", "sky"}) {
    for (const std::string table : {"place_feature", "time_feature"}) {
      const Status refused = store->DropTable(table);
      EXPECT_THAT(refused, IsStatus(Code::kInvalidArgument,
                                    HasSubstr("needs table \"" + table + "\", whose columns")));
      EXPECT_NE(store->manifest()->FindTable(table), nullptr);
    }
    ASSERT_OK(DropTraining(*store, run));
  }
  EXPECT_OK(store->DropTable("place_feature"));
  EXPECT_OK(store->DropTable("time_feature"));
}

TEST_F(TimesTest, WhatTakesNodesForPlacesIsRefused) {
  OpenRoad opened(database_, Options());
  ASSERT_OK(opened.status);
  Store& store = *opened.store;
  EXPECT_EQ(store.manifest()->node_count, kNodes);
  EXPECT_EQ(store.manifest()->FindTopology("graph")->node_count, kPlaces);
  EXPECT_THAT(store.OpenTopology("graph").status(),
              IsStatus(Code::kUnsupported,
                       HasSubstr("the lists of 41 places, which are the same at each of 23 times")));
  EXPECT_EQ(GraphChange::Create(store, *opened.budget, {.nodes = 1}).status().code(), Code::kUnsupported);
  LayoutSpec spec{.road = Options().spec.ForOtherPasses()};
  spec.road.seed_order = SeedOrder::kProximity;
  EXPECT_THAT(BuildLayout(store, *opened.budget, spec, false, {}).status(),
              IsStatus(Code::kUnsupported, HasSubstr("ordered by time")));
}

TEST_F(TimesTest, SourcesThatDoNotFitAreRefusedByName) {
  const auto refused = [&](const std::string& words, const SourceHints& hints = {}) {
    EXPECT_THAT(Import(hints).message(), HasSubstr(words));
  };
  refused("23 times in its shape", {.times = 22});
  Write("place_features.npy", NpyFile(place_columns_, {kPlaces * kPlaceDim, 1}));
  refused("place_features.npy: 123 rows, but there are 41 places");
  Write("place_features.npy", NpyFile(place_columns_, {kPlaces, kPlaceDim}));
  Write("edges.npy", NpyEdges({{0, 41}}));
  refused("node id 41 is out of range; there are 41 places");
  Write("edges.npy", NpyEdges(edges_));
  Write("features.npy", NpyFile(features_, {kNodes, kDim}));
  refused("place_features.npy: columns of places are of a graph at several times");
  refused("943 nodes are no whole number of places at each of 22 times", {.times = 22});
  refused("place_features.npy: columns of places are of a graph at several times, and this one has one",
          {.times = 1});
  EXPECT_OK(Import({.times = kTimes}));
  EXPECT_THAT(Import({.times = kTimes}, {.feature_type = ElementType::kInt8}),
              IsStatus(Code::kUsage, HasSubstr("not joined to features of int8")));
  EXPECT_OK(Import({.times = kTimes}, {.feature_type = ElementType::kFloat16}));
  EXPECT_OK(OpenRoad(database_, Options()).status);
}

// Against shuffling by hand: the seeds of each time stay together, in every order.
TEST(ShuffleSeeds, ByTimeIsAPermutationOfTimesAndOfEach) {
  std::vector<NodeId> seeds;
  for (NodeId node = 0; node < 60; ++node) {
    if (node % 7 != 0) seeds.push_back(node);
  }
  std::set<std::vector<uint64_t>> orders;
  std::set<NodeId> firsts;
  for (uint64_t pass = 0; pass < 1000; ++pass) {
    std::vector<NodeId> shuffled = seeds;
    ShuffleSeeds(shuffled, 3, pass, /*places=*/20);
    firsts.insert(shuffled.front());
    std::vector<uint64_t> order;
    for (const NodeId seed : shuffled) {
      if (order.empty() || order.back() != seed / 20) order.push_back(seed / 20);
    }
    ASSERT_EQ(order.size(), 3U);
    orders.insert(order);
    std::ranges::sort(shuffled);
    ASSERT_EQ(shuffled, seeds);
  }
  EXPECT_EQ(orders.size(), 6U);
  EXPECT_EQ(firsts.size(), seeds.size());
}

}  // namespace
}  // namespace quarry
