#include "quarry/partition/stored_partitioning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "partition/partitioned_store.h"
#include "pipeline/tiny_database.h"
#include "quarry/storage/checkpoint.h"
#include "quarry/storage/partition_files.h"
#include "quarry/verify/repair.h"
#include "quarry/verify/verify.h"
#include "storage/store_rows.h"
#include "support/flip_byte.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::AppendEdges;
using testing_util::FaultsIn;
using testing_util::FlipByte;
using testing_util::PartitionedStore;
using testing_util::RandomAssignment;
using testing_util::RowsNow;
using testing_util::SmallStore;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;
using testing_util::TypedEdge;

class StoredPartitioningTest : public testing::Test {
 protected:
  Result<PartitioningRecord> Build(const PartitioningSpec& spec, Assignment assignment) {
    return BuildPartitioning(*world_.store, world_.budget, spec, std::move(assignment), {});
  }
  std::unique_ptr<StoredPartitioning> Open(std::string_view name = "default") {
    auto opened = StoredPartitioning::Open(*world_.store, world_.budget, name);
    EXPECT_OK(opened);
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  std::string FolderOf(std::string_view relative) const {
    return fmt::format("{}/{}", world_.world.path(), relative);
  }

  std::vector<std::byte> ReadPages(const StoredPartitioning& parts, uint64_t offset, uint64_t bytes) {
    IoBuffer buffer = IoBuffer::Allocate(std::max<uint64_t>(bytes, 1)).value();
    EXPECT_OK(backend_->ReadAt(parts.file(), offset, buffer.span().first(bytes)));
    return {buffer.data(), buffer.data() + bytes};
  }

  // All that it holds is what the database has, by the assignment.
  void ExpectWhole(const StoredPartitioning& parts, const Assignment& assignment) {
    const PartitionDirectory& directory = parts.directory();
    ASSERT_EQ(directory.parts(), assignment.parts);
    const std::vector<NodeId> new_ids = PartitionedStore::NewIds(assignment);
    std::vector<NodeId> ids(new_ids.size());
    ASSERT_OK(parts.ReadNewIds(0, ids));
    EXPECT_EQ(ids, new_ids);
    std::vector<NodeId> old_ids(new_ids.size());
    ASSERT_OK(parts.ReadOldIds(0, old_ids));
    for (size_t node = 0; node < new_ids.size(); ++node) {
      ASSERT_EQ(old_ids[new_ids[node]], node);
      ASSERT_EQ(directory.PartOf(new_ids[node]), assignment.part_of[node]);
    }
    ExpectRows(parts, old_ids);
    std::vector<TypedEdge> edges;
    for (uint32_t source = 0; source < directory.parts(); ++source) {
      for (uint32_t destination = 0; destination < directory.parts(); ++destination) {
        const auto pages = ReadPages(parts, parts.BucketAt(source, destination),
                                     directory.bucket_bytes(source, destination));
        ASSERT_OK(parts.VerifyBucket(source, destination, pages));
        AppendEdges(directory, source, destination, parts.View(source, destination, pages), edges);
      }
    }
    std::ranges::sort(edges);
    EXPECT_EQ(edges, world_.EdgesIn(new_ids));
    const auto crosses = [&](const TypedEdge& edge) {
      return directory.PartOf(std::get<0>(edge)) != directory.PartOf(std::get<1>(edge));
    };
    EXPECT_EQ(static_cast<uint64_t>(std::ranges::count_if(edges, crosses)), parts.record().cut_edges);
  }

  void ExpectRows(const StoredPartitioning& parts, std::span<const NodeId> old_ids) {
    const PartitionDirectory& directory = parts.directory();
    if (parts.record().table.empty()) {
      EXPECT_EQ(directory.row_bytes, 0U);
      return;
    }
    const auto rows = RowsNow(*world_.store, parts.record().table);
    for (uint32_t part = 0; part < directory.parts(); ++part) {
      const auto pages = ReadPages(parts, parts.RowsAt(part), directory.part_bytes(part));
      ASSERT_OK(parts.VerifyRows(part, pages));
      for (uint64_t i = 0; i < directory.part_nodes(part); ++i) {
        const std::vector<std::byte>& row = rows[old_ids[directory.part_starts[part] + i]];
        ASSERT_EQ(std::memcmp(pages.data() + i * directory.row_stride, row.data(), row.size()), 0)
            << part << " " << i;
      }
    }
  }

  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  PartitionedStore world_{*backend_};
};

TEST_F(StoredPartitioningTest, HoldsTheGraphAndItsRowsByPart) {
  uint64_t seed = 1;
  for (const uint32_t parts : {1U, 2U, 3U, 8U, 33U}) {
    for (const char* table : {"", "feature", "narrow", "padded", "wide", "label"}) {
      SCOPED_TRACE(testing::Message() << parts << " parts, table " << table << ", seed " << ++seed);
      const Assignment assignment = RandomAssignment(SmallStore::kNodes, parts, seed);
      const auto record = Build({.name = "p", .table = table, .method = "random", .seed = seed}, assignment);
      ASSERT_OK(record);
      EXPECT_EQ(world_.budget.used_bytes(), 0U);
      EXPECT_EQ(record->part_count, parts);
      EXPECT_EQ(record->edge_count, 9000U);
      const auto opened = Open("p");
      ASSERT_NE(opened, nullptr);
      ASSERT_NO_FATAL_FAILURE(ExpectWhole(*opened, assignment));
    }
  }
  EXPECT_THAT(FaultsIn(*world_.store), IsEmpty());
  world_.Reopen();
  EXPECT_EQ(world_.store->manifest()->partitionings.size(), 1U);
  EXPECT_EQ(world_.store->manifest()->FindPartitioning("p")->generation, 30U);
  EXPECT_THAT(FaultsIn(*world_.store), IsEmpty());
}

TEST_F(StoredPartitioningTest, PartsMayBeEmpty) {
  Assignment assignment{.parts = 5, .part_of = std::vector<uint32_t>(SmallStore::kNodes, 3)};
  ASSERT_OK(Build({.table = "narrow"}, assignment));
  const auto opened = Open();
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(*opened, assignment));
  EXPECT_EQ(opened->directory().part_bytes(0), 0U);
  EXPECT_EQ(opened->record().cut_edges, 0U);
}

