#include "quarry/pipeline/planned_road.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "pipeline/batch_meaning.h"
#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/pipeline/superbatch_road.h"
#include "support/flip_byte.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::DrawsOf;
using testing_util::FlipByte;
using testing_util::LabelledTrainNodes;
using testing_util::Meaning;
using testing_util::OpenRoad;
using testing_util::OtherDraws;
using testing_util::RunEpoch;
using testing_util::SmallOptions;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

LayoutSpec SmallSpec(const LiveRoadOptions& live) {
  return {.road = live.spec.ForOtherPasses(), .threads = 2};
}

class PlannedRoadTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { database_ = std::make_unique<TinyDatabase>(TinyGraph{.nodes = 2000}); }
  static void TearDownTestSuite() { database_.reset(); }
  static const TinyDatabase& database() { return *database_; }
  static std::vector<NodeId> TrainNodes() { return LabelledTrainNodes(database_->graph()); }
  static uint64_t FeatureBytes() { return 2000 * RowBytes(database_->graph().type, database_->graph().dim); }
  static std::string LayoutFolder() { return database_->path() + "/layouts"; }

  // The live epochs that a layout of `spec` must repeat.
  static std::vector<std::vector<Meaning>> Live(OpenRoad& open, uint32_t epochs) {
    std::vector<std::vector<Meaning>> expected;
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      auto meanings = RunEpoch(*open.road, TrainNodes(), 1 + epoch);
      EXPECT_OK(meanings);
      expected.push_back(std::move(meanings).value());
    }
    open.road.reset();
    return expected;
  }

 private:
  static std::unique_ptr<TinyDatabase> database_;
};
std::unique_ptr<TinyDatabase> PlannedRoadTest::database_;

TEST_F(PlannedRoadTest, RepeatsTheLiveEpochsForEveryPolicyAndDiskBudget) {
  OpenRoad open(database().path(), SmallOptions());
  const std::vector<std::vector<Meaning>> expected = Live(open, 2);
  testing_util::SomeOf some(0, 3);
  for (const PolicyKind policy : kAllPolicies) {
    for (const bool small_disk : {false, true}) {
      for (const uint32_t epochs : {1U, 2U}) {
        for (const uint64_t cache_percent : {0, 20, 100}) {
          if (epochs == 2 && (small_disk || cache_percent == 0)) continue;
          if (!some.TakesNext()) continue;
          SCOPED_TRACE(testing::Message()
                       << NameOf(policy) << ", " << epochs << " epochs, cache " << cache_percent << " %, "
                       << (small_disk ? "small disk" : "all disk"));
          LayoutSpec spec = SmallSpec(SmallOptions());
          spec.policy = policy;
          spec.epochs = epochs;
          spec.road.cache_bytes = FeatureBytes() * cache_percent / 100;
          if (small_disk) spec.disk_bytes = FeatureBytes() * 5 / 2;
          ASSERT_OK_AND_ASSIGN(const auto record, BuildLayout(*open.store, *open.budget, spec, false, {}));
          if (small_disk) {
            EXPECT_LE(record.file_bytes + record.trace_bytes, spec.disk_bytes);
          }
          ASSERT_OK_AND_ASSIGN(auto road, PlannedRoad::Open(*open.store, *open.budget, {}));
          uint64_t bytes = 0;
          for (uint32_t pass = 0; pass < 2 * epochs + 1; ++pass) {  // the cycle, again, and its beginning
            StreamStats stats;
            ASSERT_OK_AND_ASSIGN(const auto got, RunEpoch(*road, TrainNodes(), 77, &stats));
            ASSERT_EQ(got, expected[pass % epochs]) << "pass " << pass;
            if (pass >= epochs && pass < 2 * epochs)
              bytes += stats.feature_bytes_read + stats.topology_bytes_read;
          }
          EXPECT_EQ(bytes, record.row_bytes_read) << "a cycle reads what the plan says";
        }
      }
    }
  }
}

