// Checkpoints: copies of a database as of one instant, made while others use it, and restored.
#include "quarry/storage/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "embedding/trained_tables.h"
#include "quarry/base/units.h"
#include "quarry/storage/compaction.h"
#include "quarry/storage/training_state.h"
#include "storage/small_store.h"
#include "storage/store_rows.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::FaultsIn;
using testing_util::Medium;
using testing_util::RandomBytes;
using testing_util::RowsNow;
using testing_util::ScratchFolder;
using testing_util::SmallStore;
using testing_util::TableRows;
using testing_util::TrainedTables;

struct stat StatOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info;
}

class CheckpointTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open(const std::string& path) {
    auto store = Store::Open(*backend_, path);
    EXPECT_OK(store);
    return store.ok() ? std::move(store).value() : nullptr;
  }
  CheckpointReport Checkpoint(Store& store, const std::string& path) {
    const auto report = CheckpointStore(store, budget_, path, {});
    EXPECT_OK(report);
    EXPECT_FALSE(fs::exists(path + ".copying"));
    EXPECT_EQ(budget_.used_bytes(), 0u);
    return report.ok() ? *report : CheckpointReport{};
  }
  void Put(Store& store, const std::string& table, uint64_t row, std::span<const std::byte> value) {
    WriteBatch batch;
    batch.Put(table, row, value);
    const auto written = store.Write(batch);
    ASSERT_OK(written);
  }

  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{kGiB};
};

// A database that is written to, and what it must hold.
struct Twin {
  std::unique_ptr<Store> store;
  std::map<std::string, TableRows> rows;
};

class CheckpointModelTest : public CheckpointTest {
 protected:
  static constexpr const char* kTables[] = {"feature", "narrow"};

  void Step(Twin& twin, Rng& rng) {
    const std::string table = kTables[rng.Below(2)];
    const uint64_t what = rng.Below(10);
    if (what == 0) {
      const std::string path = twin.store->path();
      twin.store.reset();
      twin.store = Open(path);
    } else if (what == 1) {
      const auto report = CompactTable(*twin.store, budget_, table, false, {});
      ASSERT_OK(report);
    } else {
      Write(twin, table, rng);
    }
  }
  void Write(Twin& twin, const std::string& table, Rng& rng) {
    WriteBatch batch;
    TableRows& rows = twin.rows[table];
    for (uint64_t i = 1 + rng.Below(10); i > 0; --i) {
      const uint64_t row = rng.Below(rows.size());
      rows[row] = RandomBytes(rows[row].size(), rng());
      batch.Put(table, row, rows[row]);
    }
    const auto written = twin.store->Write(batch);
    ASSERT_OK(written);
  }
  void ExpectRows(Twin& twin) {
    EXPECT_EQ(FaultsIn(*twin.store), "");
    for (const auto& [table, rows] : twin.rows) EXPECT_TRUE(RowsNow(*twin.store, table) == rows) << table;
  }
};

TEST_F(CheckpointModelTest, DatabaseAndCheckpointGoTheirOwnWays) {
  const uint64_t seed_count = testing_util::Repetitions(2);
  for (uint64_t seed = 1; seed <= seed_count; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    SmallStore small(*backend_, Medium::kMemory);
    ASSERT_OK(small.Write());
    Twin twin{.store = Open(small.path())};
    for (const char* table : kTables) twin.rows[table] = RowsNow(*twin.store, table);
    for (uint64_t i = rng.Below(20); i > 0; --i) Step(twin, rng);

    const auto snapshot = twin.store->TakeSnapshot().value();
    const std::string path = small.folder.path() + "/checkpoint";
    EXPECT_EQ(Checkpoint(*twin.store, path).timestamp, snapshot->timestamp);
    Twin copy{.store = Open(path), .rows = twin.rows};
    ExpectRows(copy);
    for (uint64_t i = 0; i < 20; ++i) Step(rng.Below(2) == 0 ? twin : copy, rng);
    ExpectRows(twin);
    ExpectRows(copy);

    // Restoring: of the copy as it is by now.
    const std::string restored = small.folder.path() + "/restored";
    Checkpoint(*copy.store, restored);
    Twin again{.store = Open(restored), .rows = copy.rows};
    for (uint64_t i = 0; i < 10; ++i) Step(again, rng);
    ExpectRows(again);
    ExpectRows(copy);
  }
}

