// Partitionings that are built, replaced and dropped on a disk that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "faults/small_world.h"
#include "quarry/import/graph_change.h"
#include "quarry/partition/stored_partitioning.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::SmallWorld;

using PartBytes = std::vector<std::byte>;

Status BuildParts(SmallWorld& world, uint32_t parts) {
  Assignment assignment{.parts = parts, .part_of = {}};
  for (uint64_t node = 0; node < world.graph().nodes; ++node) {
    assignment.part_of.push_back(static_cast<uint32_t>(node * 7 % parts));
  }
  return BuildPartitioning(world.store(), world.budget(), {.table = "feature", .method = "test"},
                           std::move(assignment), {})
      .status();
}

// All that a partitioning holds, verified; nothing where there is none.
std::optional<PartBytes> HeldParts(SmallWorld& world) {
  const PartitioningRecord* const record = world.store().manifest()->FindPartitioning("default");
  if (record == nullptr) return std::nullopt;
  const auto opened = StoredPartitioning::Open(world.store(), world.budget(), "default");
  EXPECT_OK(opened);
  if (!opened.ok()) return std::nullopt;
  const StoredPartitioning& parts = **opened;
  const PartitionDirectory& directory = parts.directory();
  PartBytes held;
  const auto read = [&](const File& file, uint64_t offset, uint64_t bytes) {
    IoBuffer pages = IoBuffer::Allocate(std::max<uint64_t>(bytes, 1)).value();
    SmallWorld::Expect(world.backend().ReadAt(file, offset, pages.span().first(bytes)));
    held.insert(held.end(), pages.data(), pages.data() + bytes);
    return PartBytes(pages.data(), pages.data() + bytes);
  };
  for (uint32_t i = 0; i < directory.parts(); ++i) {
    SmallWorld::Expect(parts.VerifyRows(i, read(parts.file(), parts.RowsAt(i), directory.part_bytes(i))));
    for (uint32_t j = 0; j < directory.parts(); ++j) {
      SmallWorld::Expect(parts.VerifyBucket(
          i, j, read(parts.BucketFile(i, j), parts.BucketAt(i, j), directory.bucket_bytes(i, j))));
    }
  }
  return held;
}

TEST(PartitionFaultsTest, ABuild) {
  std::optional<PartBytes> whole;
  SmallWorld world({
      .work = [](SmallWorld& w) { return BuildParts(w, 3); },
      .check =
          [&](SmallWorld& w, bool done) {
            const auto held = HeldParts(w);
            if (!whole) whole = held;
            EXPECT_TRUE(held == whole || (!done && !held));
          },
  });
  world.Run();
}

TEST(PartitionFaultsTest, ABuildInPlaceOfAnother) {
  std::optional<PartBytes> before, after;
  SmallWorld world({
      .prepare =
          [&](SmallWorld& w) {
            const Status built = BuildParts(w, 4);
            before = HeldParts(w);
            return built;
          },
      .work = [](SmallWorld& w) { return BuildParts(w, 3); },
      .check =
          [&](SmallWorld& w, bool done) {
            const auto held = HeldParts(w);
            ASSERT_TRUE(held);
            if (!after) after = held;
            EXPECT_TRUE(held == after || (!done && held == before));
          },
  });
  world.Run();
}

// Its buckets alone, where edges came; whatever fails, it is the one of before or the new one.
TEST(PartitionFaultsTest, ARenewal) {
  std::optional<PartBytes> before, after;
  SmallWorld world({
      .prepare = [&](SmallWorld& w) -> Status {
        QUARRY_RETURN_IF_ERROR(BuildParts(w, 3));
        before = HeldParts(w);
        QUARRY_TRY(const auto change,
                   GraphChange::Create(w.store(), w.budget(), {.memory_bytes = kGraphChangeBytesMin}));
        QUARRY_RETURN_IF_ERROR(change->Add(std::vector<Edge>{{1, 2}, {3, 4}, {5, 2}}));
        return change->Commit().status();
      },
      .work =
          [](SmallWorld& w) {
            return MakePartitioning(w.store(), w.budget(), {.table = "feature"},
                                    {.method = PartitionMethod::kKept, .parts = 0}, {})
                .status();
          },
      .check =
          [&](SmallWorld& w, bool done) {
            const auto held = HeldParts(w);
            ASSERT_TRUE(held);
            if (!after) after = held;
            EXPECT_TRUE(held == after || (!done && held == before));
          },
      // Where no files are linked, it is built whole.
      .may_end_well = [](const FaultPlan& fault) { return fault.kind == FaultKind::kLink; },
      .may_be_missing = "partitions/default-#/buckets.qpp",
  });
  world.Run();
  EXPECT_FALSE(before == after);
}

TEST(PartitionFaultsTest, ADrop) {
  SmallWorld world({
      .prepare = [](SmallWorld& w) { return BuildParts(w, 3); },
      .work = [](SmallWorld& w) -> Status {
        if (w.store().manifest()->FindPartitioning("default") == nullptr) return Status::Ok();
        return DropPartitioning(w.store(), "default");
      },
      .check =
          [](SmallWorld& w, bool done) {
            EXPECT_FALSE(done && w.store().manifest()->FindPartitioning("default") != nullptr);
          },
  });
  world.Run();
}

}  // namespace
}  // namespace quarry