TEST_F(PlannedRoadTest, RepeatsTheLiveEpochsHoweverNeighborsAreDrawn) {
  const TinyDatabase weighted(TinyGraph{.nodes = 2000, .weighted = true});
  OpenRoad open(weighted.path(), SmallOptions());
  std::vector<std::vector<Meaning>> seen = {Live(open, 1)[0]};
  std::optional<LayoutSpec> before;
  for (const RoadSpec& draws : OtherDraws()) {
    SCOPED_TRACE(DrawsOf(draws));
    LiveRoadOptions live = SmallOptions();
    live.spec = draws;
    open.Reopen(live);
    ASSERT_OK(open.status);
    const std::vector<std::vector<Meaning>> expected = Live(open, 2);
    for (const std::vector<Meaning>& other : seen) EXPECT_NE(other, expected[0]);
    seen.push_back(expected[0]);
    LayoutSpec spec = SmallSpec(live);
    spec.epochs = 2;
    spec.road.cache_bytes = FeatureBytes() / 5;
    ASSERT_OK_AND_ASSIGN(const auto record, BuildLayout(*open.store, *open.budget, spec, false, {}));
    EXPECT_TRUE(IsLayoutOf(*open.store->manifest(), record, spec));
    LayoutSpec other = spec;
    other.road = SmallSpec(SmallOptions()).road;
    other.road.cache_bytes = spec.road.cache_bytes;
    EXPECT_FALSE(IsLayoutOf(*open.store->manifest(), record, other));
    if (before) {
      EXPECT_FALSE(IsLayoutOf(*open.store->manifest(), record, *before));
    }
    before = spec;
    EXPECT_THAT(PlannedRoad::Open(*open.store, *open.budget, {.live = SmallOptions()}),
                IsStatus(Code::kUsage));
    ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(*open.store, *open.budget, {.live = live}));
    for (uint32_t pass = 0; pass < 4; ++pass) {
      ASSERT_OK_AND_ASSIGN(const auto got, RunEpoch(*road, TrainNodes(), 77));
      ASSERT_EQ(got, expected[pass % 2]) << "pass " << pass;
    }
    SuperbatchRoadOptions fresh{.layout = SmallSpec(live), .live = live};
    ASSERT_OK_AND_ASSIGN(const auto superbatch, SuperbatchRoad::Open(*open.store, *open.budget, fresh));
    for (uint32_t pass = 1; pass <= 2; ++pass) {
      ASSERT_OK_AND_ASSIGN(const auto got, RunEpoch(*superbatch, TrainNodes(), pass));
      ASSERT_EQ(got, expected[pass - 1]) << "superbatches of pass " << pass;
    }
  }
}

TEST_F(PlannedRoadTest, BatchesSayWhichEdgesTheyHaveWhereTheyAreAskedTo) {
  OpenRoad open(database().path(), SmallOptions());
  for (const bool replace : {false, true}) {
    SCOPED_TRACE(testing::Message() << "replace " << replace);
    LiveRoadOptions live = SmallOptions(), without = SmallOptions();
    live.spec.replace = without.spec.replace = replace;
    live.spec.edge_ids = true;
    open.Reopen(live);
    ASSERT_OK(open.status);
    std::vector<std::vector<Meaning>> expected = Live(open, 2);
    for (const std::vector<Meaning>& epoch : expected) {
      for (const Meaning& batch : epoch) ASSERT_EQ(batch.edge_ids.size(), batch.edges.size());
    }
    LayoutSpec spec = SmallSpec(live);
    spec.epochs = 2;
    spec.road.cache_bytes = FeatureBytes() / 5;
    for (const bool small_disk : {false, true}) {
      if (small_disk) spec.disk_bytes = FeatureBytes() * 3;
      ASSERT_OK_AND_ASSIGN(const auto record, BuildLayout(*open.store, *open.budget, spec, false, {}));
      EXPECT_TRUE(IsLayoutOf(*open.store->manifest(), record, spec));
      EXPECT_TRUE(open.store->manifest()->FindLayout(spec.name)->spec.edge_ids);
      // Whoever does not ask for them has them all the same.
      for (const LiveRoadOptions& other : {live, without}) {
        ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(*open.store, *open.budget, {.live = other}));
        for (uint32_t pass = 0; pass < 4; ++pass) {
          ASSERT_OK_AND_ASSIGN(const auto got, RunEpoch(*road, TrainNodes(), 77));
          ASSERT_EQ(got, expected[pass % 2]) << "pass " << pass;
        }
      }
    }
    SuperbatchRoadOptions fresh{.layout = SmallSpec(live), .live = live};
    ASSERT_OK_AND_ASSIGN(const auto superbatch, SuperbatchRoad::Open(*open.store, *open.budget, fresh));
    for (uint32_t pass = 1; pass <= 2; ++pass) {
      ASSERT_OK_AND_ASSIGN(const auto got, RunEpoch(*superbatch, TrainNodes(), pass));
      ASSERT_EQ(got, expected[pass - 1]) << "superbatches of pass " << pass;
    }
    LayoutSpec plain = SmallSpec(without);
    ASSERT_OK_AND_ASSIGN(const auto record, BuildLayout(*open.store, *open.budget, plain, false, {}));
    LayoutSpec asked = plain;
    asked.road.edge_ids = true;
    EXPECT_FALSE(IsLayoutOf(*open.store->manifest(), record, asked));
    EXPECT_THAT(PlannedRoad::Open(*open.store, *open.budget, {.live = live}),
                IsStatus(Code::kUnsupported, HasSubstr("keeps no edge ids")));
  }
}

