// Layouts that are built, rebuilt and dropped on a disk that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "faults/small_world.h"
#include "quarry/import/graph_change.h"
#include "quarry/layout/rebuild.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing_util::SmallWorld;

using Bytes = std::vector<std::byte>;

// What layouts held when nothing failed.
class Held {
 public:
  // The layout is as it was the first time, or (where the work is not done) as it is in `before`.
  void Check(SmallWorld& world, std::string_view name, bool done) {
    if (world.store().manifest()->FindLayout(name) == nullptr) {
      EXPECT_FALSE(done || before_);
      return;
    }
    const Bytes now = world.Regions(name);
    if (!after_) after_ = now;
    EXPECT_TRUE(now == *after_ || (!done && before_ && now == *before_));
  }
  void KeepBefore(SmallWorld& world, std::string_view name) { before_ = world.Regions(name); }

 private:
  std::optional<Bytes> before_, after_;
};

TEST(LayoutFaultsTest, ABuild) {
  Held held;
  SmallWorld world({
      .work = [](SmallWorld& w) { return w.Build(SmallWorld::LayoutOf("default")); },
      .check = [&](SmallWorld& w, bool done) { held.Check(w, "default", done); },
  });
  world.Run();
}

// With segment caches, which take a disk budget and more batches.
TEST(LayoutFaultsTest, ABuildWithSegments) {
  Held held;
  SmallWorld world({
      .work = [](SmallWorld& w) -> Status {
        LayoutSpec spec = SmallWorld::LayoutOf("default");
        spec.road.batch_size = 12;
        spec.epochs = 2;
        spec.disk_bytes = 200 * kKiB;
        return w.Build(spec);
      },
      .check =
          [&](SmallWorld& w, bool done) {
            held.Check(w, "default", done);
            const std::shared_ptr<const Manifest> manifest = w.store().manifest();
            const LayoutRecord* const layout = manifest->FindLayout("default");
            EXPECT_TRUE(layout == nullptr || layout->batches_per_segment > 0);
          },
      .skips = [](const FaultPlan& fault) { return fault.sticky || fault.error != EIO; },
      .skips_of_catalog = [](const CatalogFaultPlan& /*fault*/) { return true; },
  });
  world.Run();
}

// In the place of another, from the trace of one that was interrupted. It writes what any build writes.
TEST(LayoutFaultsTest, ABuildThatGoesOn) {
  Held held;
  SmallWorld world({
      .prepare = [&](SmallWorld& w) -> Status {
        held.KeepBefore(w, "default");
        const Status stopped =
            w.Build(SmallWorld::LayoutOf("default"), false, [](std::string_view phase, uint64_t, uint64_t) {
              return phase == "packing" ? Status(Code::kCancelled, "enough") : Status::Ok();
            });
        EXPECT_EQ(stopped.code(), Code::kCancelled) << stopped.ToString();
        return Status::Ok();
      },
      .work = [](SmallWorld& w) { return w.Build(SmallWorld::LayoutOf("default"), true); },
      .check = [&](SmallWorld& w, bool done) { held.Check(w, "default", done); },
      // A trace that cannot be read is sampled anew.
      .may_end_well =
          [](const FaultPlan& fault) {
            return !fault.sticky && (fault.kind == FaultKind::kOpen || fault.kind == FaultKind::kRead);
          },
      .skips =
          [](const FaultPlan& fault) {
            return fault.kind != FaultKind::kOpen && fault.kind != FaultKind::kRead;
          },
      .skips_of_catalog = [](const CatalogFaultPlan& /*fault*/) { return true; },
      .layout = true,
  });
  world.Run();
}

Status Rebuild(SmallWorld& world, RebuildPath path) {
  RebuildReport report;
  QUARRY_RETURN_IF_ERROR(RebuildLayout(world.store(), world.budget(), "default", {}, {}, &report).status());
  // The one before may have been done although its commit failed.
  EXPECT_TRUE(report.path == path || report.path == RebuildPath::kRecord) << report.why;
  return Status::Ok();
}

// Whether to build anew is a matter of the machine, and not to be one here; nor is the room on the disk.
Status ChangeRecord(SmallWorld& world, uint64_t disk_bytes_more) {
  return world.store().UpdateManifest([&](Manifest& manifest) {
    LayoutRecord& layout = manifest.layouts[0];
    layout.plan_seconds = 1000;
    layout.disk_bytes_max = layout.total_bytes() + disk_bytes_more;
    return Status::Ok();
  });
}

