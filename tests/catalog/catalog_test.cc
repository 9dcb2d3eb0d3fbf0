#include "quarry/catalog/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "support/catalog_watch.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CatalogTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "quarry-catalog-" + std::to_string(getpid()) + "-" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  void TearDown() override { fs::remove_all(path_); }

  static Manifest WithNodes(uint64_t node_count) {
    Manifest manifest;
    manifest.node_count = node_count;
    manifest.source = "test";
    manifest.tables = {
        {.name = "feature", .file = "features/feature-1.qft", .row_count = node_count, .dim = 4}};
    return manifest;
  }

  std::map<std::string, std::pair<uint64_t, fs::file_time_type>> FilesOnDisk() const {
    std::map<std::string, std::pair<uint64_t, fs::file_time_type>> files;
    for (const auto& entry : fs::recursive_directory_iterator(path_)) {
      if (entry.is_regular_file()) files[entry.path()] = {entry.file_size(), entry.last_write_time()};
    }
    return files;
  }

  std::string path_;
};

TEST_F(CatalogTest, ACommittedManifestIsThereAfterReopening) {
  {
    const auto catalog = Catalog::Create(path_).value();
    ASSERT_OK(catalog->CommitManifest(WithNodes(1)));
    ASSERT_OK(catalog->CommitManifest(WithNodes(2)));
    EXPECT_EQ(catalog->ReadManifest().value().node_count, 2u);
    ASSERT_OK(catalog->Close());
  }
  for (const bool read_only : {true, false}) {
    const auto catalog = Catalog::Open(path_, read_only).value();
    const Manifest manifest = catalog->ReadManifest().value();
    EXPECT_EQ(manifest.node_count, 2u);
    ASSERT_EQ(manifest.tables.size(), 1u);
    EXPECT_EQ(manifest.tables[0].row_count, 2u);
    EXPECT_OK(catalog->VerifyChecksums());
  }
}

