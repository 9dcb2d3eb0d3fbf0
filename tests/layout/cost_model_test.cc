#include "quarry/layout/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cache_plan.h"
#include "layout/hand_trace.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/io/coalesce.h"
#include "quarry/layout/layout.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_util::Batches;
using testing_util::HandTrace;
using testing_util::RandomBatches;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

constexpr DeviceRecord kDevice{.random_reads_per_second = 1000,
                               .sequential_bytes_per_second = 8e6,  // a gap of 8,000 bytes is read through
                               .write_bytes_per_second = 4e6,
                               .gather_bytes_per_second = 1e12};

FeatureGeometry Geometry(uint64_t dim, uint64_t rows) {
  return FeatureGeometry::Make(ElementType::kFloat32, dim, rows).value();
}

std::vector<PathCost> Predict(const HandTrace& trace, CostModelOptions options) {
  options.scratch_path = trace.ScratchPath();
  const auto paths = PredictPaths(trace.backend(), trace.trace(), options, {});
  EXPECT_OK(paths);
  EXPECT_EQ(trace.StrayFiles(), 0u);
  return paths.ok() ? *paths : std::vector<PathCost>();
}

const PathCost& Find(const std::vector<PathCost>& paths, AccessPath path, PolicyKind policy) {
  const auto found = std::ranges::find_if(
      paths, [&](const PathCost& cost) { return cost.path == path && cost.policy == policy; });
  EXPECT_NE(found, paths.end()) << AccessPathName(path) << " " << NameOf(policy);
  static const PathCost none;
  return found == paths.end() ? none : *found;
}

// What each batch misses, by the simulation.
std::vector<std::set<NodeId>> MissesOf(const HandTrace& trace, PolicyKind policy,
                                       const FeatureGeometry& geometry, uint64_t cache_rows) {
  std::vector<std::set<NodeId>> misses;
  std::unique_ptr<NextUses> next_uses =
      NextUses::Make(trace.backend(), trace.trace(), geometry.row_count, true, trace.ScratchPath()).value();
  std::filesystem::remove(trace.ScratchPath());
  const auto plan = SimulateCache(trace.trace(), next_uses.get(),
                                  {.policy = policy,
                                   .node_count = geometry.row_count,
                                   .capacity = cache_rows,
                                   .row_bytes = RowStride(geometry.element_type, geometry.dim)},
                                  [&](uint64_t, const TraceBatch& nodes, const CacheStep& step) {
                                    misses.emplace_back();
                                    for (size_t i = 0; i < step.slots.size(); ++i) {
                                      if (step.slots[i] == kNoSlot) misses.back().insert(nodes.nodes[i]);
                                    }
                                    return Status::Ok();
                                  });
  EXPECT_OK(plan);
  for (const auto& carried : plan->carried) misses.back().insert(carried.node);
  return misses;
}

struct Counted {
  uint64_t bytes = 0, requests = 0;
};

Counted CountRows(const std::vector<std::set<NodeId>>& misses, const FeatureGeometry& geometry,
                  uint64_t block) {
  Counted counted;
  for (const auto& batch : misses) {
    for (const NodeId node : batch) {
      const uint64_t begin = geometry.CellOffset(geometry.CellOfRow(node));
      std::set<uint64_t> blocks;
      for (uint64_t byte = begin; byte < begin + geometry.cell_bytes(); ++byte) blocks.insert(byte / block);
      counted.bytes += blocks.size() * block;
      ++counted.requests;
    }
  }
  return counted;
}

Counted CountPages(const std::vector<std::set<NodeId>>& misses, const FeatureGeometry& geometry) {
  Counted counted;
  for (const auto& batch : misses) {
    std::set<uint64_t> pages;
    for (const NodeId node : batch) {
      for (uint64_t byte = 0; byte < geometry.row_bytes; ++byte) {
        pages.insert((geometry.RowOffset(node) + byte) / kPageBytes);
      }
    }
    for (const uint64_t page : pages) counted.requests += pages.contains(page - 1) ? 0 : 1;
    counted.bytes += pages.size() * kPageBytes;
  }
  return counted;
}

