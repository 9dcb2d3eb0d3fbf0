// RebuildLayout: whichever way it goes, the layout then holds the newest rows, and nothing is newer than it.
// Here and not with the tests of layouts because the planned road reads what was patched.
#include "quarry/layout/rebuild.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "pipeline/tiny_database.h"
#include "quarry/base/progress.h"
#include "quarry/base/units.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/storage/compaction.h"
#include "quarry/verify/verify.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::FlipByte;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

using Bytes = std::vector<std::byte>;

constexpr uint64_t kPatchGapBytes = 256 * kKiB;

// A database whose newest rows are known, and what is done to it.
class World {
 public:
  explicit World(const TinyGraph& graph) : database_(graph, MemoryFolder()) {
    for (NodeId node = 0; node < graph.nodes; ++node) rows_.push_back(graph.Row(node));
    Reopen();
  }
  void Reopen() {
    store_.reset();
    auto store = Store::Open(backend_, database_.path());
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }
  Store& store() { return *store_; }
  MemoryBudget& budget() { return budget_; }
  const std::string& path() const { return database_.path(); }
  std::string Path(const std::string& name) const { return database_.path() + "/" + name; }
  const TinyGraph& graph() const { return database_.graph(); }
  LayoutRecord Record() const { return *store_->manifest()->FindLayout("default"); }

  void Write(const std::vector<NodeId>& nodes, Rng& rng) {
    WriteBatch batch;
    for (const NodeId node : nodes) {
      if (rng.Below(10) == 0) {
        batch.Delete("feature", node);
        std::ranges::fill(rows_[node], std::byte{0});
        continue;
      }
      for (std::byte& byte : rows_[node]) byte = static_cast<std::byte>(rng.Below(256));
      batch.Put("feature", node, rows_[node]);
    }
    const auto timestamp = store_->Write(batch);
    ASSERT_OK(timestamp);
  }
  void Compact(const std::string& table = "feature", const ProgressFunction& progress = {}) {
    MemoryBudget budget(kGiB);
    const auto report = CompactTable(*store_, budget, table, false, progress);
    ASSERT_OK(report);
  }
  LayoutRecord Build(const LayoutSpec& spec) {
    const auto record = BuildLayout(*store_, budget_, spec, false, {});
    EXPECT_OK(record);
    return record.ok() ? *record : LayoutRecord();
  }
  // What a build took is a matter of the machine; whether to build is not to be one here.
  void SetBuildSeconds(double seconds) {
    ChangeRecord([&](LayoutRecord& layout) { layout.plan_seconds = seconds; });
  }
  void ChangeRecord(const std::function<void(LayoutRecord&)>& change) {
    const Status status = store_->UpdateManifest([&](Manifest& manifest) {
      change(manifest.layouts[0]);
      return Status::Ok();
    });
    ASSERT_OK(status);
  }

  Result<LayoutRecord> TryRebuild(const RebuildOptions& options = {}, const ProgressFunction& progress = {}) {
    report_ = RebuildReport();
    auto record = RebuildLayout(*store_, budget_, "default", options, progress, &report_);
    EXPECT_EQ(budget_.used_bytes(), 0u);
    return record;
  }
  void Rebuild(const RebuildOptions& options = {}) {
    const auto record = TryRebuild(options);
    ASSERT_OK(record);
    if (options.dry_run) return;
    EXPECT_EQ(EncodeManifest({.layouts = {*record}}), EncodeManifest({.layouts = {Record()}}));
    EXPECT_EQ(report_.bytes_written, report_.path == RebuildPath::kRecord  ? 0
                                     : report_.path == RebuildPath::kBuild ? record->plan_bytes_written
                                                                           : record->file_bytes);
    ExpectFresh();
  }
  const RebuildReport& report() const { return report_; }

