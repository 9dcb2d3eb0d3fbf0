// A build of a partitioning that is killed at every operation that changes files: the database is whole
// afterwards, and holds the partitioning that was there or the new one, which the next build replaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "partition/partitioned_store.h"
#include "pipeline/tiny_database.h"
#include "quarry/import/graph_change.h"
#include "quarry/partition/read_bucket.h"
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
using testing_util::TinyDatabase;
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

// The same of a partitioning whose graph got edges: its buckets alone are made anew.
bool RenewAndDie(const std::string& path, uint64_t operation) {
  const auto disk = MakeDefaultBackend();
  KillingBackend backend(*disk, operation);
  const auto store = Store::Open(backend, path);
  if (!store.ok()) _exit(3);
  MemoryBudget budget(64 * kMiB);
  const auto renewed = MakePartitioning(**store, budget, {.table = "feature"},
                                        {.method = PartitionMethod::kKept, .parts = 0}, {});
  if (!renewed.ok() || renewed->buckets_bytes == 0) _exit(4);
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

// Edges come and go before each round; one renewal takes over what the one before has left in its file of buckets.
TEST(PartitionRenewalKillsTest, ARenewalMayDieAtAnyOperation) {
  const TinyDatabase database({.nodes = 300, .dim = 8},
                              access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir());
  const auto backend = MakeDefaultBackend();
  MemoryBudget budget(kGiB);
  constexpr uint32_t kParts = 4;
  {
    const auto store = Store::Open(*backend, database.path());
    ASSERT_OK(store);
    ASSERT_OK(BuildPartitioning(**store, budget, {.table = "feature"}, RandomAssignment(300, kParts, 1), {}));
  }
  const auto bucket_of = [&](const StoredPartitioning& parts, uint32_t bucket) {
    const uint64_t bytes = parts.directory().bucket_bytes(bucket / kParts, bucket % kParts);
    IoBuffer pages = IoBuffer::Allocate(std::max<uint64_t>(bytes, 1)).value();
    EXPECT_OK(ReadBucket(parts, *backend, bucket / kParts, bucket % kParts, pages.span()).status());
    return std::vector<std::byte>(pages.data(), pages.data() + bytes);
  };
  const uint64_t rounds = testing_util::Repetitions(2);
  uint64_t kills = 0;
  for (uint64_t round = 1; round <= rounds; ++round) {
    uint64_t before = 0;
    {
      const auto store = Store::Open(*backend, database.path());
      ASSERT_OK(store);
      before = (*store)->manifest()->FindPartitioning("default")->generation;
      auto change = GraphChange::Create(**store, budget, {.memory_bytes = kGraphChangeBytesMin});
      ASSERT_OK(change);
      std::vector<Edge> edges;
      for (uint64_t source = 0; source < 20; ++source) edges.push_back({source, 50 * round + source % 3});
      ASSERT_OK((*change)->Add(edges));
      ASSERT_OK((*change)->Remove(std::vector<Edge>{{50 * round - 50, 50 * round - 50}}));
      ASSERT_OK((*change)->Commit());
    }
    for (uint64_t operation = 1;; ++operation) {
      SCOPED_TRACE(testing::Message() << "round " << round << ", operation " << operation);
      const Zygote::Child child = Zygote::Instance().Fork(RenewAndDie, database.path(), operation);
      if (child.done) kill(child.pid, SIGKILL);
      const int status = Zygote::Instance().Wait(child.pid);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
      const auto store = Store::Open(*backend, database.path());
      ASSERT_OK(store);
      ASSERT_EQ(FaultsIn(**store), "");
      const std::shared_ptr<const Manifest> manifest = (*store)->manifest();
      const PartitioningRecord* const record = manifest->FindPartitioning("default");
      ASSERT_NE(record, nullptr) << "the partitioning of before is lost";
      const bool renewed = record->generation != before;
      if (!child.done) {
        ++kills;
        ASSERT_LT(operation, 2000U) << "it goes on and on";
      }
      const auto parts = StoredPartitioning::Open(**store, budget, "default");
      ASSERT_OK(parts);
      if (!renewed) {
        ASSERT_FALSE(child.done) << "an acknowledged renewal is lost";
        continue;
      }
      ASSERT_TRUE(IsFresh(*(*store)->manifest(), *record));
      ASSERT_OK(BuildPartitioning(**store, budget, {.name = "whole", .table = "feature"},
                                  RandomAssignment(300, kParts, 1), {}));
      {
        const auto whole = StoredPartitioning::Open(**store, budget, "whole");
        ASSERT_OK(whole);
        for (uint32_t bucket = 0; bucket < kParts * kParts; ++bucket) {
          EXPECT_TRUE(bucket_of(**parts, bucket) == bucket_of(**whole, bucket)) << "bucket " << bucket;
        }
      }
      ASSERT_OK(DropPartitioning(**store, "whole"));
      for (const auto& entry : fs::directory_iterator(database.path() + "/partitions")) {
        EXPECT_EQ("partitions/" + entry.path().filename().string(), record->directory)
            << "what was left is gone";
      }
      break;
    }
  }
  EXPECT_GT(kills, 10 * rounds);
  fmt::print("{} kills of renewals\n", kills);
}

}  // namespace
}  // namespace quarry
