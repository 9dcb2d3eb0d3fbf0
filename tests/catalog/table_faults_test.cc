// Tables of the catalog that cannot be opened or read, one after the other: RocksDB forgets some of these failures
// (table_guard.h), and whoever asked would be told of damage, or of less than there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quarry/catalog/catalog.h"
#include "support/catalog_faults.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing_util::FlipByte;

constexpr uint64_t kRows = 24;

class TableFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    // In memory, where there is some: openings are synced.
    const std::string above = fs::exists("/dev/shm") ? "/dev/shm/" : testing::TempDir();
    folder_ = above + "quarry-storage-tables-" + std::to_string(getpid());
    fs::remove_all(folder_);
    fs::create_directories(path());
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A catalog's database as RocksDB sees it, without what catalogs see to.
  struct OpenedTables {
    OpenedTables(const rocksdb::Options& options, const std::string& folder,
                 const std::vector<std::string>& names) {
      std::vector<rocksdb::ColumnFamilyDescriptor> families;
      for (const std::string& name : names) families.emplace_back(name, options);
      rocksdb::DB* opened = nullptr;
      EXPECT_TRUE(rocksdb::DB::Open(options, folder, families, &handles, &opened).ok());
      db.reset(opened);
    }
    ~OpenedTables() {
      for (rocksdb::ColumnFamilyHandle* const handle : handles) {
        EXPECT_TRUE(db->DestroyColumnFamilyHandle(handle).ok());
      }
      EXPECT_TRUE(db == nullptr || db->Close().ok());
    }
    OpenedTables(const OpenedTables&) = delete;
    OpenedTables& operator=(const OpenedTables&) = delete;

    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    std::unique_ptr<rocksdb::DB> db;
  };

  // Each opening leaves tables; dropped versions leave deleted ranges in them.
  void Make() {
    Manifest manifest;
    manifest.node_count = kRows;
    for (const char* name : {"a", "b"}) {
      manifest.tables.push_back(
          {.name = name, .file = std::string("features/") + name + "-1.qft", .row_count = kRows, .dim = 1});
    }
    ASSERT_OK(Catalog::Create(path()).value()->CommitManifest(manifest));
    for (uint64_t row = 0; row < kRows; ++row) {
      ASSERT_OK_AND_ASSIGN(const auto catalog, Catalog::Open(path(), /*read_only=*/false));
      if (row % 8 == 5) {
        ASSERT_OK(catalog->DropAllVersions("b"));
      }

      ASSERT_OK(Put(*catalog, "a", row, row + 1));
      ASSERT_OK(Put(*catalog, "b", row, row + 1));
      ASSERT_OK(catalog->Close());
    }
    Check();
  }

  static Status Put(Catalog& catalog, std::string_view table, uint64_t row, uint64_t timestamp) {
    const RowVersion version = {table, row, timestamp, std::as_bytes(std::span(&timestamp, 1))};
    return catalog.PutVersions({&version, 1}, /*sync=*/true);
  }

  // The newest version of each row of a table, or the error.
  static Result<std::map<uint64_t, uint64_t>> Rows(Catalog& catalog, std::string_view table) {
    std::map<uint64_t, uint64_t> rows;
    QUARRY_RETURN_IF_ERROR(catalog.ScanVersions(table, [&](const RowVersion& version) {
      rows.emplace(version.row, version.timestamp);
      return Status::Ok();
    }));
    return rows;
  }

  void Check() const {
    ASSERT_OK_AND_ASSIGN(const auto catalog, Catalog::Open(path(), /*read_only=*/true));
    EXPECT_TRUE(catalog->FindDoubts().value().empty());
    EXPECT_EQ(Rows(*catalog, "a").value().size(), kRows);
    EXPECT_EQ(Rows(*catalog, "b").value().size(), 3u) << "those since the last drop";
  }

  // A catalog of before there were ledgers, whose versions of "b" are deleted: each lies in a table of its own, and each
  // next table deletes them all.
  static void MakeOld(const std::string& folder, uint64_t rows) {
    rocksdb::Options options;
    options.create_if_missing = options.create_missing_column_families = true;
    options.disable_auto_compactions = true;
    const OpenedTables tables(options, folder, {"default", "schema", "manifest", "delta", "property"});
    ASSERT_NE(tables.db, nullptr);
    rocksdb::ColumnFamilyHandle* const versions = tables.handles[3];
    for (uint64_t row = 0; row < rows; ++row) {
      ASSERT_TRUE(tables.db->Put({}, versions, "b/" + std::to_string(row), "value").ok());
      ASSERT_TRUE(tables.db->Flush({}, versions).ok());
      ASSERT_TRUE(tables.db->DeleteRange({}, versions, "b", "c").ok());
      ASSERT_TRUE(tables.db->Flush({}, versions).ok());
    }
  }

  // Writes each entry with another value and then with its own again, and compacts every family after either, so that no
  // entry has a number. Tables that are replaced meanwhile stay in `all`.
  static void RewriteTwice(const fs::path& tables, const fs::path& all) {
    const rocksdb::Options options;
    std::vector<std::string> names;
    ASSERT_TRUE(rocksdb::DB::ListColumnFamilies(options, tables, &names).ok());
    const OpenedTables opened(options, tables, names);
    rocksdb::DB* const db = opened.db.get();
    const auto& handles = opened.handles;
    ASSERT_NE(db, nullptr);
    const auto keep_tables = [&] {
      for (const auto& entry : fs::directory_iterator(tables)) {
        const fs::path copy = all / entry.path().filename();
        if (entry.path().extension() == ".sst" && !fs::exists(copy)) fs::create_hard_link(entry, copy);
      }
    };
    std::vector<std::vector<std::pair<std::string, std::string>>> entries(handles.size());
    for (size_t i = 0; i < handles.size(); ++i) {
      const std::unique_ptr<rocksdb::Iterator> found(db->NewIterator({}, handles[i]));
      for (found->SeekToFirst(); found->Valid(); found->Next()) {
        entries[i].emplace_back(found->key().ToString(), found->value().ToString());
      }
    }
    for (const std::string_view before : {"other", ""}) {
      for (size_t i = 0; i < handles.size(); ++i) {
        for (const auto& [key, value] : entries[i]) {
          ASSERT_TRUE(db->Put({}, handles[i], key, std::string(before) + value).ok());
        }
        ASSERT_TRUE(db->Flush({}, handles[i]).ok());
        keep_tables();
        rocksdb::CompactRangeOptions compact;
        compact.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
        ASSERT_TRUE(db->CompactRange(compact, handles[i], nullptr, nullptr).ok());
        keep_tables();
      }
    }
  }

  std::string path() const { return folder_ + "/made"; }

  std::string folder_;
};