TEST_F(StoredPartitioningTest, RowsAreTheNewest) {
  WriteBatch batch;
  for (const uint64_t row : {0, 17, 599}) batch.Put("narrow", row, testing_util::RandomBytes(28, row + 100));
  batch.Delete("narrow", 5);
  ASSERT_OK(world_.store->Write(batch));
  const Assignment assignment = RandomAssignment(SmallStore::kNodes, 4, 3);
  const auto record = Build({.table = "narrow"}, assignment);
  ASSERT_OK(record);
  EXPECT_EQ(record->timestamp, world_.store->TakeSnapshot().value()->timestamp);
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(*Open(), assignment));
}

TEST_F(StoredPartitioningTest, ABuildReplacesTheOneOfItsNameAndNoOther) {
  ASSERT_OK(Build({.name = "a"}, RandomAssignment(SmallStore::kNodes, 2, 1)));
  ASSERT_OK(Build({.name = "b"}, RandomAssignment(SmallStore::kNodes, 3, 2)));
  const Assignment assignment = RandomAssignment(SmallStore::kNodes, 4, 3);
  ASSERT_OK(Build({.name = "a"}, assignment));
  EXPECT_FALSE(fs::exists(FolderOf("partitions/a-1")));
  EXPECT_TRUE(fs::exists(FolderOf("partitions/a-2/parts.qpp")));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(*Open("a"), assignment));
  EXPECT_EQ(Open("b")->directory().parts(), 3U);
  EXPECT_THAT(FaultsIn(*world_.store), IsEmpty());
}

TEST_F(StoredPartitioningTest, DroppingTakesTheRecordAndTheFile) {
  ASSERT_OK(Build({.name = "a"}, RandomAssignment(SmallStore::kNodes, 2, 1)));
  ASSERT_OK(DropPartitioning(*world_.store, "a"));
  EXPECT_TRUE(fs::is_empty(FolderOf("partitions")));
  EXPECT_EQ(world_.store->manifest()->FindPartitioning("a"), nullptr);
  const Status gone = DropPartitioning(*world_.store, "a");
  EXPECT_THAT(gone, IsStatus(Code::kNotFound));
  EXPECT_THAT(std::string(gone.message()), HasSubstr("partitionings: none"));
  EXPECT_THAT(StoredPartitioning::Open(*world_.store, world_.budget, "a"), IsStatus(Code::kNotFound));
}