// Files that cannot be linked are no error of a rebuild: it builds.
bool MayBeBuiltAnew(const FaultPlan& fault) { return fault.kind == FaultKind::kLink; }

TEST(LayoutFaultsTest, APatch) {
  Held held;
  SmallWorld world({
      .prepare =
          [&](SmallWorld& w) {
            held.KeepBefore(w, "default");
            return ChangeRecord(w, kGiB);
          },
      .work = [](SmallWorld& w) { return Rebuild(w, RebuildPath::kPatch); },
      .check = [&](SmallWorld& w, bool done) { held.Check(w, "default", done); },
      .skips = MayBeBuiltAnew,
      .layout = true,
  });
  world.Run();
}

TEST(LayoutFaultsTest, ACopy) {
  Held held;
  SmallWorld world({
      .prepare =
          [&](SmallWorld& w) {
            held.KeepBefore(w, "default");
            return ChangeRecord(w, 0);
          },
      .work = [](SmallWorld& w) { return Rebuild(w, RebuildPath::kCopy); },
      .check = [&](SmallWorld& w, bool done) { held.Check(w, "default", done); },
      .skips = MayBeBuiltAnew,
      .layout = true,
  });
  world.Run();
}

// Writing is what this device is slow at, so that the few batches are mended. Faults of reads, and of the catalog while the
// layout is committed, are those of a patch.
TEST(LayoutFaultsTest, AMend) {
  Held held;
  SmallWorld world({
      .prepare = [&](SmallWorld& w) -> Status {
        QUARRY_RETURN_IF_ERROR(ChangeRecord(w, kGiB));
        QUARRY_RETURN_IF_ERROR(w.store().UpdateManifest([](Manifest& manifest) {
          manifest.device = {.random_reads_per_second = 1e12,
                             .sequential_bytes_per_second = 1e12,
                             .write_bytes_per_second = 1e6,
                             .gather_bytes_per_second = 1e12,
                             .core = {.checksum_bytes_per_second = 1e12,
                                      .copy_bytes_per_second = 1e12,
                                      .decode_bytes_per_second = 1e12,
                                      .request_seconds = 1e-12}};
          return Status::Ok();
        }));
        QUARRY_TRY(const std::unique_ptr<GraphChange> change,
                   GraphChange::Create(w.store(), w.budget(), {.memory_bytes = kGraphChangeBytesMin}));
        const Edge edge = {1, 2};
        QUARRY_RETURN_IF_ERROR(change->Add(std::span(&edge, 1)));
        QUARRY_RETURN_IF_ERROR(change->Commit().status());
        held.KeepBefore(w, "default");
        return Status::Ok();
      },
      .work = [](SmallWorld& w) { return Rebuild(w, RebuildPath::kMend); },
      .check = [&](SmallWorld& w, bool done) { held.Check(w, "default", done); },
      .skips = [](const FaultPlan& fault) { return MayBeBuiltAnew(fault) || fault.kind == FaultKind::kRead; },
      .skips_of_catalog = [](const CatalogFaultPlan& /*fault*/) { return true; },
      .layout = true,
  });
  world.Run();
}

TEST(LayoutFaultsTest, TheLayoutThatIsReplacedIsThereUntilTheNewOneIsCommitted) {
  SmallWorld world(
      {.work = [](SmallWorld& w) { return w.Build(SmallWorld::LayoutOf("default")); }, .layout = true});
  world.Fresh();
  ASSERT_OK(world.Open());
  const std::string folder = world.path() + "/" + world.store().manifest()->FindLayout("default")->directory;
  std::set<std::string> phases;
  const Status built =
      world.Build(SmallWorld::LayoutOf("default"), false, [&](std::string_view phase, uint64_t, uint64_t) {
        phases.emplace(phase);
        EXPECT_TRUE(fs::exists(folder + "/layout.qlc") && fs::exists(folder + "/trace.qlt")) << phase;
        return Status::Ok();
      });
  ASSERT_OK(built);
  EXPECT_EQ(phases, (std::set<std::string>{"sampling", "planning", "encoding", "packing"}));
  EXPECT_FALSE(fs::exists(folder));
}

TEST(LayoutFaultsTest, ADrop) {
  SmallWorld world({
      .work = [](SmallWorld& w) -> Status {
        if (w.store().manifest()->FindLayout("default") == nullptr) return Status::Ok();
        return DropLayout(w.store(), "default");
      },
      .check =
          [](SmallWorld& w, bool done) {
            EXPECT_FALSE(done && w.store().manifest()->FindLayout("default") != nullptr);
          },
      .layout = true,
  });
  world.Run();
}

}  // namespace
}  // namespace quarry
