#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "quarry/base/random.h"
#include "quarry/catalog/catalog.h"
#include "support/catalog_faults.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LedgerTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "quarry-ledger-" + std::to_string(getpid());
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  void TearDown() override { fs::remove_all(path_); }

  static Manifest WithTables() {
    Manifest manifest;
    manifest.node_count = 100'000;
    for (const char* name : {"a", "b"}) {
      manifest.tables.push_back(
          {.name = name, .file = std::string("features/") + name + "-1.qft", .row_count = 100'000, .dim = 1});
    }
    return manifest;
  }
  static Status Put(Catalog& catalog, std::string_view table, std::span<const uint64_t> rows,
                    uint64_t timestamp, uint64_t value, bool sync = true) {
    std::vector<RowVersion> versions;
    for (const uint64_t row : rows) {
      versions.push_back({table, row, timestamp, std::as_bytes(std::span(&value, value % 7 == 0 ? 0 : 1))});
    }
    return catalog.PutVersions(versions, sync);
  }

  std::string path_;
};

// Whatever is written, replaced, dropped and staged, in memory, in the log or in tables: the ledger has
// counted what a recount finds.
TEST_F(LedgerTest, AgreesWithARecountAfterAnyWrites) {
  constexpr uint64_t kSeed = 5;
  Rng rng(kSeed);
  auto catalog = Catalog::Create(path_).value();
  ASSERT_OK(catalog->PutNames(NameKind::kEntity, 0, std::vector<std::string>{"x", "y"}));
  ASSERT_OK(catalog->CommitManifest(WithTables()));
  uint64_t timestamp = 0, staged = 0;
  std::vector<uint64_t> staged_rows;
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", write " << i);
    const std::string_view table = rng.Below(2) == 0 ? "a" : "b";
    std::vector<uint64_t> rows(1 + rng.Below(10));
    for (uint64_t& row : rows) row = rng.Below(rng.Below(2) == 0 ? 20 : 100'000);
    switch (rng.Below(9)) {
      case 0:
        ASSERT_OK(catalog->DropVersions(table, timestamp - std::min<uint64_t>(timestamp, 3)));
        break;
      case 1: {
        constexpr uint64_t kGenerations[] = {0, 1, 2, 254, 255, 256};
        const Catalog::FoldedRows folded{table,
                                         kGenerations[rng.Below(6)],
                                         {{rng.Below(3), std::vector<std::byte>(rng.Below(50))},
                                          {rng.Below(3), std::vector<std::byte>(1)}},
                                         rng.Below(4) == 0};
        ASSERT_OK(catalog->CommitManifest(WithTables(), &folded));
        break;
      }
      case 2:
        if (rng.Below(4) == 0) {
          ASSERT_OK(catalog->DropAllVersions(table));
        }
        break;
      case 3:
        if (rng.Below(4) == 0) {
          ASSERT_OK(catalog->CommitDrop(WithTables(), table));
        }
        break;
      case 4: {
        if (staged == 0) staged = timestamp + 1000;
        const uint64_t value = rng.Below(1000) + 1;
        std::vector<RowVersion> versions;
        for (const uint64_t row : rows) {
          versions.push_back({"a", row, staged, std::as_bytes(std::span(&value, 1))});
        }
        ASSERT_OK(catalog->StageVersions(
            versions, [&](size_t at) { return std::ranges::count(staged_rows, rows[at]) > 0; }));
        staged_rows.insert(staged_rows.end(), rows.begin(), rows.end());
        break;
      }
      case 5:
        if (staged == 0 || rng.Below(2) == 0) break;
        ASSERT_OK((rng.Below(2) == 0 ? catalog->DropStaged() : catalog->PublishStaged(timestamp = staged)));
        ASSERT_OK(catalog->DropStaged());
        staged = 0;
        staged_rows.clear();
        break;
      case 6:
        catalog.reset();
        ASSERT_TRUE(Catalog::Open(path_, true).value()->FindDoubts().value().empty());
        catalog = Catalog::Open(path_, false).value();
        break;
      default:
        ASSERT_OK(Put(*catalog, table, rows, ++timestamp, rng.Below(1000), rng.Below(2) == 0));
    }
    ASSERT_TRUE(catalog->FindDoubts().value().empty());
  }
}