  // The layout is of now: there is nothing to be read beside it.
  void ExpectFresh() {
    const LayoutRecord record = Record();
    EXPECT_TRUE(IsFresh(*store_->manifest(), record));
    const auto snapshot = store_->TakeSnapshot();
    ASSERT_OK(snapshot);
    EXPECT_EQ(record.timestamp, (*snapshot)->timestamp);
    const auto newer = store_->OpenOverlay(record.spec.feature_table, *snapshot,
                                           TableVersion{record.table_generation, record.timestamp});
    ASSERT_OK(newer);
    EXPECT_TRUE((*newer)->empty());
  }

  // What all epochs of the layout give; an error where a stream ends with one.
  Status Serve() {
    MemoryBudget budget(kGiB);
    QUARRY_TRY(const auto road, PlannedRoad::Open(*store_, budget, {}));
    for (uint32_t epoch = 0; epoch < Record().epochs; ++epoch) {
      QUARRY_TRY(const auto stream, road->StartPass({.seeds = road->TrainNodes(), .ordered = true}));
      QUARRY_RETURN_IF_ERROR(CheckPass(*stream));
    }
    return Status::Ok();
  }
  void ExpectServed() {
    const Status status = Serve();
    ASSERT_OK(status);
  }
  std::string Faults() {
    const auto report = VerifyStore(*store_, {});
    EXPECT_OK(report);
    std::string text;
    for (const Status& fault : report->faults) text += std::string(fault.message()) + "\n";
    return text;
  }
  std::set<std::string> Names(const std::string& folder) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(Path(folder))) names.insert(entry.path().filename());
    return names;
  }

 private:
  Status CheckPass(BatchStream& stream) {
    for (;;) {
      QUARRY_TRY(const std::unique_ptr<Batch> batch, stream.Next());
      if (batch == nullptr) return Status::Ok();
      const BatchView& view = batch->view();
      for (size_t v = 0; v < view.nodes.size(); ++v) {
        const Bytes& expected = rows_[view.nodes[v]];
        EXPECT_EQ(std::memcmp(view.features.Row(v), expected.data(), expected.size()), 0)
            << "node " << view.nodes[v] << " in batch " << view.index;
        if (testing::Test::HasFailure()) return Status::Ok();
      }
    }
  }

  // Most of the time would go into fsync.
  static std::string MemoryFolder() {
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir();
  }
  const std::unique_ptr<IoBackend> real_ = MakeDefaultBackend();
  IoBackend& backend_ = *real_;
  const TinyDatabase database_;
  MemoryBudget budget_{kGiB};
  std::unique_ptr<Store> store_;
  std::vector<Bytes> rows_;
  RebuildReport report_;
};

// About 5 MiB of regions: 20 pieces.
const TinyGraph kGraph{.nodes = 4000};

LayoutSpec Spec() {
  return {.road = {.fanouts = {3, 2}, .batch_size = 96, .cache_bytes = 500 * 512, .seed = 5}, .threads = 2};
}

std::vector<NodeId> Draw(uint64_t count, uint64_t nodes, Rng& rng) {
  std::set<NodeId> drawn;
  while (drawn.size() < count) drawn.insert(static_cast<NodeId>(rng.Below(nodes)));
  return {drawn.begin(), drawn.end()};
}

