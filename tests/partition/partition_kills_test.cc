// A build of a partitioning that is killed at every operation that changes files: the database is whole
// afterwards, and holds the partitioning that was there or the new one, which the next build replaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "partition/partitioned_store.h"
#include "storage/store_rows.h"
#include "support/killing_backend.h"
#include "support/repetitions.h"
#include "support/zygote.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing_util::AppendEdges;
using testing_util::FaultsIn;
using testing_util::KillingBackend;
using testing_util::Medium;
using testing_util::PartitionedStore;
using testing_util::RandomAssignment;
using testing_util::SmallStore;
using testing_util::TypedEdge;
using testing_util::Zygote;

constexpr uint64_t kRound =
    1'000'000;  // number of a build: its round times this, and the operation that kills

Assignment AssignmentOf(uint64_t number) {
  return RandomAssignment(SmallStore::kNodes, static_cast<uint32_t>(2 + number % 4), number);
}

// In the child, which ends by itself only where something failed.
bool BuildAndDie(const std::string& path, uint64_t number) {
  const auto disk = MakeDefaultBackend();
  KillingBackend backend(*disk, number % kRound);
  const auto store = Store::Open(backend, path);
  if (!store.ok()) _exit(3);
  MemoryBudget budget(64 * kMiB);
  const auto built =
      BuildPartitioning(**store, budget, {.table = "narrow", .seed = number}, AssignmentOf(number), {});
  if (!built.ok()) _exit(4);
  return true;
}

class PartitionKillsTest : public testing::Test {
 protected:
  // Every edge and row of the partitioning that is there.
  void ExpectWhole(Store& store) {
    MemoryBudget budget(64 * kMiB);
    const auto opened = StoredPartitioning::Open(store, budget, "default");
    ASSERT_OK(opened);
    const StoredPartitioning& parts = **opened;
    const PartitionDirectory& directory = parts.directory();
    const std::vector<NodeId> new_ids = PartitionedStore::NewIds(AssignmentOf(parts.record().seed));
    std::vector<NodeId> stored(new_ids.size());
    ASSERT_OK(parts.ReadNewIds(0, stored));
    ASSERT_EQ(stored, new_ids);
    const auto read = [&](uint64_t offset, uint64_t bytes) {
      IoBuffer pages = IoBuffer::Allocate(std::max<uint64_t>(bytes, 1)).value();
      EXPECT_OK(store.backend().ReadAt(parts.file(), offset, pages.span().first(bytes)));
      return pages;
    };
    std::vector<TypedEdge> edges;
    for (uint32_t i = 0; i < directory.parts(); ++i) {
      const IoBuffer rows = read(parts.RowsAt(i), directory.part_bytes(i));
      ASSERT_OK(parts.VerifyRows(i, rows.span().first(directory.part_bytes(i))));
      for (uint32_t j = 0; j < directory.parts(); ++j) {
        const uint64_t bytes = directory.bucket_bytes(i, j);
        const IoBuffer pages = read(parts.BucketAt(i, j), bytes);
        ASSERT_OK(parts.VerifyBucket(i, j, pages.span().first(bytes)));
        AppendEdges(directory, i, j, parts.View(i, j, pages.span().first(bytes)), edges);
      }
    }
    std::ranges::sort(edges);
    EXPECT_EQ(edges, world_.EdgesIn(new_ids));
  }

  // What is left of a killed build of this number.
  void Check(uint64_t number) {
    const auto opened = Store::Open(*backend_, world_.world.path());
    ASSERT_OK(opened);
    Store& store = **opened;
    ASSERT_EQ(FaultsIn(store), "");
    const std::shared_ptr<const Manifest> manifest = store.manifest();
    const PartitioningRecord* const record = manifest->FindPartitioning("default");
    ASSERT_TRUE(record != nullptr || last_ == 0) << "the partitioning of before is lost";
    if (record != nullptr) {
      ASSERT_TRUE(record->seed == last_ || record->seed == number);
      last_ = record->seed;
      ASSERT_NO_FATAL_FAILURE(ExpectWhole(store));
    }
    ASSERT_OK(store.PrepareToWrite());
    for (const auto& entry : fs::directory_iterator(world_.world.path() + "/partitions")) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(name == "default.building" ||
                  (record != nullptr && record->directory == "partitions/" + name))
          << name;
    }
  }

  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  PartitionedStore world_{*backend_};
  uint64_t last_ = 0;  // number of the partitioning that is there
};

TEST_F(PartitionKillsTest, ABuildMayDieAtAnyOperation) {
  world_.store.reset();
  const std::string path = world_.world.path();
  fs::create_directory(path + "/partitions");
  const uint64_t rounds = testing_util::Repetitions(3);
  uint64_t kills = 0;
  for (uint64_t round = 1; round <= rounds; ++round) {
    for (uint64_t operation = 1;; ++operation) {
      const uint64_t number = round * kRound + operation;
      SCOPED_TRACE(testing::Message() << "round " << round << ", operation " << operation);
      const Zygote::Child child = Zygote::Instance().Fork(BuildAndDie, path, number);
      if (child.done) kill(child.pid, SIGKILL);
      const int status = Zygote::Instance().Wait(child.pid);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
      ASSERT_NO_FATAL_FAILURE(Check(number));
      if (child.done) {
        EXPECT_EQ(last_, number) << "an acknowledged build is lost";
        break;
      }
      ++kills;
      ASSERT_LT(operation, 2000U) << "it goes on and on";
    }
  }
  EXPECT_GT(kills, 20 * rounds);
  fmt::print("{} kills\n", kills);
}

}  // namespace
}  // namespace quarry