// Runs and not requests: without the limit on a request's size, each is one.
Counted CountMerged(const std::vector<std::set<NodeId>>& misses, const FeatureGeometry& geometry,
                    uint32_t block, uint64_t gap) {
  Counted counted;
  for (const auto& batch : misses) {
    std::vector<ByteRange> ranges;
    for (const NodeId node : batch) {
      ranges.push_back({geometry.CellOffset(geometry.CellOfRow(node)), geometry.cell_bytes()});
    }
    std::vector<MergedRead> reads, runs;
    Coalesce(ranges, {.block_bytes = block, .gap_bytes_max = gap}, reads);
    Coalesce(ranges, {.block_bytes = block, .gap_bytes_max = gap, .request_bytes_max = ~uint32_t{0}}, runs);
    for (const MergedRead& read : reads) counted.bytes += read.bytes;
    counted.requests += runs.size();
  }
  return counted;
}

struct CostCase {
  uint64_t dim = 0;
  uint32_t block_bytes = 0;
  uint64_t cache_rows = 0;
  uint64_t draws = 0;
};

class CostModelTest : public testing::TestWithParam<CostCase> {};

TEST_P(CostModelTest, ScatteredReadsAreThoseThatCountingGives) {
  constexpr uint64_t kNodes = 3000;
  const CostCase& param = GetParam();
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const HandTrace trace(RandomBatches(seed, 6, kNodes, param.draws));
    const FeatureGeometry geometry = Geometry(param.dim, kNodes);
    const std::vector<PathCost> paths = Predict(trace, {.geometry = geometry,
                                                        .block_bytes = param.block_bytes,
                                                        .device = kDevice,
                                                        .cache_rows = param.cache_rows,
                                                        .batches_per_epoch = 6});
    for (const PolicyKind policy : {PolicyKind::kLru, PolicyKind::kBelady}) {
      SCOPED_TRACE(NameOf(policy));
      const auto misses = MissesOf(trace, policy, geometry, param.cache_rows);
      uint64_t rows = 0;
      for (const auto& batch : misses) rows += batch.size();
      const auto expect = [&](AccessPath path, const Counted& counted) {
        const PathCost& cost = Find(paths, path, policy);
        EXPECT_EQ(cost.read_bytes, counted.bytes) << AccessPathName(path);
        EXPECT_EQ(cost.requests, counted.requests) << AccessPathName(path);
        EXPECT_EQ(cost.useful_bytes, rows * geometry.row_bytes) << AccessPathName(path);
        EXPECT_DOUBLE_EQ(
            cost.seconds,
            static_cast<double>(counted.bytes - std::min(counted.bytes, counted.requests * 4096)) / 8e6 +
                static_cast<double>(counted.requests) / 1000);
        EXPECT_EQ(cost.one_time_seconds, 0);
      };
      expect(AccessPath::kRowReads, CountRows(misses, geometry, param.block_bytes));
      expect(AccessPath::kPageReads, CountPages(misses, geometry));
      expect(AccessPath::kMergedReads, CountMerged(misses, geometry, param.block_bytes, 8000));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    RowsOfAllKinds, CostModelTest,
    testing::Values(CostCase{128, 512, 0, 300},    // rows that are cells
                    CostCase{128, 512, 300, 300},  // with a cache
                    CostCase{128, 4096, 10, 20},   // a device of large blocks, few misses
                    CostCase{25, 512, 300, 300},   // rows that share their page's checksum
                    CostCase{25, 512, 5, 12}, CostCase{1250, 512, 300, 100},  // rows across pages
                    CostCase{128, 512, 300, 3000}),                           // runs beyond a request
    [](const auto& tested) {
      return fmt::format("Dim{}Block{}Cache{}Draws{}", tested.param.dim, tested.param.block_bytes,
                         tested.param.cache_rows, tested.param.draws);
    });

// Rows of 512 bytes in a cache of one: by hand.
TEST(CostModelByHandTest, PackedPathsCountTheirChunksBlocksAndOneTimeWrites) {
  // Node 0 stays by any policy that knows the future; 9 rows of 512 bytes take two pages, 8 take one.
  const HandTrace trace({{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8}});
  const FeatureGeometry geometry = Geometry(128, 100);
  const std::vector<PathCost> paths = Predict(trace, {.geometry = geometry,
                                                      .device = kDevice,
                                                      .cache_rows = 1,
                                                      .batches_per_epoch = 2,
                                                      .planned_block_bytes = 2 * kPageBytes});
  const uint64_t regions = 3 * kPageBytes + 2 * kPageBytes;
  const uint64_t table = geometry.data_bytes();
  for (const PolicyKind policy : {PolicyKind::kBelady, PolicyKind::kStaticFrequency}) {
    const PathCost& packed = Find(paths, AccessPath::kPackedChunks, policy);
    EXPECT_EQ(packed.useful_bytes, 17u * 512);
    EXPECT_EQ(packed.read_bytes, regions);
    EXPECT_EQ(packed.written_bytes, 0u);
    EXPECT_EQ(packed.requests, 2u);
    EXPECT_DOUBLE_EQ(packed.seconds, static_cast<double>(regions) / 8e6);
    EXPECT_EQ(packed.one_time_bytes, regions + kPageBytes) << "the image of the cache is a page";
    EXPECT_DOUBLE_EQ(packed.one_time_seconds,
                     static_cast<double>(table) / 8e6 + static_cast<double>(regions + kPageBytes) / 4e6);
  }
  const PathCost& scan = Find(paths, AccessPath::kScanAndPack, PolicyKind::kBelady);
  EXPECT_EQ(scan.read_bytes, table + regions);
  EXPECT_EQ(scan.written_bytes, regions);
  EXPECT_DOUBLE_EQ(scan.seconds,
                   static_cast<double>(table + regions) / 8e6 + static_cast<double>(regions) / 4e6);
  EXPECT_EQ(scan.one_time_seconds, 0);
}

TEST(CostModelByHandTest, FiguresAreOfOneEpochOfSeveral) {
  const Batches once = RandomBatches(3, 2, 500, 100);
  Batches twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  CostModelOptions options{.geometry = Geometry(128, 500), .device = kDevice, .batches_per_epoch = 2};
  const std::vector<PathCost> one = Predict(HandTrace(once), options);
  const std::vector<PathCost> two = Predict(HandTrace(twice), options);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) {
    SCOPED_TRACE(AccessPathName(one[i].path));
    EXPECT_EQ(one[i].read_bytes, two[i].read_bytes);
    EXPECT_EQ(one[i].requests, two[i].requests);
    EXPECT_DOUBLE_EQ(one[i].seconds, two[i].seconds);
  }
}