TEST(RebuildTest, WhateverWasTouchedTheLayoutServesTheNewestRowsAndNothingIsNewer) {
  std::set<RebuildPath> paths;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    // Rows with a checksum of their own, and small ones that share a page and lie across pages in the layout.
    World world({.nodes = 700, .dim = seed % 2 == 0 ? 128U : 75U});
    LayoutSpec spec = Spec();
    spec.road.batch_size = 32;
    spec.epochs = 1 + seed % 2;
    spec.policy = kAllPolicies[rng.Below(std::size(kAllPolicies))];
    spec.road.cache_bytes = rng.Below(350) * 512;
    if (seed % 3 != 0) spec.disk_bytes = 700 * 512 * 4;
    world.Build(spec);
    if (seed % 3 == 1) {
      world.ChangeRecord([](LayoutRecord& layout) { layout.disk_bytes_max *= 100; });  // room for patches
    }
    world.SetBuildSeconds(1000);
    for (int step = 0; step < 10; ++step) {
      SCOPED_TRACE(testing::Message() << "step " << step);
      const uint64_t what = rng.Below(8);
      if (what < 4) {
        const uint64_t nodes = rng.Below(2) == 0 ? 20 : 700;  // some are in every cache
        world.Write(Draw(1 + rng.Below(nodes / 10), nodes, rng), rng);
      } else if (what == 4) {
        world.Compact();
      } else if (what == 5) {
        world.Reopen();
      } else {
        world.Rebuild();
        paths.insert(world.report().path);
        EXPECT_EQ(world.Faults(), "");
      }
      world.ExpectServed();
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_TRUE(paths.contains(RebuildPath::kRecord));
  EXPECT_TRUE(paths.contains(RebuildPath::kPatch));
  EXPECT_TRUE(paths.contains(RebuildPath::kCopy));
}

TEST(RebuildTest, WhatIsWrittenIsInProportionToWhatChanged) {
  World world(kGraph);
  const LayoutRecord built = world.Build(Spec());
  world.SetBuildSeconds(1000);
  Rng rng(1);
  world.Rebuild();
  EXPECT_EQ(world.report().path, RebuildPath::kRecord);
  EXPECT_EQ(world.Record().directory, built.directory) << "nothing has changed";

  world.Write({kGraph.SplitNodes(Split::kTrain)[7]}, rng);
  world.Rebuild();
  ASSERT_EQ(world.report().path, RebuildPath::kPatch);
  EXPECT_EQ(world.report().rows_changed, 1u);
  EXPECT_GE(world.report().places, 1u);
  EXPECT_LE(world.report().bytes_written,
            world.report().places * (2 * kPageBytes + kPatchGapBytes) + 128 * kKiB);
  EXPECT_LE(world.report().bytes_written, world.report().patch_bytes) << "as was predicted";
  EXPECT_LT(world.report().bytes_written, built.file_bytes / 4);
  const LayoutRecord patched = world.Record();
  EXPECT_EQ(patched.bases, (std::vector<LayoutBase>{{built.generation, built.file_bytes}}));
  EXPECT_EQ(patched.total_bytes(), patched.file_bytes + built.file_bytes + built.trace_bytes);
  EXPECT_EQ(patched.plan_seconds, 1000) << "the plan is the same";
  EXPECT_EQ(world.Names(patched.directory), (std::set<std::string>{"layout.qlc", "base-1.qlc", "trace.qlt"}));
  EXPECT_EQ(world.Names("layouts").size(), 1u);

  world.Write(Draw(2000, kGraph.nodes, rng), rng);
  world.Rebuild();
  EXPECT_GT(world.report().bytes_written, built.file_bytes * 9 / 10) << "half of the rows";
  EXPECT_EQ(world.Record().bases.size(), 0u) << "nothing of the old files is left";
  world.ExpectServed();
  EXPECT_EQ(world.Faults(), "");
}

// The regions are written by 4 MiB, and most rows of 300 bytes at a page's end lie across it.
TEST(RebuildTest, RowsAcrossTheEndOfWhatIsWrittenAtOnceAreWhole) {
  World world({.nodes = 4000, .dim = 75});
  LayoutSpec spec = Spec();
  spec.epochs = 4;
  ASSERT_GT(world.Build(spec).file_bytes, 5 * kMiB);
  world.SetBuildSeconds(1000);
  Rng rng(15);
  world.Write(Draw(4000, 4000, rng), rng);
  world.Rebuild();
  EXPECT_NE(world.report().path, RebuildPath::kBuild);
  world.ExpectServed();
}

TEST(RebuildTest, APatchOverPatchesKeepsTheFilesThatItNeedsAndIsCopiedBeforeTheyAreTooMany) {
  World world(kGraph);
  world.Build(Spec());
  world.SetBuildSeconds(1000);
  Rng rng(2);
  size_t most = 0;
  bool copied = false;
  for (int round = 0; round < 40 && !copied; ++round) {
    SCOPED_TRACE(round);
    world.Write(Draw(1, kGraph.nodes, rng), rng);
    world.Rebuild();
    ASSERT_LE(world.Record().bases.size(), 16u);
    most = std::max(most, world.Record().bases.size());
    copied = world.report().path == RebuildPath::kCopy;
    if (round == 1 || copied) world.ExpectServed();
    if (round == 1) {
      EXPECT_EQ(world.Faults(), "");
    }
  }
  EXPECT_TRUE(copied);
  EXPECT_GT(most, 2u);
  EXPECT_EQ(world.Record().bases.size(), 0u);
  EXPECT_EQ(world.Names(world.Record().directory), (std::set<std::string>{"layout.qlc", "trace.qlt"}));
  EXPECT_THAT(world.report().why, HasSubstr("patched, it would take"));
}

TEST(RebuildTest, TheDiskBudgetIsKept) {
  World world(kGraph);
  LayoutSpec spec = Spec();
  spec.disk_bytes = world.Build(spec).total_bytes() * 9 / 10;
  const LayoutRecord built = world.Build(spec);
  ASSERT_GT(built.batches_per_segment, 0u);
  EXPECT_EQ(built.disk_bytes_max, spec.disk_bytes);
  world.ChangeRecord([](LayoutRecord& layout) { layout.disk_bytes_max = layout.total_bytes() + 100 * kKiB; });
  world.SetBuildSeconds(1000);
  Rng rng(3);
  world.Write(Draw(5, kGraph.nodes, rng), rng);
  world.Rebuild();
  EXPECT_EQ(world.report().path, RebuildPath::kCopy);
  EXPECT_LE(world.Record().total_bytes(), world.Record().disk_bytes_max);
  EXPECT_EQ(world.Record().file_bytes, built.file_bytes);
  world.ExpectServed();
  world.ChangeRecord([](LayoutRecord& layout) { layout.disk_bytes_max *= 100; });
  for (int round = 0; round < 6; ++round) {  // now reads of segment caches fall into parts
    world.Write(Draw(2, kGraph.nodes, rng), rng);
    world.Rebuild();
    EXPECT_EQ(world.report().path, RebuildPath::kPatch);
    world.ExpectServed();
  }
  world.ChangeRecord([](LayoutRecord& layout) { layout.disk_bytes_max = 0; });  // as older databases have it
  world.Write(Draw(5, kGraph.nodes, rng), rng);
  world.Rebuild();
  EXPECT_EQ(world.report().path, RebuildPath::kCopy) << "it had a budget: what it takes";
}

TEST(RebuildTest, TheCheaperWayIsTaken) {
  World world(kGraph);
  world.Build(Spec());
  world.SetBuildSeconds(1e-9);
  Rng rng(4);
  world.Write(Draw(5, kGraph.nodes, rng), rng);
  world.Rebuild({.dry_run = true});
  EXPECT_EQ(world.report().path, RebuildPath::kBuild);
  EXPECT_GT(world.report().patch_seconds, world.report().build_seconds);
  EXPECT_EQ(world.Record().generation, 1u) << "nothing was done";
  EXPECT_FALSE(fs::exists(world.Path("layouts/default.building")));
  world.Rebuild();
  EXPECT_EQ(world.report().path, RebuildPath::kBuild);
  EXPECT_EQ(world.Record().generation, 2u);
  world.ExpectServed();
  world.SetBuildSeconds(1000);
  world.Rebuild({.full = true});
  EXPECT_EQ(world.report().path, RebuildPath::kBuild);
  EXPECT_EQ(world.report().why, "that was asked for");
  EXPECT_LT(world.Record().plan_seconds, 1000);
}

TEST(RebuildTest, OtherBatchesAreBuiltAnew) {
  const auto path_after = [](LayoutSpec spec,
                             const std::function<void(WriteBatch&, const TinyGraph&)>& write) {
    World world({.nodes = 700});
    spec.road.batch_size = 48;
    world.Build(spec);
    world.SetBuildSeconds(1000);
    WriteBatch batch;
    write(batch, world.graph());
    EXPECT_OK(world.store().Write(batch));
    world.Rebuild();
    world.ExpectServed();
    return world.report().path;
  };
  const auto train = [](const TinyGraph& graph, size_t i) { return graph.SplitNodes(Split::kTrain)[i]; };
  EXPECT_EQ(
      path_after(Spec(), [&](WriteBatch& batch,
                             const TinyGraph& graph) { batch.SetSplit(train(graph, 3), Split::kTest); }),
      RebuildPath::kBuild);
  EXPECT_EQ(path_after(Spec(), [&](WriteBatch& batch,
                                   const TinyGraph& graph) { batch.SetLabel(train(graph, 1), -1); }),
            RebuildPath::kBuild);
  const auto another_class = [&](WriteBatch& batch, const TinyGraph& graph) {
    batch.SetLabel(train(graph, 1), (graph.Label(train(graph, 1)) + 1) % 5);
  };
  EXPECT_EQ(path_after(Spec(), another_class), RebuildPath::kRecord) << "labels are not in the layout";
  LayoutSpec proximity = Spec();
  proximity.road.seed_order = SeedOrder::kProximity;
  EXPECT_EQ(path_after(proximity, another_class), RebuildPath::kBuild) << "its order depends on them";
}

// Compacted labels do not tell when they changed.
TEST(RebuildTest, LabelsThatWereCompactedSinceAreComparedByTheirNodes) {
  World world({.nodes = 700});
  world.Build(Spec());
  world.SetBuildSeconds(1000);
  WriteBatch batch;
  batch.SetLabel(world.graph().SplitNodes(Split::kTest)[1], 2);
  ASSERT_OK(world.store().Write(batch));
  world.Compact("label");
  Rng rng(6);
  world.Write(Draw(3, 700, rng), rng);
  world.Rebuild();
  EXPECT_EQ(world.report().path, RebuildPath::kPatch) << world.report().why;
  WriteBatch split;
  split.SetSplit(world.graph().SplitNodes(Split::kTest)[1], Split::kTrain);
  ASSERT_OK(world.store().Write(split));
  world.Compact("split");
  world.Rebuild();
  EXPECT_EQ(world.report().path, RebuildPath::kBuild);
  EXPECT_THAT(world.report().why, HasSubstr("other nodes are trained on"));
  world.ExpectServed();
}

TEST(RebuildTest, OfALayoutThatIsNotPackedOnlyTheRecordChanges) {
  World world({.nodes = 700});
  LayoutSpec spec = Spec();
  spec.packing = Packing::kNever;
  const LayoutRecord built = world.Build(spec);
  Rng rng(6);
  world.Write(Draw(50, 700, rng), rng);
  world.Compact();
  world.Write(Draw(50, 700, rng), rng);
  world.Rebuild();
  EXPECT_EQ(world.report().path, RebuildPath::kRecord);
  EXPECT_EQ(world.Record().directory, built.directory);
  world.ExpectServed();
  world.Rebuild({.full = true});
  EXPECT_LT(world.Record().file_bytes, 700u * 512) << "it stays one without rows";
  world.ExpectServed();
}

// A compaction folds what was there when it began; a layout may be made meanwhile, of more.
TEST(RebuildTest, ALayoutIsNewerThanTheFileOfACompactionThatBeganBefore) {
  World world({.nodes = 700});
  world.Build(Spec());
  world.SetBuildSeconds(1000);
  Rng rng(7);
  const std::vector<NodeId> nodes = Draw(60, 700, rng);
  world.Write(nodes, rng);
  bool done = false;
  world.Compact("feature", [&](std::string_view, uint64_t, uint64_t) {
    if (!std::exchange(done, true)) {
      world.Write(nodes, rng);
      world.Rebuild();
    }
    return Status::Ok();
  });
  EXPECT_EQ(world.Record().timestamp, 2u);
  EXPECT_EQ(world.store().manifest()->FindTable("feature")->folded, 1u);
  world.ExpectServed();
  world.Reopen();
  world.ExpectServed();
  world.Write({nodes[0]}, rng);
  world.ExpectServed();
  world.Compact();
  world.ExpectServed();
  world.Rebuild();
  world.ExpectServed();
}

// A file holds all rows that were folded since the generation before: those that the layout has among them.
TEST(RebuildTest, OfWhatWasFoldedOnlyTheRowsThatAreNewerThanTheLayoutAreWritten) {
  World world({.nodes = 700});
  world.Build(Spec());
  world.SetBuildSeconds(1000);
  Rng rng(9);
  world.Write(Draw(60, 700, rng), rng);
  world.Rebuild();
  const uint64_t patched_bytes = world.report().bytes_written;
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const NodeId first = 50 * static_cast<NodeId>(round);
    world.Write({first + 1, first + 2, first + 3}, rng);
    if (round == 1) {  // two compactions to one rebuild
      world.Compact();
      world.Write({first + 3, first + 4}, rng);
    }
    world.Compact();
    if (round == 2) world.Reopen();
    world.ExpectServed();
    world.Rebuild();
    EXPECT_EQ(world.report().rows_changed, round == 1 ? 4u : 3u);
    EXPECT_EQ(world.report().path, RebuildPath::kPatch) << world.report().why;
    EXPECT_LE(world.report().bytes_written, patched_bytes);
    world.ExpectServed();
  }
}