// What a reader is told when the k-th opening or read of a table fails: all there is, or an error of the disk.
TEST_F(TableFaultsTest, AReaderIsToldOfEachFailure) {
  ASSERT_NO_FATAL_FAILURE(Make());
  std::array<uint64_t, kCatalogFaultCount> struck{};
  for (const CatalogFault kind : {CatalogFault::kOpen, CatalogFault::kRead}) {
    for (const bool sticky : {false, true}) {
      for (uint64_t at = 1;; at += sticky ? 3 : 1) {
        SCOPED_TRACE(testing::Message()
                     << "fault " << static_cast<int>(kind) << (sticky ? " from " : " at ") << at);
        CatalogFaults faults;
        faults.SetPlan({.kind = kind, .at = at, .sticky = sticky, .error = EMFILE});
        const auto expect_told = [](const Status& status) {
          EXPECT_TRUE(status.ok() || status.code() == Code::kIoError) << status.ToString();
        };
        if (const auto catalog = Catalog::Open(path(), /*read_only=*/true); catalog.ok()) {
          for (const auto& [table, count] : {std::pair("a", kRows), {"b", uint64_t{3}}}) {
            const auto rows = Rows(**catalog, table);
            expect_told(rows.status());
            if (rows.ok()) {
              EXPECT_EQ(rows->size(), count) << table;
            }
          }
          const auto doubts = (*catalog)->FindDoubts();
          expect_told(doubts.status());
          if (doubts.ok()) {
            EXPECT_TRUE(doubts->empty());
          }

          const auto manifest = (*catalog)->ReadManifest();
          expect_told(manifest.status());
          if (manifest.ok()) {
            EXPECT_EQ(manifest->node_count, kRows);
          }

        } else {
          expect_told(catalog.status());
        }
        if (faults.strikes() == 0) break;
        ++struck[static_cast<size_t>(kind)];
      }
    }
  }
  EXPECT_GT(struck[static_cast<size_t>(CatalogFault::kOpen)], 20u);
  EXPECT_GT(struck[static_cast<size_t>(CatalogFault::kRead)], 20u);
}

