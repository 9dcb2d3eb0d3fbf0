// Databases that are imported, copied and repaired, on a disk that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "faults/small_world.h"
#include "quarry/embedding/verify_embeddings.h"
#include "quarry/storage/checkpoint.h"
#include "quarry/verify/repair.h"
#include "quarry/verify/verify.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing_util::FlipByte;
using testing_util::Medium;
using testing_util::ScratchFolder;
using testing_util::SmallWorld;
using testing_util::TinyGraph;

// An import, where one before was interrupted.
class Import final : public testing_util::FaultScenario {
 public:
  void Run() { testing_util::FaultMatrix(backend_, folder_.path()).Run(*this); }

  void Fresh() override {
    fs::remove_all(path_);
    fs::create_directories(path_ + ".importing/db/features");
    std::ofstream(path_ + ".importing/db/features/feature-1.qft") << "half";
  }
  Status Open() override { return Status::Ok(); }
  Status Work() override { return ImportTinyGraph(backend_, graph_, path_); }
  // What an import cannot remove stays for the next one.
  bool Skips(const FaultPlan& fault) override { return fault.kind == FaultKind::kRemove; }
  void Close() override {}
  void Check(bool done) override {
    if (!done) {
      // Who could not come in has left it as it was.
      EXPECT_TRUE(fs::is_empty(folder_.path()) || fs::exists(path_ + ".importing/db/features/feature-1.qft"));
      return;
    }
    EXPECT_FALSE(fs::exists(path_ + ".importing"));
    ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(backend_, path_));
    EXPECT_EQ(testing_util::FaultsIn(*store), "");
  }

 private:
  const TinyGraph graph_{.nodes = 40, .dim = 4};
  const ScratchFolder folder_{Medium::kMemory};
  const std::string path_ = folder_.path() + "/db";
  testing_util::UnsyncedBackend unsynced_;
  FaultBackend backend_{unsynced_};
};

TEST(CopyFaultsTest, AnImport) { Import().Run(); }

// Beside the database, or on another disk, where everything has to be copied.
void RunCheckpoint(Medium medium, bool all) {
  const ScratchFolder elsewhere(medium);
  const std::string copy = elsewhere.path() + "/copy";
  SmallWorld world({
      .work = [&](SmallWorld& w) -> Status {
        fs::remove_all(copy);
        return CheckpointStore(w.store(), w.budget(), copy, {}).status();
      },
      .check =
          [&](SmallWorld& w, bool done) {
            EXPECT_EQ(fs::exists(copy), done);
            EXPECT_FALSE(fs::exists(copy + ".copying"));
            if (done) w.ExpectCopy(copy);
          },
      // Pages of a run that cannot be read are read one by one.
      .may_end_well = [](const FaultPlan& fault) { return fault.kind == FaultKind::kRead && !fault.sticky; },
      // What cannot be removed of the workspace stays for the next checkpoint.
      .skips = [](const FaultPlan& fault) { return fault.kind == FaultKind::kRemove; },
      .trained = all,
      .layout = all,
  });
  world.Run();
}

TEST(CopyFaultsTest, ACheckpoint) { RunCheckpoint(Medium::kMemory, /*all=*/true); }
TEST(CopyFaultsTest, ACheckpointOnAnotherDisk) { RunCheckpoint(Medium::kDisk, /*all=*/false); }

// With the catalog open for writing.
TEST(CopyFaultsTest, ACheckpointAfterAPut) {
  const ScratchFolder elsewhere(Medium::kMemory);
  const std::string copy = elsewhere.path() + "/copy";
  SmallWorld world({
      .work = [&](SmallWorld& w) -> Status {
        fs::remove_all(copy);
        QUARRY_RETURN_IF_ERROR(w.Put(7));
        return CheckpointStore(w.store(), w.budget(), copy, {}).status();
      },
      .check =
          [&](SmallWorld& w, bool done) {
            EXPECT_EQ(fs::exists(copy), done);
            if (done) w.ExpectCopy(copy);
          },
  });
  world.Run();
}

TEST(CopyFaultsTest, ARepair) {
  SmallWorld world({
      .prepare =
          [](SmallWorld& w) {
            FlipByte(w.path() + "/layouts/default-1/layout.qlc", 5000, 0x5a);
            std::ofstream(w.path() + "/features/notes.txt") << "planted";
            fs::create_directories(w.path() + "/topology/stranger/inside");
            return Status::Ok();
          },
      .work = [](SmallWorld& w) -> Status {
        QUARRY_TRY(VerifyReport found, VerifyStore(w.store(), {}));
        QUARRY_RETURN_IF_ERROR(VerifyEmbeddings(w.store(), {}, found));
        return RepairStore(w.store(), found, {}).status();
      },
      .check = [](SmallWorld& w,
                  bool /*done*/) { EXPECT_EQ(w.store().manifest()->FindLayout("default"), nullptr); },
      .damaged = true,
      .layout = true,
  });
  world.Run();
}

TEST(CopyFaultsTest, ARepairOfTheCatalog) {
  SmallWorld world({
      .prepare =
          [](SmallWorld& w) {
            w.Close();
            fs::remove(w.path() + "/catalog/CURRENT");
            return Status::Ok();
          },
      .work = [](SmallWorld& w) -> Status {
        w.Close();
        QUARRY_RETURN_IF_ERROR(RepairCatalog(w.backend(), w.path(), /*dry_run=*/false).status());
        return w.OpenStore();
      },
      // What cannot be removed of the workspace stays for the next repair.
      .skips = [](const FaultPlan& fault) { return fault.kind == FaultKind::kRemove; },
      // RocksDB's repair stops at an assertion of its own when it cannot write its manifest.
      .skips_of_catalog = [](const CatalogFaultPlan& fault) { return fault.kind > CatalogFault::kRead; },
      .reads_catalog = true,
      .opens_store = false,
      .damaged = true,
  });
  world.Run();
}

}  // namespace
}  // namespace quarry