TEST_F(StoredPartitioningTest, AnInterruptedBuildLeavesAFolderThatTheNextOneTakes) {
  const Assignment assignment = RandomAssignment(SmallStore::kNodes, 4, 3);
  const auto stopped =
      BuildPartitioning(*world_.store, world_.budget, {.table = "feature"}, assignment,
                        [](std::string_view phase, uint64_t, uint64_t) {
                          return phase == "writing buckets" ? Status(Code::kCancelled, "stop") : Status::Ok();
                        });
  EXPECT_THAT(stopped, IsStatus(Code::kCancelled));
  EXPECT_EQ(world_.budget.used_bytes(), 0U);
  EXPECT_TRUE(fs::exists(FolderOf("partitions/default.building")));
  world_.Reopen();
  const auto report = VerifyStore(*world_.store, {});
  ASSERT_OK(report);
  EXPECT_THAT(report->faults, IsEmpty());
  ASSERT_EQ(report->notes.size(), 1U);
  EXPECT_THAT(report->notes[0], HasSubstr("an interrupted build of partitioning \"default\""));
  ASSERT_OK(Build({.table = "feature"}, assignment));
  EXPECT_FALSE(fs::exists(FolderOf("partitions/default.building")));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(*Open(), assignment));
  // Dropped, where no record names it.
  fs::create_directories(FolderOf("partitions/other.building"));
  ASSERT_OK(DropPartitioning(*world_.store, "other"));
  EXPECT_FALSE(fs::exists(FolderOf("partitions/other.building")));
}

TEST_F(StoredPartitioningTest, AFolderThatNoRecordNamesIsALeftover) {
  ASSERT_OK(Build({}, RandomAssignment(SmallStore::kNodes, 2, 1)));
  fs::copy(FolderOf("partitions/default-1"), FolderOf("partitions/default-2"), fs::copy_options::recursive);
  world_.Reopen();
  EXPECT_THAT(world_.store->leftovers(), testing::ElementsAre("partitions/default-2"));
  EXPECT_THAT(FaultsIn(*world_.store), IsEmpty());
  ASSERT_OK(world_.store->PrepareToWrite());
  EXPECT_FALSE(fs::exists(FolderOf("partitions/default-2")));
  EXPECT_TRUE(fs::exists(FolderOf("partitions/default-1")));
}

TEST_F(StoredPartitioningTest, OtherDataAreRefused) {
  ASSERT_OK(Build({.table = "narrow"}, RandomAssignment(SmallStore::kNodes, 2, 1)));
  ASSERT_OK(world_.store->UpdateManifest([](Manifest& manifest) {
    manifest.partitionings[0].topology_generation = 7;
    return Status::Ok();
  }));
  const auto opened = StoredPartitioning::Open(*world_.store, world_.budget, "default");
  EXPECT_THAT(opened, IsStatus(Code::kUnsupported));
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("quarry partition build"));
}

TEST_F(StoredPartitioningTest, ATableThatItNeedsIsNotDropped) {
  ASSERT_OK(Build({.name = "p", .table = "narrow"}, RandomAssignment(SmallStore::kNodes, 2, 1)));
  const Status refused = world_.store->DropTable("narrow");
  EXPECT_THAT(refused, IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("partitioning \"p\" needs table \"narrow\""));
  ASSERT_OK(DropPartitioning(*world_.store, "p"));
  EXPECT_OK(world_.store->DropTable("narrow"));
}

TEST_F(StoredPartitioningTest, ACheckpointHasIt) {
  const Assignment assignment = RandomAssignment(SmallStore::kNodes, 4, 5);
  ASSERT_OK(Build({.table = "narrow"}, assignment));
  const std::string copy = world_.world.folder.path() + "/copy";
  ASSERT_OK(CheckpointStore(*world_.store, world_.budget, copy, {}));
  const auto store = Store::Open(*backend_, copy);
  ASSERT_OK(store);
  EXPECT_THAT(FaultsIn(**store), IsEmpty());
  const auto opened = StoredPartitioning::Open(**store, world_.budget, "default");
  ASSERT_OK(opened);
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(**opened, assignment));
}