// More tables than are opened with the database, and one that cannot be opened behind one with a deleted range: RocksDB
// would free that range twice (rocks.cc).
TEST_F(TableFaultsTest, ADeletedRangeIsFreedOnceWhenATableBehindItDoesNotOpen) {
  ASSERT_NO_FATAL_FAILURE(MakeOld(path() + "/catalog", 20));
  uint64_t told = 0;
  for (const bool sticky : {false, true}) {
    for (uint64_t at = 1;; ++at) {
      SCOPED_TRACE(testing::Message() << (sticky ? "from " : "at ") << at);
      CatalogFaults faults;
      faults.SetPlan({.kind = CatalogFault::kOpen, .at = at, .sticky = sticky, .error = EMFILE});
      if (const auto catalog = Catalog::Open(path(), /*read_only=*/true, /*anchored=*/false); catalog.ok()) {
        for (int again = 0; again < 3; ++again) {
          const auto rows = Rows(**catalog, "b");
          if (rows.ok()) {
            EXPECT_TRUE(rows->empty());
          } else {
            EXPECT_THAT(rows.status(), IsStatus(Code::kIoError));
            ++told;
          }
        }
      }
      if (faults.strikes() == 0) break;
    }
  }
  EXPECT_GT(told, 4u);
}

// Bits that flip anywhere in any table: damage is found, or does no harm.
TEST_F(TableFaultsTest, AReaderIsToldOfDamagedBlocks) {
  ASSERT_NO_FATAL_FAILURE(Make());
  uint64_t found = 0;
  for (const auto& entry : fs::directory_iterator(path() + "/catalog")) {
    if (entry.path().extension() != ".sst") continue;
    const std::string table = entry.path();
    const uint64_t bytes = fs::file_size(table);
    for (uint64_t offset = 0; offset < bytes; offset += 1 + bytes / 24) {
      SCOPED_TRACE(testing::Message() << table << ", byte " << offset);
      FlipByte(table, offset, 0x10);
      if (const auto catalog = Catalog::Open(path(), /*read_only=*/true); !catalog.ok()) {
        EXPECT_THAT(catalog.status(), IsStatus(Code::kCorruption));
        ++found;
      } else {
        for (const auto& [name, count] : {std::pair("a", kRows), {"b", uint64_t{3}}}) {
          const auto rows = Rows(**catalog, name);
          if (rows.ok()) {
            EXPECT_EQ(rows->size(), count) << name;
          } else {
            EXPECT_THAT(rows.status(), IsStatus(Code::kCorruption));
            ++found;
          }
        }
      }
      FlipByte(table, offset, 0x10);
    }
  }
  EXPECT_GT(found, 20u);
  Check();
}