TEST(CostModelByHandTest, NoPathIsFasterThanTheRowsAreGathered) {
  const HandTrace trace(RandomBatches(4, 4, 500, 100));
  uint64_t accesses = 0;
  for (const auto& batch : trace.batches()) accesses += batch.size();
  CostModelOptions options{.geometry = Geometry(128, 500), .device = kDevice, .batches_per_epoch = 4};
  options.device.gather_bytes_per_second = 1000;
  for (const PathCost& cost : Predict(trace, options)) {
    EXPECT_TRUE(cost.gather_bound);
    EXPECT_DOUBLE_EQ(cost.seconds, static_cast<double>(accesses) * 512 / 1000);
  }
  const auto paths = Predict(trace, options);
  EXPECT_THAT(ChoosePath(paths, 10).why, HasSubstr("gathering"));
}

TEST(CostModelByHandTest, ThePolicyOfTheLayoutIsPricedBesides) {
  const HandTrace trace(RandomBatches(5, 4, 500, 100));
  CostModelOptions options{.geometry = Geometry(128, 500),
                           .device = kDevice,
                           .cache_rows = 50,
                           .batches_per_epoch = 4,
                           .policy = PolicyKind::kFifo};
  const std::vector<PathCost> paths = Predict(trace, options);
  EXPECT_EQ(paths.size(), 10u);
  const PathCost& fifo = Find(paths, AccessPath::kPackedChunks, PolicyKind::kFifo);
  EXPECT_GT(fifo.read_bytes, Find(paths, AccessPath::kPackedChunks, PolicyKind::kBelady).read_bytes);
  options.policy = PolicyKind::kBelady;
  EXPECT_EQ(Predict(trace, options).size(), 9u);
}

TEST(CostModelByHandTest, AModelThatIsStoppedLeavesNothing) {
  const HandTrace trace(RandomBatches(6, 4, 500, 100));
  constexpr int kReports = 16;  // four batches: three policies, and segment caches
  for (int stop_at = 0; stop_at <= kReports; ++stop_at) {
    int calls = 0;
    const auto stopped =
        PredictPaths(trace.backend(), trace.trace(),
                     {.geometry = Geometry(128, 500),
                      .device = kDevice,
                      .cache_rows = 50,
                      .batches_per_epoch = 4,
                      .batches_per_segment = 2,
                      .scratch_path = trace.ScratchPath()},
                     [&](std::string_view, uint64_t, uint64_t) {
                       return calls++ < stop_at ? Status::Ok() : Status(Code::kCancelled, "");
                     });
    EXPECT_EQ(stopped.status().code(), stop_at < kReports ? Code::kCancelled : Code::kOk) << stop_at;
    EXPECT_EQ(trace.StrayFiles(), 0u) << stop_at;
  }
}