TEST_F(CheckpointTest, WhatNobodyChangesIsOneFileInBoth) {
  SmallStore small(*backend_, Medium::kMemory);
  ASSERT_OK(small.Write());
  auto store = Open(small.path());
  const std::vector<std::byte> state(5000, std::byte{7});
  ASSERT_OK(CheckpointTraining(*store, {.name = "run", .settings = "", .timestamp = 1, .state = state},
                               [&](const ManifestChange& change) { return store->UpdateManifest(change); }));
  const std::string path = small.folder.path() + "/checkpoint";
  const CheckpointReport report = Checkpoint(*store, path);
  EXPECT_EQ(report.files_reflinked, 0u);
  EXPECT_GE(report.files_linked, small.tables.size() + 2);
  std::vector<std::string> shared = {small.manifest.topologies[0].file, "training/1.qts"};
  for (const TableRecord& table : small.manifest.tables) shared.push_back(table.file);
  uint64_t bytes = 0;
  for (const std::string& file : shared) {
    EXPECT_EQ(StatOf(small.path() + "/" + file).st_ino, StatOf(path + "/" + file).st_ino) << file;
    bytes += fs::file_size(path + "/" + file);
  }
  for (const auto& entry : fs::directory_iterator(path + "/catalog")) {
    bytes += entry.file_size();
    if (entry.path().extension() == ".sst") {
      EXPECT_EQ(entry.hard_link_count(), 2u) << entry.path();
    } else {
      EXPECT_EQ(entry.hard_link_count(), 1u) << entry.path() << " may be changed";
    }
  }
  EXPECT_EQ(report.bytes, bytes);
  for (const char* file : {"LOCK", "VERSION"}) EXPECT_EQ(fs::hard_link_count(path + "/" + file), 1u);
  EXPECT_EQ(ReadTrainingState(*Open(path), "run").value(), state);
  // A database that is gone takes nothing with it.
  const TableRows rows = RowsNow(*store, "wide");
  store.reset();
  fs::remove_all(small.path());
  store = Open(path);
  EXPECT_EQ(FaultsIn(*store), "");
  EXPECT_TRUE(RowsNow(*store, "wide") == rows);
}

TEST_F(CheckpointTest, OnAnotherFileSystemFilesAreCopied) {
  SmallStore small(*backend_, Medium::kDisk);
  ASSERT_OK(small.Write());
  const ScratchFolder elsewhere(Medium::kMemory);
  if (StatOf(small.folder.path()).st_dev == StatOf(elsewhere.path()).st_dev) {
    GTEST_SKIP() << "there is one file system";
  }
  const auto store = Open(small.path());
  Put(*store, "feature", 3, RandomBytes(512, 1));
  const std::string path = elsewhere.path() + "/checkpoint";
  const CheckpointReport report = Checkpoint(*store, path);
  EXPECT_EQ(report.files_linked, 0u);
  EXPECT_GE(report.files_copied, small.tables.size() + 1);
  EXPECT_EQ(report.bytes_copied, report.bytes);
  EXPECT_EQ(report.timestamp, 1u);
  const auto copy = Open(path);
  EXPECT_EQ(FaultsIn(*copy), "");
  const std::shared_ptr<const Manifest> manifest = store->manifest();
  for (const TableRecord& table : manifest->tables) {
    EXPECT_TRUE(RowsNow(*copy, table.name) == RowsNow(*store, table.name)) << table.name;
  }
}

std::vector<std::byte> ValueOf(uint64_t commit, uint64_t bytes) { return RandomBytes(bytes, commit); }