// A writer, whose tables RocksDB compacts meanwhile: whatever fails, what was acknowledged stays, and the next one writes.
TEST_F(TableFaultsTest, ACompactionLosesNothing) {
  ASSERT_NO_FATAL_FAILURE(Make());
  const std::string original = folder_ + "/original";
  fs::copy(path(), original, fs::copy_options::recursive);
  uint64_t struck = 0;
  for (const CatalogFault kind : {CatalogFault::kOpen, CatalogFault::kRead}) {
    for (uint64_t at = 1;; at += 11) {
      SCOPED_TRACE(testing::Message() << "fault " << static_cast<int>(kind) << " at " << at);
      fs::remove_all(path());
      fs::copy(original, path(), fs::copy_options::recursive);
      {
        CatalogFaults faults;
        faults.SetPlan({.kind = kind, .at = at, .sticky = false, .error = EIO});
        for (int open = 0; open < 3; ++open) {
          const auto catalog = Catalog::Open(path(), /*read_only=*/false);
          if (!catalog.ok()) {
            EXPECT_THAT(catalog.status(), IsStatus(Code::kIoError));
            continue;
          }
          for (uint64_t row = 0; row < 4; ++row) {
            const Status status = Put(**catalog, "a", row, 100 + 10 * static_cast<uint64_t>(open) + row);
            EXPECT_TRUE(status.ok() || status.code() == Code::kIoError) << status.ToString();
          }
          const Status closed = (*catalog)->Close();
          EXPECT_TRUE(closed.ok() || closed.code() == Code::kIoError) << closed.ToString();
        }
        struck += faults.strikes();
        if (faults.strikes() == 0) break;
      }
      ASSERT_NO_FATAL_FAILURE(Check());
      ASSERT_OK_AND_ASSIGN(const auto catalog, Catalog::Open(path(), /*read_only=*/false));
      ASSERT_OK(Put(*catalog, "a", 0, 1000));
    }
  }
  EXPECT_GT(struck, 20u);
}

// Killed between a compaction and the removal of what it replaced: all tables there have ever been lie in the folder. Some
// entries of theirs have no number any more, so RocksDB cannot tell which is newer, and its iterators end the process.
TEST_F(TableFaultsTest, ARepairTellsReplacedTablesFromThoseThatCount) {
  ASSERT_NO_FATAL_FAILURE(Make());
  const fs::path tables = path() + "/catalog", all = folder_ + "/all";
  fs::create_directory(all);
  std::map<uint64_t, uint64_t> rows;
  {
    ASSERT_OK_AND_ASSIGN(const auto catalog, Catalog::Open(path(), /*read_only=*/true));
    rows = Rows(*catalog, "a").value();
  }
  ASSERT_NO_FATAL_FAILURE(RewriteTwice(tables, all));
  std::string counts;  // a table that does
  for (const auto& entry : fs::directory_iterator(tables)) {
    if (entry.path().extension() == ".sst") counts = std::max(counts, entry.path().string());
  }
  size_t replaced = 0;
  for (const auto& entry : fs::directory_iterator(all)) {
    const fs::path back = tables / entry.path().filename();
    if (fs::exists(back)) continue;
    fs::copy_file(entry, back);
    ++replaced;
  }
  ASSERT_GE(replaced, 8u) << "two compactions of each family that has entries";
  const auto salvage = [&](const std::string& name) {
    const std::string repaired = folder_ + "/" + name;
    fs::create_directory(repaired);
    ASSERT_OK_AND_ASSIGN(const SalvagedCatalog salvaged, Catalog::Salvage(path(), repaired));
    ASSERT_OK_AND_ASSIGN(const auto catalog, Catalog::Open(repaired, /*read_only=*/true));
    if (name == "exact") {
      EXPECT_TRUE(salvaged.doubts.empty());
    }
    ASSERT_OK_AND_ASSIGN(const std::vector<Doubt> doubts, catalog->FindDoubts());
    EXPECT_EQ(doubts.empty(), salvaged.doubts.empty());
    const auto in_doubt = [&](uint64_t row) {
      return std::ranges::any_of(doubts, [&](const Doubt& doubt) {
        return doubt.table == "a" && row >= doubt.first_row && row < doubt.first_row + doubt.row_count;
      });
    };
    ASSERT_OK_AND_ASSIGN(auto read, Rows(*catalog, "a"));
    for (const auto& [row, timestamp] : rows) {
      EXPECT_TRUE(in_doubt(row) || read[row] == timestamp) << name << ", row " << row;
    }
  };
  salvage("exact");
  FlipByte(counts, fs::file_size(counts) / 2, 0x10);
  salvage("beside-damage");
  FlipByte(counts, fs::file_size(counts) / 2, 0x10);
  fs::remove(tables / "CURRENT");
  salvage("guessed");
}

}  // namespace
}  // namespace quarry