TEST(ChoosePathTest, PackingPaysOnlyOverEnoughEpochs) {
  const std::vector<PathCost> paths = {
      {.path = AccessPath::kMergedReads, .policy = PolicyKind::kLru, .read_bytes = 1000, .seconds = 5},
      {.path = AccessPath::kPackedChunks, .policy = PolicyKind::kBelady, .seconds = 1, .one_time_seconds = 8},
      {.path = AccessPath::kPackedChunks, .policy = PolicyKind::kLru, .seconds = 2, .one_time_seconds = 8}};
  EXPECT_EQ(ChoosePath(paths, 1).best, 0u);
  EXPECT_EQ(ChoosePath(paths, 2).best, 0u) << "the simpler of equals";
  const PathChoice choice = ChoosePath(paths, 3);
  EXPECT_EQ(choice.best, 1u);
  EXPECT_THAT(choice.why, HasSubstr("packed chunks with belady: 3.67 s"));
  EXPECT_THAT(choice.why, HasSubstr("merged reads with lru, takes 5.00 s"));
}

// The model against what the planner does.
TEST(CostModelOfLayoutTest, PredictsTheBytesThatTheLayoutReads) {
  const TinyDatabase database(TinyGraph{.nodes = 2000});
  const auto backend = std::make_unique<testing_util::UnsyncedBackend>();
  ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(*backend, database.path()));
  MemoryBudget budget(256 * kMiB);
  uint64_t whole_bytes = 0;
  const auto check = [&](PolicyKind policy, bool segments) {
    SCOPED_TRACE(fmt::format("{}, {}", NameOf(policy), segments ? "segment caches" : "chunks alone"));
    LayoutSpec spec{.road = {.fanouts = {5, 5}, .batch_size = 64}, .epochs = 2, .policy = policy};
    spec.road.cache_bytes = 700 * 512;
    spec.disk_bytes = segments ? whole_bytes * 3 / 4 : 0;
    ASSERT_OK_AND_ASSIGN(const auto record, BuildLayout(*store, budget, spec, false, {}));
    ASSERT_EQ(record.batches_per_segment > 0, segments);
    whole_bytes = record.file_bytes + record.trace_bytes;
    ASSERT_OK_AND_ASSIGN(const auto layout, Layout::Open(*store, "default"));
    ASSERT_OK_AND_ASSIGN(const auto trace, layout->OpenTrace(*store));
    uint64_t block_bytes = 0;
    for (const BatchEntry& batch : layout->directory().batches) {
      block_bytes += RoundUp(batch.block_bytes, kPageBytes);
    }
    ASSERT_OK_AND_ASSIGN(const auto paths,
                         PredictPaths(*backend, *trace,
                                      {.geometry = Geometry(128, 2000),
                                       .device = DeviceOf(*store->manifest()),
                                       .cache_rows = record.cache_rows,
                                       .batches_per_epoch = layout->directory().batches_per_epoch,
                                       .planned_block_bytes = block_bytes,
                                       .policy = policy,
                                       .batches_per_segment = record.batches_per_segment,
                                       .hash_functions = record.hash_functions,
                                       .seed = record.spec.seed,
                                       .scratch_path = database.path() + "/layouts/.explain"},
                                      {}));
    const PathCost& own =
        Find(paths, segments ? AccessPath::kSegmentCaches : AccessPath::kPackedChunks, policy);
    EXPECT_EQ(own.read_bytes, record.row_bytes_read / 2);
    EXPECT_EQ(own.useful_bytes, record.useful_bytes / 2);
    if (!segments) {
      EXPECT_DOUBLE_EQ(own.seconds, record.predicted_seconds);
    }
  };
  for (const PolicyKind policy : {PolicyKind::kBelady, PolicyKind::kFifo}) {
    check(policy, false);
    check(policy, true);
  }
  check(PolicyKind::kStaticFrequency, false);
}

}  // namespace
}  // namespace quarry