TEST(RebuildTest, ASnapshotBeforeTheLayoutIsRefused) {
  World world({.nodes = 700});
  const auto before = world.store().TakeSnapshot().value();
  Rng rng(8);
  world.Write({1, 2, 3}, rng);
  world.Build(Spec());
  MemoryBudget budget(kGiB);
  const auto road = PlannedRoad::Open(world.store(), budget, {.snapshot = before});
  EXPECT_EQ(road.status().code(), Code::kUnsupported);
  EXPECT_THAT(std::string(road.status().message()), HasSubstr("as of 1 are newer than the snapshot's, 0"));
}

TEST(RebuildTest, DamageInAnyFileOfAPatchedLayoutIsFoundAndHealed) {
  World world(kGraph);
  world.Build(Spec());
  Rng rng(17);
  for (const std::string damaged : {"layout.qlc", "base-1.qlc", "base-2.qlc", "trace.qlt"}) {
    SCOPED_TRACE(damaged);
    world.SetBuildSeconds(1000);
    for (int patch = 0; patch < 2; ++patch) {
      world.Write(Draw(1, kGraph.nodes, rng), rng);
      world.Rebuild();
      ASSERT_EQ(world.report().path, RebuildPath::kPatch);
    }
    const uint64_t built = world.Record().trace_generation;
    std::string name = damaged;
    if (damaged.starts_with("base")) {
      name = fmt::format("base-{}.qlc", built + static_cast<uint64_t>(damaged[5] - '1'));
    }
    const std::string path = world.Path(world.Record().directory + "/" + name);
    ASSERT_TRUE(fs::exists(path));
    EXPECT_EQ(world.Faults(), "");
    FlipByte(path, kPageBytes + rng.Below(fs::file_size(path) / 2));
    EXPECT_THAT(world.Faults(),
                testing::AllOf(HasSubstr(path + ": page "), HasSubstr(" --full` makes it anew")));
    if (damaged == "layout.qlc") {
      EXPECT_EQ(world.Serve().code(), Code::kCorruption) << "it has no byte that is not read";
    }
    world.Rebuild({.full = true});
    EXPECT_EQ(world.Faults(), "");
    world.ExpectServed();
  }
}