// Commits by the thousand, so that steps are folded into tallies several times, also by commits that touch more ranges
// than steps may hold, and in catalogs that were opened in between.
TEST_F(LedgerTest, StepsAreFoldedIntoTallies) {
  constexpr uint64_t kSeed = 6, kCommits = 4000, kRange = uint64_t{1} << 14;
  Rng rng(kSeed);
  auto catalog = Catalog::Create(path_).value();
  ASSERT_OK(catalog->CommitManifest(WithTables()));
  for (uint64_t commit = 1; commit <= kCommits; ++commit) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", commit " << commit);
    std::vector<uint64_t> rows(commit % 1500 == 0 ? 5000 : 1 + rng.Below(3));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = i * kRange + rng.Below(kRange);
    const std::string_view table = rng.Below(2) == 0 ? "a" : "b";
    ASSERT_OK(Put(*catalog, table, rows, commit, rng.Below(1000), /*sync=*/false));
    if (rng.Below(500) == 0) {
      ASSERT_OK(catalog->DropVersions(table, commit - 1));  // down to tallies that are empty
    }
    if (rng.Below(700) == 0) {
      catalog.reset();
      catalog = Catalog::Open(path_, false).value();
    }
    if (commit % 250 == 0) {
      ASSERT_TRUE(catalog->FindDoubts().value().empty());
    }
  }
  catalog.reset();
  ASSERT_OK_AND_ASSIGN(catalog, Catalog::Open(path_, true));
  EXPECT_TRUE(catalog->FindDoubts().value().empty());
  EXPECT_EQ(catalog->LastTimestamp().value(), kCommits);
}

// One step that is gone, of those that no tally has yet: whoever opens the catalog is told.
TEST_F(LedgerTest, AStepThatIsMissingIsTold) {
  constexpr uint64_t kPuts = 20;
  const std::string copy = path_ + "/copy";
  {
    const auto catalog = Catalog::Create(path_).value();  // commit 1
    for (uint64_t row = 1; row <= kPuts; ++row) ASSERT_OK(Put(*catalog, "a", {&row, 1}, row, 5));
    fs::create_directory(copy);  // as a kill would leave it
    fs::copy(path_ + "/catalog", copy + "/catalog");
    fs::copy(path_ + "/ANCHOR", copy + "/ANCHOR");
  }
  {
    std::vector<std::string> names;
    ASSERT_TRUE(rocksdb::DB::ListColumnFamilies(rocksdb::DBOptions(), copy + "/catalog", &names).ok());
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const std::string& name : names) families.emplace_back(name, rocksdb::ColumnFamilyOptions());
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* opened = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(rocksdb::DBOptions(), copy + "/catalog", families, &handles, &opened).ok());
    const std::unique_ptr<rocksdb::DB> db(opened);
    const size_t schema = std::ranges::find(names, "schema") - names.begin();
    const std::string key{"\0commit\0\7", 9};  // docs/format.md
    std::string value;
    ASSERT_TRUE(db->Get(rocksdb::ReadOptions(), handles[schema], key, &value).ok());
    ASSERT_TRUE(db->Delete(rocksdb::WriteOptions(), handles[schema], key).ok());
    for (rocksdb::ColumnFamilyHandle* handle : handles)
      ASSERT_TRUE(db->DestroyColumnFamilyHandle(handle).ok());
    ASSERT_TRUE(db->Close().ok());
  }
  for (const bool read_only : {true, false}) {
    EXPECT_THAT(Catalog::Open(copy, read_only),
                IsStatus(Code::kCorruption, HasSubstr("what commit 7 of 21 added to the ledger is missing")));
  }
}

