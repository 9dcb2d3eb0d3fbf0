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
    ASSERT_TRUE(catalog->CommitManifest(WithNodes(1)).ok());
    ASSERT_TRUE(catalog->CommitManifest(WithNodes(2)).ok());
    EXPECT_EQ(catalog->ReadManifest().value().node_count, 2u);
    ASSERT_TRUE(catalog->Close().ok());
  }
  for (const bool read_only : {true, false}) {
    const auto catalog = Catalog::Open(path_, read_only).value();
    const Manifest manifest = catalog->ReadManifest().value();
    EXPECT_EQ(manifest.node_count, 2u);
    ASSERT_EQ(manifest.tables.size(), 1u);
    EXPECT_EQ(manifest.tables[0].row_count, 2u);
    EXPECT_TRUE(catalog->VerifyChecksums().ok());
  }
}

TEST_F(CatalogTest, LogsTakeLittleMoreOfTheDiskThanIsInThem) {
  const auto catalog = Catalog::Create(path_).value();
  ASSERT_TRUE(catalog->CommitManifest(WithNodes(1)).ok());
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
  ASSERT_TRUE(catalog->PutNames(NameKind::kEntity, 0, std::vector<std::string>{"a", "b"}).ok());
  ASSERT_TRUE(catalog->CommitManifest(WithNodes(7)).ok());
  const std::string copy = path_ + "/copy";
  fs::create_directory(copy);
  fs::copy(path_ + "/catalog", copy + "/catalog", fs::copy_options::recursive);
  fs::copy(path_ + "/ANCHOR", copy + "/ANCHOR");
  const auto reopened = Catalog::Open(copy, true).value();
  EXPECT_EQ(reopened->ReadManifest().value().node_count, 7u);
  EXPECT_EQ(reopened->IdOfName(NameKind::kEntity, "b").value(), 1u);
}

TEST_F(CatalogTest, ACopyMadeWhileCommitsGoOnHoldsAPrefixOfThem) {
  const auto catalog = Catalog::Create(path_).value();
  constexpr uint64_t kRows = 1000;
  Manifest manifest = WithNodes(kRows);
  manifest.tables = {{.name = "f", .file = "features/f-1.qft", .row_count = kRows, .dim = 200}};
  ASSERT_TRUE(catalog->CommitManifest(manifest).ok());
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> committed = 0;
  std::thread writer([&] {
    const std::string value(800, 'v');
    for (uint64_t i = 1; !stop; ++i) {
      const RowVersion version{"f", i % kRows, i, std::as_bytes(std::span(value))};
      ASSERT_TRUE(catalog->PutVersions(std::span(&version, 1), /*sync=*/i % 2 == 0).ok());
      committed = i;
    }
  });
  for (int i = 0; i < 30; ++i) {
    const std::string copy = path_ + "/copy" + std::to_string(i);
    fs::create_directory(copy);
    const uint64_t before = committed;
    const Status copied = catalog->CopyTo(copy);
    EXPECT_TRUE(copied.ok()) << copied.ToString();
    const auto opened = Catalog::Open(copy, /*read_only=*/true);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    if (!opened.ok()) break;
    EXPECT_TRUE((*opened)->FindDoubts().value().empty());
    const uint64_t last = (*opened)->LastTimestamp().value();
    EXPECT_GE(last, before);
    std::set<uint64_t> timestamps;
    const Status scanned = (*opened)->ScanVersions("f", [&](const RowVersion& version) {
      timestamps.insert(version.timestamp);
      return Status::Ok();
    });
    EXPECT_TRUE(scanned.ok()) << scanned.ToString();
    EXPECT_EQ(timestamps.size(), last) << "each commit has a version of its own";
  }
  stop = true;
  writer.join();
}

TEST_F(CatalogTest, OpeningReadOnlyLeavesNoTraceOnDisk) {
  ASSERT_TRUE(Catalog::Create(path_).value()->CommitManifest(WithNodes(1)).ok());
  const auto before = FilesOnDisk();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Catalog::Open(path_, true).value()->ReadManifest().ok());
  EXPECT_EQ(FilesOnDisk(), before);
}

TEST_F(CatalogTest, CreatingTwiceAndOpeningNothingAreRefused) {
  EXPECT_EQ(Catalog::Open(path_, true).status().code(), Code::kNotFound);
  EXPECT_EQ(Catalog::Open(path_, false).status().code(), Code::kNotFound);
  EXPECT_FALSE(fs::exists(path_ + "/catalog"));
  ASSERT_TRUE(Catalog::Create(path_).ok());
  EXPECT_EQ(Catalog::Create(path_).status().code(), Code::kAlreadyExists);
}

TEST_F(CatalogTest, ACatalogWithoutManifestIsCorrupt) {
  const auto catalog = Catalog::Create(path_).value();
  const Status status = catalog->ReadManifest().status();
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
}

TEST_F(CatalogTest, NamesAreFoundBothWays) {
  const auto catalog = Catalog::Create(path_).value();
  std::vector<std::string> names;
  for (int i = 0; i < 3000; ++i) names.push_back("entity/" + std::to_string(i * 7919 % 10007));
  ASSERT_TRUE(catalog->PutNames(NameKind::kEntity, 0, std::span(names).first(1000)).ok());
  ASSERT_TRUE(catalog->PutNames(NameKind::kEntity, 1000, std::span(names).subspan(1000)).ok());
  ASSERT_TRUE(
      catalog->PutNames(NameKind::kRelation, 0, std::vector<std::string>{"is a", "", "\xff\x00z"}).ok());
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
  ASSERT_TRUE(catalog->PutNames(NameKind::kEntity, 0, std::vector<std::string>{"a", "b", "a"}).ok());
  EXPECT_EQ(catalog->VerifyNames(NameKind::kEntity).status().code(), Code::kCorruption);
  ASSERT_TRUE(catalog->PutNames(NameKind::kRelation, 1, std::vector<std::string>{"r"}).ok());
  EXPECT_EQ(catalog->VerifyNames(NameKind::kRelation).status().code(), Code::kCorruption);
}

TEST_F(CatalogTest, ADamagedTableFileIsCorruptionNotData) {
  {
    const auto catalog = Catalog::Create(path_).value();
    ASSERT_TRUE(catalog->CommitManifest(WithNodes(5)).ok());
    ASSERT_TRUE(catalog->Close().ok());
  }
  std::string table;
  for (const auto& entry : fs::directory_iterator(path_ + "/catalog")) {
    if (entry.path().extension() == ".sst") table = entry.path();
  }
  ASSERT_FALSE(table.empty());
  std::fstream file(table, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(20);
  file.put('\x55');
  file.close();
  const auto catalog = Catalog::Open(path_, true);
  const Status status = catalog.ok() ? (*catalog)->ReadManifest().status() : catalog.status();
  EXPECT_EQ(status.code(), Code::kCorruption);
}

}  // namespace
}  // namespace quarry