TEST_F(CheckpointTest, OfCommitsThatAreMadeMeanwhileItHasAPrefix) {
  SmallStore small(*backend_, Medium::kMemory);
  ASSERT_OK(small.Write());
  const auto store = Open(small.path());
  std::map<std::string, TableRows> base;
  for (const char* table : {"feature", "narrow"}) base[table] = RowsNow(*store, table);
  // Commit t writes row t of both tables.
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> commits{0};
  const auto write = [&] {
    for (uint64_t t = 1; !stop; ++t) {
      WriteBatch batch;
      batch.Put("feature", t % SmallStore::kNodes, ValueOf(t, 512));
      batch.Put("narrow", t % SmallStore::kNodes, ValueOf(t, 28));
      const auto written = store->Write(batch);
      ASSERT_OK(written);
      ASSERT_EQ(*written, t);
      commits = t;
    }
  };
  std::thread writer([&] {
    write();
    stop = true;  // also when it failed
  });
  MemoryBudget compaction_budget{kGiB};
  std::thread compactor([&] {
    while (!stop) {
      const auto report = CompactTable(*store, compaction_budget, "feature", false, {});
      ASSERT_OK(report);
    }
  });
  for (int i = 0; i < 3; ++i) {
    const uint64_t before = commits;
    while (commits < before + 20 && !stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const uint64_t least = commits;
    const std::string path = fmt::format("{}/checkpoint-{}", small.folder.path(), i);
    const uint64_t timestamp = Checkpoint(*store, path).timestamp;
    EXPECT_GE(timestamp, least) << "what was committed before";
    const auto copy = Open(path);
    EXPECT_EQ(copy->TakeSnapshot().value()->timestamp, timestamp);
    EXPECT_EQ(FaultsIn(*copy), "");
    for (auto& [table, rows] : base) {
      TableRows expected = rows;
      for (uint64_t t = 1; t <= timestamp; ++t) {
        expected[t % SmallStore::kNodes] = ValueOf(t, rows[0].size());
      }
      EXPECT_TRUE(RowsNow(*copy, table) == expected) << table << " after " << timestamp << " commits";
    }
  }
  stop = true;
  writer.join();
  compactor.join();
}

TEST_F(CheckpointTest, CancelledAtAnyTimeItLeavesNothing) {
  SmallStore small(*backend_, Medium::kMemory);
  ASSERT_OK(small.Write());
  const auto store = Open(small.path());
  const std::string path = small.folder.path() + "/checkpoint";
  bool done = false;
  for (int calls = 0; !done; ++calls) {
    int left = calls;
    const auto report = CheckpointStore(*store, budget_, path, [&](std::string_view, uint64_t, uint64_t) {
      return left-- > 0 ? Status::Ok() : Status(Code::kCancelled, "enough");
    });
    done = report.ok();
    EXPECT_EQ(report.status().code(), done ? Code::kOk : Code::kCancelled);
    EXPECT_EQ(fs::exists(path), done);
    EXPECT_FALSE(fs::exists(path + ".copying"));
  }
}

TEST_F(CheckpointTest, ItNeedsAPlaceOfItsOwn) {
  SmallStore small(*backend_, Medium::kMemory);
  ASSERT_OK(small.Write());
  const auto store = Open(small.path());
  const auto code = [&](const std::string& path) {
    return CheckpointStore(*store, budget_, path, {}).status().code();
  };
  EXPECT_EQ(code(small.path()), Code::kInvalidArgument);
  EXPECT_EQ(code(small.path() + "/copy"), Code::kInvalidArgument);
  EXPECT_EQ(code(small.folder.path() + "/../" + fs::path(small.folder.path()).filename().string() + "/db/x"),
            Code::kInvalidArgument);
  EXPECT_EQ(code(small.folder.path() + "/no/such"), Code::kNotFound);
  EXPECT_EQ(code(small.folder.path()), Code::kAlreadyExists);
  EXPECT_EQ(code(small.folder.path() + "/db2"), Code::kOk) << "a name that only starts like the database's";
  EXPECT_EQ(code(small.folder.path() + "/db2"), Code::kAlreadyExists);
  // What a killed one left.
  fs::create_directories(small.folder.path() + "/db3.copying/db/features");
  std::ofstream(small.folder.path() + "/db3.copying/db/features/feature-1.qft") << "half";
  EXPECT_EQ(code(small.folder.path() + "/db3/"), Code::kOk);
  EXPECT_EQ(FaultsIn(*Open(small.folder.path() + "/db3")), "");
}

TEST_F(CheckpointTest, AFileThatIsMissingOrCutOffIsRefused) {
  SmallStore small(*backend_, Medium::kMemory);
  ASSERT_OK(small.Write());
  const auto store = Open(small.path());
  const std::string path = small.folder.path() + "/checkpoint";
  fs::resize_file(small.path() + "/features/wide-1.qft", 8192);
  Status status = CheckpointStore(*store, budget_, path, {}).status();
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(std::string(status.message()), HasSubstr("wide-1.qft: 8192 bytes"));
  fs::remove(small.path() + "/features/wide-1.qft");
  status = CheckpointStore(*store, budget_, path, {}).status();
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(std::string(status.message()), HasSubstr("wide-1.qft: the catalog names this file"));
  EXPECT_FALSE(fs::exists(path));
}

class EmbeddingCheckpointTest : public CheckpointTest {
 protected:
  EmbeddingCheckpointTest() {
    const Status status = testing_util::CreateEmptyDatabase(*backend_, path_);
    EXPECT_OK(status);
    store_ = Open(path_);
  }
  // Opens a copy and holds its tables against the training up to the timestamp that its manifest has.
  void ExpectCopy(const std::string& path) {
    const auto copy = Open(path);
    EXPECT_THAT(testing_util::FaultsOf(*copy), testing::IsEmpty());
    TrainedTables tables(kSeed);
    Status status = tables.Open(*copy);
    ASSERT_OK(status);
    const std::shared_ptr<const Manifest> manifest = copy->manifest();
    const std::string& source = manifest->source;
    const int64_t timestamp = source.empty() ? kNeverWritten : std::stoll(source);
    tables.ExpectState(*copy, timestamp, tables.WritesUpTo(timestamp));
    // It goes on by itself.
    const int64_t next = std::max<int64_t>(timestamp + 1, 0);
    ASSERT_OK(tables.Train(next));
    status = tables.Checkpoint(*copy, next);
    ASSERT_OK(status);
    EXPECT_THAT(testing_util::FaultsOf(*copy), testing::IsEmpty());
  }

  static constexpr uint64_t kSeed = 11;
  const ScratchFolder folder_{Medium::kMemory};
  const std::string path_ = folder_.path() + "/db";
  std::unique_ptr<Store> store_;
};

TEST_F(EmbeddingCheckpointTest, ItHasTheLastCheckpointOfEmbeddingsAndNoOtherPages) {
  TrainedTables tables(kSeed);
  ASSERT_OK(tables.Create(*store_));
  Checkpoint(*store_, folder_.path() + "/empty");
  ExpectCopy(folder_.path() + "/empty");
  ASSERT_OK(tables.Open(*store_));
  for (int64_t t = 0; t <= 40; ++t) ASSERT_OK(tables.Train(t));
  ASSERT_OK(tables.Checkpoint(*store_, 40));
  for (int64_t t = 41; t <= 80; ++t) ASSERT_OK(tables.Train(t));
  const std::string path = folder_.path() + "/checkpoint";
  const CheckpointReport report = Checkpoint(*store_, path);
  EXPECT_LT(fs::file_size(path + "/embeddings/nodes-1.qet"),
            fs::file_size(path_ + "/embeddings/nodes-1.qet"));
  EXPECT_EQ(report.files_reflinked, 0u) << "tmpfs cannot";
  EXPECT_THAT(testing_util::FilesIn(path + "/embeddings"),
              testing::ElementsAre("nodes-1-1.qem", "nodes-1.qet", "relations-1-1.qem", "relations-1.qet"));
  ExpectCopy(path);
  ASSERT_OK(tables.Checkpoint(*store_, 80));
  tables.ExpectState(*store_, 80, tables.WritesUpTo(80));
}

TEST_F(EmbeddingCheckpointTest, ItHasTheKeptCheckpointToo) {
  TrainedTables tables(kSeed);
  ASSERT_OK(tables.Create(*store_));
  ASSERT_OK(tables.Open(*store_));
  for (int64_t t = 0; t <= 40; ++t) ASSERT_OK(tables.Train(t));
  ASSERT_OK(tables.Checkpoint(*store_, 40, {}, KeptMap::kThis));
  const std::string first = folder_.path() + "/first";
  Checkpoint(*store_, first);
  for (int64_t t = 41; t <= 42; ++t) ASSERT_OK(tables.Train(t));
  ASSERT_OK(tables.Checkpoint(*store_, 42));
  const std::string path = folder_.path() + "/checkpoint";
  Checkpoint(*store_, path);
  const char* const pages = "/embeddings/nodes-1.qet";
  EXPECT_GT(fs::file_size(path + pages), fs::file_size(first + pages));
  EXPECT_LT(fs::file_size(path + pages), fs::file_size(first + pages) * 3 / 2) << "most pages are of both";
  {
    const auto copy = Open(path);
    EXPECT_THAT(testing_util::FaultsOf(*copy), testing::IsEmpty());
    TrainedTables copied(kSeed);
    ASSERT_OK(copied.Open(*copy));
    copied.ExpectState(*copy, 42, copied.WritesUpTo(42));
    copied.Close();
    ASSERT_OK(TrainedTables::ReturnTo(*copy, 40));
  }
  ExpectCopy(path);
}

TEST_F(EmbeddingCheckpointTest, TrainingGoesOnMeanwhile) {
  TrainedTables tables(kSeed);
  ASSERT_OK(tables.Create(*store_));
  ASSERT_OK(tables.Open(*store_));
  std::atomic<bool> stop{false};
  std::atomic<int64_t> trained{0};
  const auto train = [&] {
    for (int64_t t = 0; !stop; ++t) {
      ASSERT_OK(tables.Train(t));
      const Status status = t % 3 == 0 ? tables.Checkpoint(*store_, t) : Status::Ok();
      ASSERT_OK(status);
      trained = t;
    }
  };
  std::thread trainer([&] {
    train();
    stop = true;  // also when it failed
  });
  for (int i = 0; i < 4; ++i) {
    const int64_t before = trained;
    while (trained < before + 10 && !stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::string path = fmt::format("{}/checkpoint-{}", folder_.path(), i);
    Checkpoint(*store_, path);
    ExpectCopy(path);
  }
  stop = true;
  trainer.join();
}

TEST_F(EmbeddingCheckpointTest, APageThatDoesNotVerifyIsRefused) {
  TrainedTables tables(kSeed);
  ASSERT_OK(tables.Create(*store_));
  ASSERT_OK(tables.Open(*store_));
  ASSERT_OK(tables.Train(0));
  ASSERT_OK(tables.Checkpoint(*store_, 0));
  tables.Close();
  std::fstream file(path_ + "/embeddings/nodes-1.qet", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 100);
  file.put('\x55');
  file.close();
  const Status status = CheckpointStore(*store_, budget_, folder_.path() + "/checkpoint", {}).status();
  EXPECT_EQ(status.code(), Code::kCorruption) << status.ToString();
  EXPECT_THAT(std::string(status.message()), HasSubstr("nodes-1.qet: page"));
  EXPECT_FALSE(fs::exists(folder_.path() + "/checkpoint"));
}

}  // namespace
}  // namespace quarry