TEST_F(StoredPartitioningTest, HasLabelsAndSplitsByPart) {
  const Assignment assignment = RandomAssignment(SmallStore::kNodes, 7, 4);
  WriteBatch batch;  // rows that changed are there as they are now
  batch.SetLabel(77, 3);
  batch.SetSplit(77, Split::kTest);
  ASSERT_OK(world_.store->Write(batch));
  ASSERT_OK(Build({.table = "narrow"}, assignment));
  const auto parts = Open();
  const PartitionDirectory& directory = parts->directory();
  ASSERT_TRUE(directory.has_labels());
  EXPECT_EQ(directory.class_count, SmallStore::kClasses);
  std::vector<NodeId> old_ids(SmallStore::kNodes);
  ASSERT_OK(parts->ReadOldIds(0, old_ids));
  const auto labels = RowsNow(*world_.store, "label"), splits = RowsNow(*world_.store, "split");
  for (uint32_t part = 0; part < 7; ++part) {
    const auto label_pages = ReadPages(*parts, parts->LabelsAt(part), directory.BytesOf(part, 8));
    const auto split_pages = ReadPages(*parts, parts->SplitsAt(part), directory.BytesOf(part, 1));
    ASSERT_OK(parts->VerifyLabels(part, label_pages));
    ASSERT_OK(parts->VerifySplits(part, split_pages));
    SplitCounts counts;
    for (uint64_t i = 0; i < directory.part_nodes(part); ++i) {
      const NodeId node = old_ids[directory.part_starts[part] + i];
      ASSERT_EQ(std::memcmp(label_pages.data() + 8 * i, labels[node].data(), 8), 0);
      ASSERT_EQ(split_pages[i], splits[node][0]);
      int64_t label = 0;
      std::memcpy(&label, labels[node].data(), 8);
      const auto split = static_cast<size_t>(splits[node][0]);
      if (split > 0 && (split > 1 || label >= 0)) ++counts.nodes[split - 1];
    }
    for (const Split split : {Split::kTrain, Split::kValid, Split::kTest}) {
      EXPECT_EQ(directory.splits[part].of(split), counts.of(split)) << "part " << part;
    }
  }
  ASSERT_OK(Build({}, assignment));
  EXPECT_FALSE(Open()->directory().has_labels()) << "without rows nothing is classified";
}

TEST_F(StoredPartitioningTest, TrainingNodesComeFirstWhereTheyAreAskedFor) {
  for (const uint32_t parts : {2U, 5U, 16U}) {
    const auto record =
        MakePartitioning(*world_.store, world_.budget, {.table = "narrow", .training_first = true},
                         {.method = PartitionMethod::kRandom, .parts = parts, .seed = 5}, {});
    ASSERT_OK(record);
    EXPECT_EQ(record->method, "random --training-first") << "as the command that makes it again has it";
    const auto opened = Open();
    const PartitionDirectory& directory = opened->directory();
    const uint64_t part_nodes = CeilDiv(SmallStore::kNodes, uint64_t{parts});
    const uint64_t training = directory.NodesIn(Split::kTrain);
    EXPECT_EQ(directory.training_parts(), CeilDiv(training, part_nodes));
    uint64_t left = training;
    for (uint32_t part = 0; part < parts; ++part) {
      EXPECT_LE(directory.part_nodes(part), part_nodes);
      EXPECT_EQ(directory.splits[part].of(Split::kTrain), std::min(left, part_nodes)) << "part " << part;
      left -= std::min(left, part_nodes);
    }
  }
}

// A flipped bit in any page of the file is found by verifying it, and repaired by dropping what is derived.
TEST_F(StoredPartitioningTest, EveryDamagedPageIsFound) {
  ASSERT_OK(Build({.table = "narrow"}, RandomAssignment(SmallStore::kNodes, 3, 5)));
  const PartitioningRecord record = world_.store->manifest()->partitionings[0];
  const std::string path = FolderOf(PartsFileOf(record));
  Rng rng(6);
  for (uint64_t page = 0; page < record.file_bytes / kPageBytes; ++page) {
    const uint64_t offset = page * kPageBytes + rng.Below(kPageBytes);
    FlipByte(path, offset);
    EXPECT_THAT(FaultsIn(*world_.store), HasSubstr("parts.qpp")) << "page " << page << ", offset " << offset;
    FlipByte(path, offset);
  }
  EXPECT_THAT(FaultsIn(*world_.store), IsEmpty());
  FlipByte(path, 2 * kPageBytes);
  const auto found = VerifyStore(*world_.store, {});
  ASSERT_OK(found);
  ASSERT_EQ(found->damages.size(), 1U);
  EXPECT_EQ(found->damages[0].kind, Damage::Kind::kPartitioning);
  const auto repaired = RepairStore(*world_.store, *found, {});
  ASSERT_OK(repaired);
  EXPECT_EQ(repaired->partitionings.size(), 1U);
  EXPECT_TRUE(world_.store->manifest()->partitionings.empty());
  EXPECT_THAT(FaultsIn(*world_.store), IsEmpty());
}