// What a patch must read and cannot, a build replaces.
TEST(RebuildTest, ALayoutTooDamagedToBePatchedIsBuiltAnew) {
  World world(kGraph);
  const LayoutRecord built = world.Build(Spec());
  world.SetBuildSeconds(1000);
  Rng rng(10);
  const auto layout = Layout::Open(world.store(), "default");
  ASSERT_OK(layout);
  const uint64_t block = (*layout)->Locate((*layout)->directory().batches[3].offset, kPageBytes).offset;
  FlipByte(world.Path(built.directory + "/layout.qlc"), block + 5);
  world.Write(Draw(3, kGraph.nodes, rng), rng);
  world.Rebuild();
  EXPECT_EQ(world.report().path, RebuildPath::kBuild);
  EXPECT_THAT(world.report().why, HasSubstr("checksum"));
  world.ExpectServed();
  EXPECT_EQ(world.Faults(), "");
}

TEST(RebuildTest, WithoutMemoryForTheRowsOrALayoutOfThatNameItSaysSo) {
  World world({.nodes = 700});
  RebuildReport report;
  const auto none = RebuildLayout(world.store(), world.budget(), "default", {}, {}, &report);
  EXPECT_EQ(none.status().code(), Code::kNotFound);
  world.Build(Spec());
  world.SetBuildSeconds(1000);
  Rng rng(11);
  world.Write(Draw(3, 700, rng), rng);
  MemoryBudget little(64 * kKiB);
  const auto dry = RebuildLayout(world.store(), little, "default", {.dry_run = true}, {}, &report);
  ASSERT_OK(dry);
  EXPECT_EQ(report.path, RebuildPath::kBuild);
  EXPECT_THAT(report.why, HasSubstr("the places of changed rows"));
}