TEST_F(CatalogTest, LogsTakeLittleMoreOfTheDiskThanIsInThem) {
  const auto catalog = Catalog::Create(path_).value();
  ASSERT_OK(catalog->CommitManifest(WithNodes(1)));
  uint64_t disk_bytes = 0;
  for (const auto& [file, about] : FilesOnDisk()) {
    struct stat info {};
    ASSERT_EQ(stat(file.c_str(), &info), 0);
    disk_bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  EXPECT_LT(disk_bytes, (256 + 128) << 10);
}

TEST_F(CatalogTest, AFolderCopiedWhileOpenHoldsWhatWasCommitted) {
  // As after kill -9: the copy never sees Close.
  const auto catalog = Catalog::Create(path_).value();
  ASSERT_OK(catalog->PutNames(NameKind::kEntity, 0, std::vector<std::string>{"a", "b"}));
  ASSERT_OK(catalog->CommitManifest(WithNodes(7)));
  const std::string copy = path_ + "/copy";
  fs::create_directory(copy);
  fs::copy(path_ + "/catalog", copy + "/catalog", fs::copy_options::recursive);
  fs::copy(path_ + "/ANCHOR", copy + "/ANCHOR");
  const auto reopened = Catalog::Open(copy, true).value();
  EXPECT_EQ(reopened->ReadManifest().value().node_count, 7u);
  EXPECT_EQ(reopened->IdOfName(NameKind::kEntity, "b").value(), 1u);
}

// RocksDB begins a copy by writing its tables out, each followed by a new log, and copies what there is of the last log a
// piece at a time. Here a commit comes with each table, and many more once the first piece of that log has been read:
// the pieces behind the room that it showed have commits again.
TEST_F(CatalogTest, ACopyMadeWhileCommitsGoOnHoldsAPrefixOfThem) {
  constexpr uint64_t kCommits = 200;  // several pieces, and several blocks of a log
  Catalog* written = nullptr;
  uint64_t committed = 0;
  const auto commit = [&](uint64_t count) {
    std::thread([&] {  // a thread of its own: who copies holds latches
      const std::string value(800, 'v');
      for (uint64_t i = 0; i < count; ++i) {
        const RowVersion version{"f", ++committed, committed, std::as_bytes(std::span(value))};
        ASSERT_OK(written->PutVersions(std::span(&version, 1), /*sync=*/true));
      }
    })
        .join();
  };
  using Kind = CatalogOperation::Kind;
  bool copying = false, log_open = false;  // RocksDB does one thing after the other, in whatever thread
  uint64_t committed_before_reading = 0;
  std::string last_log;
  const CatalogWatch watch(
      [&](const CatalogOperation& operation, const CatalogWatch::Perform& perform) {
        perform();
        const std::string& path = operation.path;
        const bool of_log = path.ends_with(".log");
        const bool of_copy = path.starts_with(path_ + "/copy");
        if (operation.kind == Kind::kWrite && of_log && !of_copy) last_log = path;
        if (!copying) return;
        if (operation.kind == Kind::kSyncFile && path.ends_with(".sst")) commit(1);
        if (operation.kind == Kind::kCreate && of_log && of_copy) log_open = true;
        if (operation.kind == Kind::kRead && path == last_log && log_open) {
          copying = false;
          committed_before_reading = committed;
          commit(kCommits);
        }
      },
      CatalogWatch::Logs::kWithRoom);

  const auto catalog = Catalog::Create(path_).value();
  written = catalog.get();
  Manifest manifest = WithNodes(1000);
  manifest.tables = {{.name = "f", .file = "features/f-1.qft", .row_count = 1000, .dim = 200}};
  ASSERT_OK(catalog->CommitManifest(manifest));
  commit(1);
  const std::string copy = path_ + "/copy";
  fs::create_directory(copy);
  copying = true;
  ASSERT_OK(catalog->CopyTo(copy));
  ASSERT_FALSE(copying) << "the copy was not made as is described above";

  ASSERT_OK_AND_ASSIGN(const auto opened, Catalog::Open(copy, /*read_only=*/true));
  EXPECT_TRUE(opened->FindDoubts().value().empty());
  const uint64_t last = opened->LastTimestamp().value();
  EXPECT_GE(last, committed_before_reading);
  std::set<uint64_t> timestamps;
  ASSERT_OK(opened->ScanVersions("f", [&](const RowVersion& version) {
    timestamps.insert(version.timestamp);
    return Status::Ok();
  }));
  EXPECT_EQ(timestamps.size(), last) << "each commit has a version of its own";
}

TEST_F(CatalogTest, OpeningReadOnlyLeavesNoTraceOnDisk) {
  ASSERT_OK(Catalog::Create(path_).value()->CommitManifest(WithNodes(1)));
  const auto before = FilesOnDisk();
  for (int i = 0; i < 2; ++i) ASSERT_OK(Catalog::Open(path_, true).value()->ReadManifest());
  EXPECT_EQ(FilesOnDisk(), before);
}

TEST_F(CatalogTest, CreatingTwiceAndOpeningNothingAreRefused) {
  EXPECT_THAT(Catalog::Open(path_, true), IsStatus(Code::kNotFound));
  EXPECT_THAT(Catalog::Open(path_, false), IsStatus(Code::kNotFound));
  EXPECT_FALSE(fs::exists(path_ + "/catalog"));
  ASSERT_OK(Catalog::Create(path_));
  EXPECT_THAT(Catalog::Create(path_), IsStatus(Code::kAlreadyExists));
}

TEST_F(CatalogTest, ACatalogWithoutManifestIsCorrupt) {
  const auto catalog = Catalog::Create(path_).value();
  const Status status = catalog->ReadManifest().status();
  EXPECT_THAT(status, IsStatus(Code::kCorruption, HasSubstr(path_)));
}

TEST_F(CatalogTest, NamesAreFoundBothWays) {
  const auto catalog = Catalog::Create(path_).value();
  std::vector<std::string> names;
  for (int i = 0; i < 3000; ++i) names.push_back("entity/" + std::to_string(i * 7919 % 10007));
  ASSERT_OK(catalog->PutNames(NameKind::kEntity, 0, std::span(names).first(1000)));
  ASSERT_OK(catalog->PutNames(NameKind::kEntity, 1000, std::span(names).subspan(1000)));
  ASSERT_OK(catalog->PutNames(NameKind::kRelation, 0, std::vector<std::string>{"is a", "", "\xff\x00z"}));
  for (uint64_t id = 0; id < names.size(); ++id) {
    ASSERT_EQ(catalog->IdOfName(NameKind::kEntity, names[id]).value(), id);
    ASSERT_EQ(catalog->NameOfId(NameKind::kEntity, id).value(), names[id]);
  }
  EXPECT_EQ(catalog->IdOfName(NameKind::kEntity, "is a").value(), std::nullopt);
  EXPECT_EQ(catalog->IdOfName(NameKind::kRelation, "is a").value(), 0u);
  EXPECT_EQ(catalog->IdOfName(NameKind::kRelation, "").value(), 1u);
  EXPECT_EQ(catalog->NameOfId(NameKind::kRelation, 3).value(), std::nullopt);
  EXPECT_EQ(catalog->VerifyNames(NameKind::kEntity).value(), names.size());
  EXPECT_EQ(catalog->VerifyNames(NameKind::kRelation).value(), 3u);
}

TEST_F(CatalogTest, VerifyNamesFindsGapsAndNamesThatTwoIdsShare) {
  const auto catalog = Catalog::Create(path_).value();
  ASSERT_OK(catalog->PutNames(NameKind::kEntity, 0, std::vector<std::string>{"a", "b", "a"}));
  EXPECT_THAT(catalog->VerifyNames(NameKind::kEntity), IsStatus(Code::kCorruption));
  ASSERT_OK(catalog->PutNames(NameKind::kRelation, 1, std::vector<std::string>{"r"}));
  EXPECT_THAT(catalog->VerifyNames(NameKind::kRelation), IsStatus(Code::kCorruption));
}

TEST_F(CatalogTest, ADamagedTableFileIsCorruptionNotData) {
  {
    const auto catalog = Catalog::Create(path_).value();
    ASSERT_OK(catalog->CommitManifest(WithNodes(5)));
    ASSERT_OK(catalog->Close());
  }
  // Which table has the manifest is RocksDB's affair: a byte of each is flipped.
  size_t tables = 0;
  for (const auto& entry : fs::directory_iterator(path_ + "/catalog")) {
    if (entry.path().extension() != ".sst") continue;
    testing_util::FlipByte(entry.path(), 20);
    ++tables;
  }
  ASSERT_GT(tables, 0u);
  const auto catalog = Catalog::Open(path_, true);
  const Status status = catalog.ok() ? (*catalog)->ReadManifest().status() : catalog.status();
  EXPECT_THAT(status, IsStatus(Code::kCorruption));
}

}  // namespace
}  // namespace quarry
