#include "quarry/storage/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "quarry/base/units.h"
#include "quarry/verify/verify.h"
#include "storage/small_store.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing_util::Lists;
using testing_util::SmallStore;

// One database for the tests that only read.
class StoreTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    backend_ = MakeDefaultBackend().release();
    small_ = new SmallStore(*backend_, testing_util::Medium::kDisk);
    const Status status = small_->Write();
    ASSERT_OK(status);
  }
  static void TearDownTestSuite() {
    delete small_;
    delete backend_;
  }
  static IoBackend* backend_;
  static SmallStore* small_;
};
IoBackend* StoreTest::backend_ = nullptr;
SmallStore* StoreTest::small_ = nullptr;

TEST_F(StoreTest, OpensWhatWasWritten) {
  const auto store = Store::Open(*backend_, small_->path()).value();
  EXPECT_EQ(store->manifest()->node_count, SmallStore::kNodes);
  for (const SmallStore::Table& expected : small_->tables) {
    SCOPED_TRACE(expected.record.name);
    const auto table = store->OpenTable(expected.record.name).value();
    std::vector<std::byte> rows(expected.rows.size());
    ASSERT_OK(table->ReadRows(*backend_, 0, SmallStore::kNodes, rows));
    EXPECT_EQ(rows, expected.rows);
  }
  EXPECT_EQ(store->catalog()->IdOfName(NameKind::kRelation, "likes").value(), 1u);
}

TEST_F(StoreTest, TopologyHoldsBothSides) {
  const auto store = Store::Open(*backend_, small_->path()).value();
  const auto topology = store->OpenTopology("graph").value();
  EXPECT_EQ(topology->edge_count(), small_->graph.edge_count);
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    const Lists& expected = side == Adjacency::kCsc ? small_->csc : small_->csr;
    ASSERT_TRUE(topology->has(side));
    EXPECT_TRUE(std::ranges::equal(topology->indptr(side), expected.indptr));
    EXPECT_TRUE(topology->indices(side).empty());
    const uint64_t before = topology->resident_bytes();
    ASSERT_OK(topology->LoadIndices(*backend_, side));
    EXPECT_TRUE(std::ranges::equal(topology->indices(side), expected.indices));
    EXPECT_GE(topology->resident_bytes(), before + topology->IndicesBytes());
  }
}

TEST_F(StoreTest, IndexPagesAreVerifiedOneByOne) {
  const auto store = Store::Open(*backend_, small_->path()).value();
  const auto topology = store->OpenTopology("graph").value();
  const uint64_t pages = CeilDiv(topology->IndicesBytes(), kPageBytes);
  ASSERT_GT(pages, 4u);
  IoBuffer buffer = IoBuffer::Allocate(kPageBytes).value();
  for (uint64_t page = 0; page < pages; ++page) {
    const uint64_t offset = topology->indices_offset(Adjacency::kCsc) + page * kPageBytes;
    ASSERT_OK(backend_->ReadAt(topology->file(), offset, buffer.span()));
    EXPECT_OK(topology->VerifyIndexPage(Adjacency::kCsc, page, buffer.span()));
    EXPECT_FALSE(topology->VerifyIndexPage(Adjacency::kCsc, (page + 1) % pages, buffer.span()).ok());
    buffer.data()[100] ^= std::byte{1};
    const Status status = topology->VerifyIndexPage(Adjacency::kCsc, page, buffer.span());
    EXPECT_EQ(status.code(), Code::kCorruption);
    EXPECT_THAT(std::string(status.message()), HasSubstr(fmt::format("csc_indices {} to ", page * 1024)));
  }
}

TEST_F(StoreTest, MissingNamesAreListed) {
  const auto store = Store::Open(*backend_, small_->path()).value();
  const Status table = store->OpenTable("features").status();
  EXPECT_EQ(table.code(), Code::kNotFound);
  EXPECT_THAT(std::string(table.message()), HasSubstr("feature, narrow, padded, wide, label, split"));
  EXPECT_EQ(store->OpenTopology("x").status().code(), Code::kNotFound);
}