TEST_F(PlannedRoadTest, RowsThatAreNotPackedComeFromTheTable) {
  OpenRoad open(database().path(), SmallOptions());
  const std::vector<std::vector<Meaning>> expected = Live(open, 1);
  for (const PolicyKind policy : kAllPolicies) {
    SCOPED_TRACE(NameOf(policy));
    LayoutSpec spec = SmallSpec(SmallOptions());
    spec.policy = policy;
    spec.road.cache_bytes = FeatureBytes() / 5;
    spec.packing = Packing::kNever;
    BuildReport report;
    ASSERT_OK_AND_ASSIGN(const auto record, BuildPassingLayout(*open.store, *open.budget, spec, {}, &report));
    EXPECT_FALSE(report.packed);
    {
      ASSERT_OK_AND_ASSIGN(auto road, PlannedRoad::Open(*open.store, *open.budget, {.record = record}));
      for (int pass = 0; pass < 3; ++pass) {
        StreamStats stats;
        ASSERT_OK_AND_ASSIGN(const auto got, RunEpoch(*road, TrainNodes(), 77, &stats));
        ASSERT_EQ(got, expected[0]) << "pass " << pass;
        uint64_t misses = 0;
        for (const BatchEntry& batch : road->layout().directory().batches) misses += batch.misses;
        EXPECT_EQ(stats.bytes_useful, misses * road->layout().directory().row_bytes);
        EXPECT_GE(stats.feature_bytes_read, stats.bytes_useful);
      }
    }
    std::filesystem::remove_all(database().path() + "/" + record.directory);
  }
  EXPECT_EQ(open.budget->used_bytes(), 0);
}

// The choice follows the rates of the device, and the room on the disk.
TEST_F(PlannedRoadTest, PacksWhatIsCheaperPacked) {
  OpenRoad open(database().path(), SmallOptions());
  open.road.reset();
  Manifest manifest = *open.store->manifest();
  const auto build = [&](double reads, double writes, uint64_t disk_bytes) {
    manifest.device = DeviceRecord{.random_reads_per_second = reads,
                                   .sequential_bytes_per_second = 1e9,
                                   .write_bytes_per_second = writes,
                                   .gather_bytes_per_second = 1e10,
                                   .measured_utc = "2020-01-01T00:00:00Z"};
    EXPECT_OK(open.store->UpdateManifest([&](Manifest& m) { return m = manifest, Status::Ok(); }));
    LayoutSpec spec = SmallSpec(SmallOptions());
    spec.packing = Packing::kCheaper;
    spec.disk_bytes = disk_bytes;
    BuildReport report;
    const auto record = BuildPassingLayout(*open.store, *open.budget, spec, {}, &report);
    EXPECT_OK(record);
    EXPECT_GT(report.merged_seconds, 0);
    EXPECT_GT(report.packed_seconds, 0);
    if (record.ok()) std::filesystem::remove_all(database().path() + "/" + record->directory);
    return report;
  };
  const BuildReport slow_requests = build(100, 1e9, 0);
  EXPECT_TRUE(slow_requests.packed);
  EXPECT_LE(slow_requests.packed_seconds, slow_requests.merged_seconds);
  const BuildReport slow_writes = build(1e6, 1e5, 0);
  EXPECT_FALSE(slow_writes.packed);
  EXPECT_GT(slow_writes.packed_seconds, slow_writes.merged_seconds);
  EXPECT_FALSE(build(100, 1e9, FeatureBytes() / 2).packed) << "chunks have no room";
  manifest.device.reset();
  EXPECT_OK(open.store->UpdateManifest([&](Manifest& m) { return m = manifest, Status::Ok(); }));
}