TEST(RebuildTest, InterruptedItLeavesNothing) {
  World world({.nodes = 700});
  world.Build(Spec());
  world.SetBuildSeconds(1000);
  Rng rng(13);
  for (const std::string_view stop : {"finding changed rows", "patching"}) {
    world.Write(Draw(4, 700, rng), rng);
    const auto stopped = world.TryRebuild({}, [&](std::string_view phase, uint64_t, uint64_t) {
      return phase == stop ? Status(Code::kCancelled, "enough") : Status::Ok();
    });
    EXPECT_EQ(stopped.status().code(), Code::kCancelled);
    EXPECT_EQ(world.Names("layouts"), (std::set<std::string>{"default-1"}));
    world.ExpectServed();
  }
}

TEST(RebuildTest, WhatACrashBeforeTheCommitLeavesIsRemovedByTheNextWriter) {
  World world(kGraph);
  world.Build(Spec());
  world.SetBuildSeconds(1000);
  Rng rng(14);
  world.Write(Draw(1, kGraph.nodes, rng), rng);
  world.Rebuild();
  const std::string folder = world.Path(world.Record().directory);
  fs::copy(folder, world.Path("layouts/default-9"));
  world.Reopen();
  ASSERT_OK(world.store().PrepareToWrite());
  EXPECT_FALSE(fs::exists(world.Path("layouts/default-9")));
  EXPECT_TRUE(fs::exists(folder + "/base-1.qlc"));
  fs::copy(folder, world.Path("layouts/default-9"));
  std::ofstream(world.Path("layouts/default-9/base-x.qlc")) << "not ours";
  world.Reopen();
  ASSERT_OK(world.store().PrepareToWrite());
  EXPECT_TRUE(fs::exists(world.Path("layouts/default-9"))) << "with a file that is none of a layout";
}

}  // namespace
}  // namespace quarry