TEST_F(StoreTest, ASecondOpenIsRefusedAndNamesTheHolder) {
  {
    const auto store = Store::Open(*backend_, small_->path()).value();
    const Status status = Store::Open(*backend_, small_->path()).status();
    EXPECT_EQ(status.code(), Code::kBusy);
    EXPECT_EQ(ExitCode(status.code()), 1);
    EXPECT_THAT(std::string(status.message()), HasSubstr(fmt::format("process {}", getpid())));
  }
  EXPECT_OK(Store::Open(*backend_, small_->path())) << "closing gives the lock back";
}

TEST_F(StoreTest, RemovingOrReplacingLockLetsNobodyIn) {
  const std::string lock = small_->path() + "/LOCK";
  {
    const auto store = Store::Open(*backend_, small_->path()).value();
    ASSERT_TRUE(fs::remove(lock));
    const Status removed = Store::Open(*backend_, small_->path()).status();
    EXPECT_EQ(removed.code(), Code::kBusy) << removed.ToString();
    EXPECT_THAT(std::string(removed.message()), HasSubstr("another process"));
    EXPECT_FALSE(fs::exists(lock)) << "who is refused makes none";
    std::ofstream(lock) << "1\n";
    EXPECT_EQ(Store::Open(*backend_, small_->path()).status().code(), Code::kBusy);
  }
  EXPECT_OK(Store::Open(*backend_, small_->path()));
}

TEST_F(StoreTest, ALockWithoutAPidStillLocks) {
  const int descriptor = open((small_->path() + "/LOCK").c_str(), O_RDWR);
  ASSERT_EQ(ftruncate(descriptor, 0), 0);
  ASSERT_EQ(flock(descriptor, LOCK_EX), 0);
  EXPECT_THAT(std::string(Store::Open(*backend_, small_->path()).status().message()),
              HasSubstr("another process"));
  close(descriptor);
}

TEST_F(StoreTest, WhatIsNoDatabaseSaysWhatItIs) {
  const std::string folder = small_->folder.path();
  const auto message = [&](const std::string& path) {
    const Status status = Store::Open(*backend_, path).status();
    EXPECT_EQ(status.code(), Code::kNotFound) << path;
    return std::string(status.message());
  };
  EXPECT_THAT(message(folder + "/nothing"), HasSubstr("there is no such database"));
  std::ofstream(folder + "/x.npy") << "\x93NUMPY...";
  EXPECT_THAT(message(folder + "/x.npy"), HasSubstr("NumPy"));
  fs::create_directory(folder + "/data");
  EXPECT_THAT(message(folder + "/data"), HasSubstr("no VERSION file"));
  EXPECT_FALSE(fs::exists(folder + "/data/LOCK")) << "a foreign folder is left alone";
}

TEST_F(StoreTest, OtherVersionsAreUnsupportedAndGarbageIsCorrupt) {
  const std::string path = small_->path() + "/VERSION";
  const auto code_with = [&](const char* text) {
    std::ofstream(path, std::ios::trunc) << text;
    return Store::Open(*backend_, small_->path()).status().code();
  };
  EXPECT_EQ(code_with("quarry 4\n"), Code::kUnsupported);
  EXPECT_EQ(code_with("quarry 0\n"), Code::kUnsupported);
  EXPECT_EQ(code_with("quarry 1"), Code::kCorruption);
  EXPECT_EQ(code_with("quarr"), Code::kCorruption);
  EXPECT_EQ(code_with(""), Code::kCorruption);
  EXPECT_EQ(code_with("quarry 1\n"), Code::kOk) << "an older one";
  EXPECT_EQ(code_with("quarry 2\n"), Code::kOk) << "an older one";
  EXPECT_EQ(code_with("quarry 3\n"), Code::kOk);
}