// What reads a pass to its end may ask for its figures at once, whatever the threads behind it are still at.
TEST_F(PlannedRoadTest, FiguresAreWholeOnceThePassHasEnded) {
  OpenRoad open(database().path(), SmallOptions());
  open.road.reset();
  const LayoutSpec spec = SmallSpec(SmallOptions());
  ASSERT_OK(BuildLayout(*open.store, *open.budget, spec, false, {}));
  ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(*open.store, *open.budget, {}));
  for (uint64_t pass = 1; pass <= 40; ++pass) {
    StreamStats stats;
    ASSERT_OK(RunEpoch(*road, TrainNodes(), pass, &stats));
    ASSERT_GT(stats.sample_seconds, 0) << "pass " << pass;
    ASSERT_GT(stats.extract_seconds, 0) << "pass " << pass;
  }
}

TEST_F(PlannedRoadTest, BeladyReadsLeast) {
  OpenRoad open(database().path(), SmallOptions());
  open.road.reset();
  std::map<PolicyKind, uint64_t> useful;
  for (const PolicyKind policy : kAllPolicies) {
    LayoutSpec spec = SmallSpec(SmallOptions());
    spec.policy = policy;
    spec.road.cache_bytes = FeatureBytes() / 10;
    ASSERT_OK_AND_ASSIGN(const auto record, BuildLayout(*open.store, *open.budget, spec, false, {}));
    useful[policy] = record.useful_bytes;
  }
  for (const auto& [policy, bytes] : useful) EXPECT_LE(useful[PolicyKind::kBelady], bytes) << NameOf(policy);
  EXPECT_LT(useful[PolicyKind::kBelady], useful[PolicyKind::kNone] * 95 / 100);
}

TEST_F(PlannedRoadTest, ServesEveryRowLayoutAndPassesOverOtherSeedsLive) {
  const std::vector<TinyGraph> graphs = {{.nodes = 3000, .dim = 3},
                                         {.dim = 700, .type = ElementType::kFloat16},
                                         {.dim = 33, .type = ElementType::kBfloat16},
                                         {.nodes = 300, .dim = 2000},
                                         {.dim = 150, .type = ElementType::kInt8}};
  for (const TinyGraph& graph : graphs) {
    SCOPED_TRACE(testing::Message() << graph.dim << " " << ElementTypeName(graph.type));
    const TinyDatabase tiny(graph);
    OpenRoad open(tiny.path(), SmallOptions());
    const std::vector<NodeId> seeds = LabelledTrainNodes(graph);
    const std::vector<NodeId> others = graph.SplitNodes(Split::kValid);
    const auto expected = RunEpoch(*open.road, seeds, 1);
    const auto expected_others = RunEpoch(*open.road, others, 9);
    ASSERT_OK(expected);
    ASSERT_OK(expected_others);
    open.road.reset();
    const uint64_t feature_bytes = graph.nodes * RowBytes(graph.type, graph.dim);
    uint64_t disk_bytes = 0;
    for (const bool small_disk : {false, true}) {
      LayoutSpec spec = SmallSpec(SmallOptions());
      spec.road.cache_bytes = feature_bytes / 10;
      spec.disk_bytes = disk_bytes;
      const auto record = BuildLayout(*open.store, *open.budget, spec, false, {});
      // Rows this small take less than the blocks, and there is little to save.
      if (small_disk && graph.dim == 3 && record.status().code() == Code::kNoSpace) continue;
      ASSERT_OK(record);
      EXPECT_EQ(record->batches_per_segment > 0, small_disk);
      disk_bytes = (record->file_bytes + record->trace_bytes) * 9 / 10;
      ASSERT_OK_AND_ASSIGN(auto road, PlannedRoad::Open(*open.store, *open.budget, {.live = SmallOptions()}));
      for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(*RunEpoch(*road, seeds, 1), *expected);
        EXPECT_EQ(*RunEpoch(*road, others, 9), *expected_others);
      }
    }
  }
}

