// An import that fails at any operation of the disk leaves nothing, and nothing in the way of the next.
// (external_sort_test.cc has the reads: of what was spilled.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <functional>

#include "pipeline/tiny_database.h"
#include "quarry/catalog/catalog_faults.h"
#include "quarry/io/fault_backend.h"
#include "storage/small_store.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::TinyGraph;

class ImportFaultsTest : public testing::Test {
 protected:
  // Imports with fault `at`, at = 1, 2, ... until nothing strikes. RocksDB can do without some of its files:
  // then it may succeed all the same.
  void RunForEachK(int error, bool may_succeed, const std::function<void(uint64_t at)>& set,
                   const std::function<uint64_t()>& strikes) {
    bool struck = true;
    uint64_t at = 0;
    while (struck && !HasFailure()) {
      SCOPED_TRACE(testing::Message() << "operation " << ++at << ", error " << error);
      set(at);
      const Status status = ImportTinyGraph(backend_, graph_, path_);
      struck = strikes() > 0;
      set(0);
      if (struck && !(status.ok() && may_succeed)) {
        EXPECT_EQ(status.code(), error == ENOSPC ? Code::kNoSpace : Code::kIoError) << status.ToString();
        EXPECT_THAT(std::string(status.message()), HasSubstr(folder_.path())) << "names no file";
        EXPECT_TRUE(fs::is_empty(folder_.path()));
        continue;
      }
      ASSERT_TRUE(status.ok()) << status.ToString();
      ExpectSound();
      fs::remove_all(path_);
    }
    EXPECT_GT(at, 1u) << "nothing struck";
  }

  void RunForEachK(FaultPlan plan) {
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(plan.kind)
                                    << (plan.sticky ? ", and every later one" : ""));
    RunForEachK(
        plan.error, /*may_succeed=*/false,
        [&](uint64_t at) {
          plan.at = at;
          backend_.SetPlans({plan});
        },
        [&] { return backend_.strikes(); });
  }

  void RunForEachK(CatalogFaultPlan plan) {
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(plan.kind) << " of the catalog"
                                    << (plan.sticky ? ", and every later one" : ""));
    CatalogFaults faults;
    RunForEachK(
        plan.error, /*may_succeed=*/true,
        [&](uint64_t at) {
          plan.at = at;
          faults.SetPlan(plan);
        },
        [&] { return faults.strikes(); });
  }

  void ExpectSound() {
    const auto store = Store::Open(backend_, path_);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    const auto report = VerifyStore(**store, {});
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_THAT(report->faults, testing::IsEmpty());
  }

  const TinyGraph graph_{.nodes = 40, .dim = 4};
  const testing_util::ScratchFolder folder_{testing_util::Medium::kMemory};
  const std::string path_ = folder_.path() + "/db";
  const std::unique_ptr<IoBackend> real_ = MakeThreadBackend(1);
  FaultBackend backend_{*real_};
};

TEST_F(ImportFaultsTest, AnOperationOnADataFileMayFail) {
  for (const FaultKind kind : {FaultKind::kOpen, FaultKind::kWrite, FaultKind::kSync, FaultKind::kRename}) {
    RunForEachK(FaultPlan{.kind = kind, .error = EIO});
    RunForEachK(FaultPlan{.kind = kind, .sticky = true, .error = ENOSPC});
  }
}

TEST_F(ImportFaultsTest, AnOperationOfTheCatalogMayFail) {
  for (const CatalogFault kind :
       {CatalogFault::kOpen, CatalogFault::kAppend, CatalogFault::kSync, CatalogFault::kRename}) {
    RunForEachK(CatalogFaultPlan{.kind = kind, .error = EIO});
    const int full = kind == CatalogFault::kOpen ? EIO : ENOSPC;
    RunForEachK(CatalogFaultPlan{.kind = kind, .sticky = true, .error = full});
  }
}

}  // namespace
}  // namespace quarry