// A database from before there were ledgers: read as it is, counted with the first write.
TEST_F(LedgerTest, ACatalogWithoutAnAnchorNeedsOneUnlessItIsOld) {
  Catalog::Create(path_).value().reset();
  fs::remove(path_ + "/ANCHOR");
  EXPECT_THAT(Catalog::Open(path_, true), IsStatus(Code::kCorruption));
  EXPECT_THAT(Catalog::Open(path_, false), IsStatus(Code::kCorruption));
  EXPECT_THAT(Catalog::Open(path_, true, /*anchored=*/false), IsStatus(Code::kCorruption))
      << "it has a ledger, so it had an anchor";
}

TEST_F(LedgerTest, AcceptedDoubtsAreGone) {
  auto catalog = Catalog::Create(path_).value();
  ASSERT_OK(catalog->CommitManifest(WithTables()));
  const uint64_t rows[] = {1, 40'000};
  ASSERT_OK(Put(*catalog, "a", rows, 1, 5));
  ASSERT_OK(catalog->Close());
  catalog.reset();
  fs::remove(path_ + "/ANCHOR");
  const std::string other = path_ + "/salvaged";
  fs::create_directory(other);
  const SalvagedCatalog salvaged = Catalog::Salvage(path_, other).value();
  EXPECT_EQ(salvaged.timestamp, 1u);
  ASSERT_EQ(salvaged.doubts.size(), 3u) << "nobody knows whether it is the newest: no names, and two tables";
  catalog = Catalog::Open(other, true).value();
  EXPECT_EQ(catalog->FindDoubts().value().size(), 3u) << "they are kept";
  catalog = Catalog::Open(other, false).value();
  EXPECT_EQ(catalog->FindDoubts().value().size(), 3u);
  ASSERT_OK(catalog->AcceptDoubts());
  EXPECT_TRUE(catalog->FindDoubts().value().empty());
}

// Every operation of a disk, failing once: the next writes go on, unless it was a sync of the log, and what
// was acknowledged is there.
TEST_F(LedgerTest, AFailedWriteDoesNotStopWritesForGood) {
  for (const CatalogFault kind : {CatalogFault::kAppend, CatalogFault::kCreate, CatalogFault::kSync}) {
    for (uint64_t at = 1; at <= 12; ++at) {
      SCOPED_TRACE(testing::Message() << "fault " << static_cast<int>(kind) << " at " << at);
      fs::remove_all(path_);
      fs::create_directory(path_);
      CatalogFaults faults;
      std::vector<uint64_t> acknowledged;
      {
        const auto catalog = Catalog::Create(path_).value();
        ASSERT_OK(catalog->CommitManifest(WithTables()));
        faults.SetPlan({.kind = kind, .at = at, .sticky = false, .error = ENOSPC});
        bool failed = false, refused = false;
        for (uint64_t row = 1; row <= 20; ++row) {
          const Status status = Put(*catalog, "a", {&row, 1}, row, 5);
          failed |= !status.ok();
          refused = !status.ok();
          if (status.ok()) acknowledged.push_back(row);
          EXPECT_OK(catalog->LastTimestamp()) << "readers are not refused";
          uint64_t seen = 0;
          EXPECT_OK(catalog->ScanVersions("a", [&](const RowVersion&) { return ++seen, Status::Ok(); }));
          EXPECT_GE(seen, acknowledged.size());
        }
        if (failed && kind != CatalogFault::kSync) {
          EXPECT_FALSE(refused) << "once there is room, writes go on";
        }
        if (failed && kind == CatalogFault::kSync) {
          EXPECT_TRUE(refused) << "a failed sync is final";
        }
        faults.SetPlan({});
      }
      ASSERT_OK_AND_ASSIGN(const auto reopened, Catalog::Open(path_, false));
      EXPECT_TRUE(reopened->FindDoubts().value().empty());
      std::vector<uint64_t> there;
      EXPECT_OK(reopened->ScanVersions("a", [&](const RowVersion& version) {
        there.push_back(version.row);
        return Status::Ok();
      }));
      for (const uint64_t row : acknowledged) EXPECT_TRUE(std::ranges::count(there, row) == 1) << row;
    }
  }
}

}  // namespace
}  // namespace quarry