TEST_F(PlannedRoadTest, APassThatWasGivenUpBeginsTheCycleAnew) {
  OpenRoad open(database().path(), SmallOptions());
  const auto expected = Live(open, 1);
  LayoutSpec spec = SmallSpec(SmallOptions());
  spec.road.cache_bytes = FeatureBytes() / 5;
  ASSERT_OK(BuildLayout(*open.store, *open.budget, spec, false, {}));
  ASSERT_OK_AND_ASSIGN(auto road, PlannedRoad::Open(*open.store, *open.budget, {}));
  for (size_t batches = 0; batches <= expected[0].size(); ++batches) {
    {
      ASSERT_OK_AND_ASSIGN(auto stream, road->StartPass({.seeds = TrainNodes()}));
      for (size_t i = 0; i < batches; ++i) ASSERT_OK(stream->Next());
    }
    ASSERT_EQ(*RunEpoch(*road, TrainNodes(), 1), expected[0]) << "after " << batches << " batches";
  }
}

TEST_F(PlannedRoadTest, EveryDamagedPageIsFound) {
  OpenRoad open(database().path(), SmallOptions());
  open.road.reset();
  LayoutSpec spec = SmallSpec(SmallOptions());
  spec.road.cache_bytes = FeatureBytes() / 5;
  spec.disk_bytes = FeatureBytes() * 5 / 2;
  ASSERT_OK_AND_ASSIGN(const auto record, BuildLayout(*open.store, *open.budget, spec, false, {}));
  ASSERT_GT(record.batches_per_segment, 0);
  const std::string path = database().path() + "/" + record.directory + "/layout.qlc";
  uint64_t silent = 0;
  for (uint64_t offset = 4096 + 1234; offset + 4096 < record.file_bytes; offset += 64 * 4096) {
    SCOPED_TRACE(testing::Message() << "damage at " << offset);
    FlipByte(path, offset);
    auto road = PlannedRoad::Open(*open.store, *open.budget, {});
    Status status = road.status();
    if (road.ok()) status = RunEpoch(**road, TrainNodes(), 1).status();
    FlipByte(path, offset);
    if (status.ok()) {  // a page of a segment cache that no batch reads
      ++silent;
      continue;
    }
    EXPECT_THAT(status, IsStatus(Code::kCorruption, HasSubstr("layout.qlc")));
  }
  EXPECT_LE(silent, 1);
}