TEST_F(StoredPartitioningTest, ImpossibleSpecsAreRefused) {
  const Assignment two = RandomAssignment(SmallStore::kNodes, 2, 1);
  EXPECT_THAT(Build({.name = "a/b"}, two), IsStatus(Code::kUsage));
  EXPECT_THAT(Build({.name = ""}, two), IsStatus(Code::kUsage));
  EXPECT_THAT(Build({.topology = "none"}, two), IsStatus(Code::kNotFound));
  EXPECT_THAT(Build({.table = "none"}, two), IsStatus(Code::kNotFound));
  EXPECT_THAT(Build({}, {.parts = 0, .part_of = {}}), IsStatus(Code::kUsage));
  EXPECT_THAT(Build({}, {.parts = 4096, .part_of = std::vector<uint32_t>(SmallStore::kNodes)}),
              IsStatus(Code::kUsage));
  EXPECT_THAT(Build({}, RandomAssignment(SmallStore::kNodes - 1, 2, 1)), IsStatus(Code::kInvalidArgument));
  Assignment outside = two;
  outside.part_of[77] = 2;
  const auto refused = Build({}, outside);
  EXPECT_THAT(refused, IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("node 77 is assigned to part 2"));
  EXPECT_FALSE(fs::exists(FolderOf("partitions/default.building")));
}

TEST_F(StoredPartitioningTest, MadeByEachPartitioner) {
  for (const PartitionMethod method :
       {PartitionMethod::kGrem, PartitionMethod::kMetis, PartitionMethod::kBgl, PartitionMethod::kRandom}) {
    SCOPED_TRACE(NameOf(method));
    const auto record = MakePartitioning(*world_.store, world_.budget, {.table = "narrow"},
                                         {.method = method, .parts = 4, .seed = 5}, {});
    ASSERT_OK(record);
    EXPECT_EQ(record->method, NameOf(method));
    EXPECT_EQ(record->seed, 5U);
    const auto opened = Open();
    std::vector<NodeId> old_ids(SmallStore::kNodes);
    ASSERT_OK(opened->ReadOldIds(0, old_ids));
    Assignment assignment{.parts = 4, .part_of = std::vector<uint32_t>(SmallStore::kNodes)};
    for (NodeId id = 0; id < SmallStore::kNodes; ++id) {
      assignment.part_of[old_ids[id]] = opened->directory().PartOf(id);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(*opened, assignment));
    for (const uint64_t nodes : assignment.Sizes()) EXPECT_LE(nodes, SmallStore::kNodes / 4);
  }
  EXPECT_THAT(FaultsIn(*world_.store), IsEmpty());
  EXPECT_THAT(MakePartitioning(*world_.store, world_.budget, {.name = "../x"}, {}, {}),
              IsStatus(Code::kUsage));
  EXPECT_THAT(MakePartitioning(*world_.store, world_.budget, {}, {.parts = 5000}, {}),
              IsStatus(Code::kUsage));
  EXPECT_THAT(MakePartitioning(*world_.store, world_.budget, {.table = "none"}, {}, {}),
              IsStatus(Code::kNotFound));
}

// More edges than the sort holds, so that they are merged from the disk; and less memory is refused.
TEST(PartitioningMemoryTest, ABuildKeepsToItsBudget) {
  const TinyDatabase database({.nodes = 20'000, .dim = 8, .degree = 30, .labels = false, .splits = false});
  const auto backend = MakeDefaultBackend();
  const auto store = Store::Open(*backend, database.path()).value();
  const Assignment assignment = RandomAssignment(20'000, 7, 9);
  uint64_t least = 0;
  for (uint64_t mebibytes = 8; mebibytes <= 64 && least == 0; mebibytes += 4) {
    MemoryBudget budget(mebibytes * kMiB);
    const auto built = BuildPartitioning(*store, budget, {.table = "feature"}, assignment, {});
    EXPECT_EQ(budget.used_bytes(), 0U);
    if (built.ok()) {
      least = mebibytes;
    } else {
      EXPECT_THAT(built, IsStatus(Code::kOutOfBudget));
    }
  }
  ASSERT_GT(least, 8U);
  ASSERT_LE(least, 32U);
  EXPECT_THAT(FaultsIn(*store), IsEmpty());
  // The file is the same whatever memory it was made in.
  const auto read = [&] {
    const PartitioningRecord record = store->manifest()->partitionings[0];
    MemoryBudget budget(64 * kMiB);
    const auto opened = StoredPartitioning::Open(*store, budget, "default").value();
    IoBuffer pages = IoBuffer::Allocate(opened->directory().buckets_bytes).value();
    EXPECT_OK(backend->ReadAt(opened->file(), opened->BucketAt(0, 0), pages.span()));
    return std::vector<std::byte>(pages.span().begin(), pages.span().end());
  };
  const auto small = read();
  MemoryBudget large(uint64_t{1} << 30);
  ASSERT_OK(BuildPartitioning(*store, large, {.table = "feature"}, assignment, {}));
  EXPECT_TRUE(read() == small);
}

}  // namespace
}  // namespace quarry