// data/version-1.tar.xz and version-2.tar.xz: databases of 64 nodes, with one commit of labels, as a Quarry wrote them
// that knew of no ledger and no anchor, or of tallies alone. They are read as they are, and brought up by the first write.
TEST_F(StoreTest, ADatabaseOfAnOlderVersionIsBroughtUpByTheFirstWrite) {
  for (const uint32_t version : {1u, 2u}) {
    const std::string name = fmt::format("version-{}", version);
    SCOPED_TRACE(name);
    const TemporaryFolder folder(name);
    const std::string unpack =
        fmt::format("tar -xJf '{}/{}.tar.xz' -C '{}'", QUARRY_STORAGE_DATA, name, folder.path());
    ASSERT_EQ(std::system(unpack.c_str()), 0) << unpack;
    const std::string path = folder / name;
    {
      const auto store = Store::Open(*backend_, path).value();
      EXPECT_EQ(store->version(), version);
      EXPECT_EQ(store->TakeSnapshot().value()->timestamp, 1u);
      EXPECT_TRUE(VerifyStore(*store, {}).value().faults.empty());
      EXPECT_EQ(fs::exists(path + "/ANCHOR"), version >= kAnchoredVersion) << "reading changes nothing";
      WriteBatch batch;
      batch.SetLabel(0, 1);
      ASSERT_OK(store->Write(batch));
      EXPECT_EQ(store->version(), kStoreVersion);
    }
    const auto store = Store::Open(*backend_, path).value();
    EXPECT_EQ(store->version(), kStoreVersion);
    EXPECT_TRUE(VerifyStore(*store, {}).value().faults.empty());
    EXPECT_EQ(store->TakeSnapshot().value()->timestamp, 2u);
  }
}

TEST_F(StoreTest, AnExistingFolderIsNotMadeIntoADatabase) {
  const Status status = CreateStoreDirectory(*backend_, small_->path());
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("Success")));
}

TEST_F(StoreTest, ACommittedManifestIsThereAtOnceAndAfterReopening) {
  SmallStore small(*backend_, testing_util::Medium::kMemory);
  ASSERT_OK(small.Write());
  {
    const auto store = Store::Open(*backend_, small.path()).value();
    for (int round = 1; round <= 3; ++round) {
      Manifest manifest = *store->manifest();
      manifest.device = {.random_reads_per_second = 1000.0 * round,
                         .sequential_bytes_per_second = 2,
                         .write_bytes_per_second = 3,
                         .gather_bytes_per_second = 4,
                         .measured_utc = "2025-01-02T03:04:05Z"};
      const Status status = store->UpdateManifest([&](Manifest& m) { return m = manifest, Status::Ok(); });
      ASSERT_OK(status);
      ASSERT_TRUE(store->manifest()->device.has_value());
      EXPECT_EQ(store->manifest()->device->random_reads_per_second, 1000.0 * round);
      EXPECT_EQ(store->catalog()->IdOfName(NameKind::kRelation, "likes").value(), 1u);
      EXPECT_OK(store->OpenTable("feature"));
    }
    EXPECT_EQ(Store::Open(*backend_, small.path()).status().code(), Code::kBusy) << "the lock is kept";
  }
  const auto store = Store::Open(*backend_, small.path()).value();
  ASSERT_TRUE(store->manifest()->device.has_value());
  EXPECT_EQ(store->manifest()->device->random_reads_per_second, 3000);
  EXPECT_EQ(store->catalog()->IdOfName(NameKind::kRelation, "likes").value(), 1u);
  EXPECT_THAT(VerifyStore(*store, {}).value().faults, testing::IsEmpty());
}

TEST_F(StoreTest, AManifestThatNoReaderWouldTakeIsNotCommitted) {
  const auto store = Store::Open(*backend_, small_->path()).value();
  Manifest manifest = *store->manifest();
  manifest.tables[0].file = "../elsewhere";
  EXPECT_FALSE(store->UpdateManifest([&](Manifest& m) { return m = manifest, Status::Ok(); }).ok());
  EXPECT_EQ(store->manifest()->tables[0].file, small_->tables[0].record.file);
  EXPECT_EQ(store->catalog()->ReadManifest().value().tables[0].file, small_->tables[0].record.file);
}

TEST_F(StoreTest, AReadOnlyFolderCanBeOpened) {
  if (geteuid() == 0) GTEST_SKIP() << "root writes to read-only folders";
  for (const char* name : {"/LOCK", "/VERSION", ""}) {
    fs::permissions(small_->path() + name, fs::perms::owner_write, fs::perm_options::remove);
  }
  EXPECT_OK(Store::Open(*backend_, small_->path()));
  for (const char* name : {"", "/LOCK", "/VERSION"}) {
    fs::permissions(small_->path() + name, fs::perms::owner_write, fs::perm_options::add);
  }
}

}  // namespace
}  // namespace quarry