TEST_F(PlannedRoadTest, AnInterruptedBuildLeavesTheDatabaseAsItWasAndResumes) {
  OpenRoad open(database().path(), SmallOptions());
  open.road.reset();
  LayoutSpec spec = SmallSpec(SmallOptions());
  spec.name = "interrupted";
  spec.road.cache_bytes = FeatureBytes() / 5;
  std::set<std::string> phases;
  for (const std::string_view stop_in : {"sampling", "planning", "encoding", "packing"}) {
    const auto stopped = BuildLayout(*open.store, *open.budget, spec, false,
                                     [&](std::string_view phase, uint64_t, uint64_t) -> Status {
                                       phases.emplace(phase);
                                       if (phase == stop_in) return Status(Code::kCancelled, "stop");
                                       return Status::Ok();
                                     });
    ASSERT_THAT(stopped, IsStatus(Code::kCancelled)) << stop_in;
    EXPECT_EQ(open.store->manifest()->FindLayout("interrupted"), nullptr);
    EXPECT_EQ(open.budget->used_bytes(), 0);
  }
  BuildReport report;
  ASSERT_OK_AND_ASSIGN(const auto resumed, BuildLayout(*open.store, *open.budget, spec, true, {}, &report));
  EXPECT_TRUE(report.resumed);
  spec.road.seed += 1;  // another trace: nothing to take over
  std::filesystem::rename(database().path() + "/" + resumed.directory, LayoutFolder() + "/kept");
  std::filesystem::rename(LayoutFolder() + "/kept", database().path() + "/" + resumed.directory);
  ASSERT_OK_AND_ASSIGN(const auto other, BuildLayout(*open.store, *open.budget, spec, true, {}, &report));
  EXPECT_FALSE(report.resumed);
  EXPECT_FALSE(std::filesystem::exists(database().path() + "/" + resumed.directory)) << "replaced";
  ASSERT_OK(DropLayout(*open.store, "interrupted"));
  EXPECT_FALSE(std::filesystem::exists(database().path() + "/" + other.directory));
  EXPECT_THAT(DropLayout(*open.store, "interrupted"), IsStatus(Code::kNotFound));
}

TEST_F(PlannedRoadTest, SuperbatchesAreTheLiveEpochsAndLeaveNothingBehind) {
  OpenRoad open(database().path(), SmallOptions());
  const auto expected = Live(open, 3);
  LayoutSpec spec = SmallSpec(SmallOptions());
  spec.road.cache_bytes = FeatureBytes() / 5;
  for (const Packing packing : {Packing::kAlways, Packing::kNever}) {
    SCOPED_TRACE(static_cast<int>(packing));
    spec.packing = packing;
    ASSERT_OK_AND_ASSIGN(
        auto road, SuperbatchRoad::Open(*open.store, *open.budget, {.layout = spec, .live = SmallOptions()}));
    for (const uint64_t pass : {1, 2, 3, 1}) {  // the last one is not what was built ahead
      ASSERT_OK_AND_ASSIGN(const auto got, RunEpoch(*road, TrainNodes(), pass));
      ASSERT_EQ(got, expected[pass - 1]) << "pass " << pass;
    }
    EXPECT_EQ(road->packed_superbatches(), packing == Packing::kAlways ? 4 : 0);
    EXPECT_EQ(road->merged_superbatches(), packing == Packing::kNever ? 4 : 0);
  }
  EXPECT_EQ(open.budget->used_bytes(), 0);
  for (const auto& entry : std::filesystem::directory_iterator(LayoutFolder())) {
    EXPECT_EQ(entry.path().string().find("superbatch"), std::string::npos) << entry.path();
  }
}

// An epoch in superbatches is the epoch, whatever their size, the last one short.
TEST_F(PlannedRoadTest, SuperbatchesThatCutAnEpochAreTheLiveEpoch) {
  OpenRoad open(database().path(), SmallOptions());
  const auto expected = Live(open, 2);
  const uint64_t batches = expected.front().size();
  ASSERT_GT(batches, 4U);
  LayoutSpec spec = SmallSpec(SmallOptions());
  spec.road.cache_bytes = FeatureBytes() / 5;
  testing_util::SomeOf some;
  for (const Packing packing : {Packing::kAlways, Packing::kNever}) {
    const std::vector<uint64_t> sizes = packing == Packing::kAlways
                                            ? std::vector<uint64_t>{1, batches - 1}
                                            : std::vector<uint64_t>{3, batches, batches + 5};
    for (const uint64_t size : sizes) {
      if (!some.TakesNext()) continue;
      SCOPED_TRACE(testing::Message() << static_cast<int>(packing) << " " << size << " of " << batches);
      spec.packing = packing;
      spec.batches = size;
      ASSERT_OK_AND_ASSIGN(auto road,
                           SuperbatchRoad::Open(*open.store, *open.budget,
                                                {.layout = spec, .live = SmallOptions(), .last_pass = 2}));
      for (const uint64_t pass : {1, 2, 1}) {
        ASSERT_OK_AND_ASSIGN(const auto got, RunEpoch(*road, TrainNodes(), pass));
        ASSERT_EQ(got, expected[pass - 1]) << "pass " << pass;
      }
      const uint64_t built = 3 * CeilDiv(batches, std::min(size, batches));
      EXPECT_EQ(road->packed_superbatches() + road->merged_superbatches(), built);
      // A pass that is given up amid a superbatch: the next begins anew.
      {
        ASSERT_OK_AND_ASSIGN(const auto stream, road->StartPass({.seeds = TrainNodes(), .pass = 2}));
        EXPECT_EQ(stream->batch_count(), batches);
        for (uint64_t i = 0; i < std::min<uint64_t>(2, size); ++i) {
          ASSERT_OK_AND_ASSIGN(const auto batch, stream->Next());
          EXPECT_EQ(batch->index(), i);
        }
      }
      ASSERT_OK_AND_ASSIGN(const auto again, RunEpoch(*road, TrainNodes(), 2));
      EXPECT_EQ(again, expected[1]);
    }
  }
  spec.batches = 2;
  EXPECT_THAT(BuildLayout(*open.store, *open.budget, spec, false, {}), IsStatus(Code::kUsage));
  EXPECT_EQ(open.budget->used_bytes(), 0);
}

TEST_F(PlannedRoadTest, RefusesWhatCannotBe) {
  OpenRoad open(database().path(), SmallOptions());
  open.road.reset();
  LayoutSpec spec = SmallSpec(SmallOptions());
  spec.disk_bytes = FeatureBytes() / 10;
  EXPECT_THAT(BuildLayout(*open.store, *open.budget, spec, false, {}), IsStatus(Code::kNoSpace));
  spec = SmallSpec(SmallOptions());
  spec.name = "../escape";
  EXPECT_THAT(BuildLayout(*open.store, *open.budget, spec, false, {}), IsStatus(Code::kUsage));
  EXPECT_THAT(PlannedRoad::Open(*open.store, *open.budget, {.layout = "absent"}), IsStatus(Code::kNotFound));
  spec = SmallSpec(SmallOptions());
  ASSERT_OK(BuildLayout(*open.store, *open.budget, spec, false, {}));
  MemoryBudget small(64 * kKiB);
  EXPECT_THAT(PlannedRoad::Open(*open.store, small, {}), IsStatus(Code::kOutOfBudget));
  LiveRoadOptions other = SmallOptions();
  other.spec.fanouts = {2, 2};
  const auto refused = PlannedRoad::Open(*open.store, *open.budget, {.live = other});
  EXPECT_THAT(refused, IsStatus(Code::kUsage, HasSubstr("planned with fanouts 4,3, not 2,2;")));
  const auto difference = [&](auto change) {
    LiveRoadOptions live = SmallOptions();
    change(live.spec);
    const auto opened = PlannedRoad::Open(*open.store, *open.budget, {.live = live});
    EXPECT_THAT(opened, IsStatus(Code::kUsage));
    return std::string(opened.status().message());
  };
  EXPECT_THAT(difference([](RoadSpec& live) { live.sampler = SamplerKind::kLabor; }),
              HasSubstr("with sampler neighbor, not labor;"));
  EXPECT_THAT(difference([](RoadSpec& live) { live.batch_dependency = 8; }),
              HasSubstr("with batch dependency 0, not 8;"));
  EXPECT_THAT(difference([](RoadSpec& live) { live.weighted = true; }),
              HasSubstr("with weighted false, not true;"));
  EXPECT_THAT(difference([](RoadSpec& live) { live.replace = true; }),
              HasSubstr("with replace false, not true;"));
  EXPECT_THAT(difference([](RoadSpec& live) { live.direction = Direction::kOut; }),
              HasSubstr("with direction in, not out;"));
  ASSERT_OK_AND_ASSIGN(auto road, PlannedRoad::Open(*open.store, *open.budget, {}));
  EXPECT_THAT(road->StartPass({.seeds = {1, 2, 3}}), IsStatus(Code::kUnsupported));
}

}  // namespace
}  // namespace quarry
