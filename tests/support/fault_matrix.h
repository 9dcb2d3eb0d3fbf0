// All faults of the disk, one after the other, at every operation of a piece of work.
//
// A fault is an error (EIO; where space is taken ENOSPC; a transfer that comes in parts) of a kind of
// operation on data files (fault_backend.h) or on the catalog's own (catalog_faults.h), at its k-th one, k =
// 1, 2, ... until the work is done without coming that far; then once, or from there on. Whatever it is, the
// work ends well, or with one sentence that names a file and has the error's code; what Check expects holds
// after a restart; and the work can then be done.
//
// QUARRY_TEST_FAULT_STRIDE=5 takes the first k and then every fifth, from another one for each kind of fault;
// QUARRY_TEST_ONE_IN=4 every fourth kind, from another one for each piece of work (repetitions.h);
// QUARRY_TEST_ALL_FAULTS=1 both errors once and for good of the catalog's files too.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "support/catalog_faults.h"
#include "support/fault_backend.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

// A piece of work on files that are made anew for each fault.
class FaultScenario {
 public:
  virtual ~FaultScenario() = default;

  // The files as they are before the work.
  virtual void Fresh() = 0;
  // Opens what the work is done with. Also after a fault, whatever that has left.
  virtual Status Open() = 0;
  // May be called again after an error, before and after a restart.
  virtual Status Work() = 0;
  virtual void Close() = 0;
  // Checks what is open: all that was there before is there; so is the work when it is `done`, else it may
  // be, whole.
  virtual void Check(bool done) = 0;
  // Whether the work may end well although something failed with an error: it has another way.
  virtual bool MayEndWell(const FaultPlan& /*fault*/) { return false; }
  virtual bool MayEndWell(const CatalogFaultPlan& /*fault*/) { return false; }
  // What another scenario has already.
  virtual bool Skips(const FaultPlan& /*fault*/) { return false; }
  virtual bool Skips(const CatalogFaultPlan& /*fault*/) { return false; }
};

class FaultMatrix {
 public:
  // `folder`: what names of files contain.
  FaultMatrix(FaultBackend& backend, std::string folder) : backend_(backend), folder_(std::move(folder)) {
    if (const char* stride = std::getenv("QUARRY_TEST_FAULT_STRIDE")) {
      stride_ = std::max<uint64_t>(1, std::strtoull(stride, nullptr, 10));
    }
  }

  void Run(FaultScenario& scenario) {
    static uint64_t scenarios = 0;
    SomeOf some(scenarios++);
    for (const FaultPlan& plan : DataPlans()) {
      if (!scenario.Skips(plan) && some.TakesNext()) RunForEachK(scenario, plan);
    }
    for (const CatalogFaultPlan& plan : CatalogPlans()) {
      if (!scenario.Skips(plan) && some.TakesNext()) RunForEachK(scenario, plan);
    }
    EXPECT_TRUE(faults_ > 0 || OneIn() > 1) << "nothing struck";
    testing::Test::RecordProperty("faults", std::to_string(faults_));
  }

 private:
  static std::vector<FaultPlan> DataPlans() {
    std::vector<FaultPlan> plans;
    const auto add = [&](FaultKind kind, std::initializer_list<int> errors) {
      for (const int error : errors) {
        plans.push_back({.kind = kind, .error = error});
        // A file of which never more than a part is read is one that ends there.
        if (error != 0) plans.push_back({.kind = kind, .sticky = true, .error = error});
      }
    };
    add(FaultKind::kOpen, {EIO});
    add(FaultKind::kCreate, {EIO, ENOSPC});
    add(FaultKind::kRead, {EIO, 0});
    add(FaultKind::kWrite, {EIO, ENOSPC, 0});
    add(FaultKind::kSync, {EIO, ENOSPC});
    add(FaultKind::kRename, {EIO, ENOSPC});
    add(FaultKind::kCreateDirectory, {EIO, ENOSPC});
    add(FaultKind::kLink, {EIO});
    add(FaultKind::kRemove, {EIO});
    return plans;
  }
  // Each of them costs some opens of the catalog: unless all are asked for, errors once are EIO, and those
  // that stay ENOSPC.
  static std::vector<CatalogFaultPlan> CatalogPlans() {
    const bool all = std::getenv("QUARRY_TEST_ALL_FAULTS") != nullptr;
    std::vector<CatalogFaultPlan> plans;
    for (size_t i = 0; i < kCatalogFaultCount; ++i) {
      const auto kind = static_cast<CatalogFault>(i);
      const bool reads = kind == CatalogFault::kOpen || kind == CatalogFault::kRead;
      plans.push_back({.kind = kind, .error = EIO});
      if (all) plans.push_back({.kind = kind, .sticky = true, .error = EIO});
      if (all && !reads) plans.push_back({.kind = kind, .error = ENOSPC});
      if (!reads) plans.push_back({.kind = kind, .sticky = true, .error = ENOSPC});
    }
    return plans;
  }

  template <typename Plan>
  void RunForEachK(FaultScenario& scenario, Plan plan) {
    const uint64_t second = 1 + plans_++ % stride_;  // behind the first
    for (plan.at = 1; !testing::Test::HasFailure(); plan.at += plan.at == 1 ? second : stride_) {
      SCOPED_TRACE(Describe(plan));
      if (!RunWith(scenario, plan)) return;
      ++faults_;
      ASSERT_LT(plan.at, 2000u) << "it goes on and on";
    }
  }

  // True when the fault struck.
  template <typename Plan>
  bool RunWith(FaultScenario& scenario, const Plan& plan) {
    scenario.Fresh();
    Open(scenario);
    if (testing::Test::HasFatalFailure()) return false;
    Set(plan);
    Status status = scenario.Work();
    const bool struck_in_work = Strikes() > 0;
    ExpectFair(scenario, status, plan);
    if (!status.ok() && !plan.sticky) {  // at once, by the same process
      status = scenario.Work();
      if (!status.ok()) ExpectClear(status, plan);
    }
    if (IsSync(plan) && plan.sticky && !status.ok()) {
      EXPECT_EQ(backend_.count(FaultKind::kSync), plan.at) << "a failed sync was not the last";
    }
    scenario.Close();
    const bool struck = Strikes() > 0;
    SCOPED_TRACE(catalog_.struck_file());
    EXPECT_TRUE(struck_in_work || status.ok()) << status.ToString();
    Clear();
    ExpectAfterRestart(scenario, status.ok());
    return struck;
  }

  static void ExpectAfterRestart(FaultScenario& scenario, bool done) {
    Open(scenario);
    if (testing::Test::HasFatalFailure()) return;
    scenario.Check(done);
    if (!done && !testing::Test::HasFailure()) {
      const Status again = scenario.Work();
      EXPECT_OK(again) << "without a fault";
      scenario.Check(again.ok());
    }
    scenario.Close();
  }
  static void Open(FaultScenario& scenario) {
    const Status opened = scenario.Open();
    ASSERT_OK(opened);
  }

  void Set(const FaultPlan& plan) { backend_.SetPlans({plan}); }
  void Set(const CatalogFaultPlan& plan) { catalog_.SetPlan(plan); }
  void Clear() {
    backend_.SetPlans({});
    catalog_.SetPlan({});
  }
  uint64_t Strikes() const { return backend_.strikes() + catalog_.strikes(); }

  template <typename Plan>
  void ExpectFair(FaultScenario& scenario, const Status& status, const Plan& plan) const {
    if (!status.ok()) {
      EXPECT_NE(plan.error, 0) << status.ToString();
      return ExpectClear(status, plan);
    }
    EXPECT_TRUE(Strikes() == 0 || plan.error == 0 || MayEndWell(scenario, plan)) << "the error was swallowed";
  }

  // What cannot be removed is a leftover, and what cannot be linked is copied.
  static bool MayEndWell(FaultScenario& scenario, const FaultPlan& plan) {
    return plan.kind == FaultKind::kRemove || plan.kind == FaultKind::kLink || scenario.MayEndWell(plan);
  }
  // RocksDB can do without some of its files, and compacts others when it likes; but what is written is
  // logged.
  bool MayEndWell(FaultScenario& scenario, const CatalogFaultPlan& plan) const {
    const bool writes = plan.kind == CatalogFault::kAppend || plan.kind == CatalogFault::kSync;
    return !writes || !catalog_.struck_file().ends_with(".log") || scenario.MayEndWell(plan);
  }

  template <typename Plan>
  void ExpectClear(const Status& status, const Plan& plan) const {
    const std::string text(status.message());
    EXPECT_EQ(status.code(), plan.error == ENOSPC ? Code::kNoSpace : Code::kIoError) << status.ToString();
    EXPECT_THAT(text, testing::HasSubstr(folder_)) << "names no file";
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("\n"))) << "is no sentence";
    // RocksDB does not tell why it could not open a file that it tried only to see what the file system can.
    const bool told = std::is_same_v<Plan, FaultPlan> || plan.kind != decltype(plan.kind)::kOpen;
    if (told) {
      EXPECT_THAT(text, testing::HasSubstr(std::strerror(plan.error)));
    }
  }

  static bool IsSync(const FaultPlan& plan) { return plan.kind == FaultKind::kSync; }
  static bool IsSync(const CatalogFaultPlan& /*plan*/) { return false; }

  static std::string Describe(const FaultPlan& plan) {
    static constexpr const char* kNames[] = {
        "open", "creation", "read", "write", "sync", "rename", "creation of a folder", "link", "removal"};
    static_assert(std::size(kNames) == kFaultKindCount);
    return Describe(kNames[static_cast<size_t>(plan.kind)], plan);
  }
  static std::string Describe(const CatalogFaultPlan& plan) {
    static constexpr const char* kNames[] = {"open", "creation", "read", "append", "sync", "rename"};
    return Describe(std::string("the catalog's ") + kNames[static_cast<size_t>(plan.kind)], plan);
  }
  template <typename Plan>
  static std::string Describe(const std::string& kind, const Plan& plan) {
    return fmt::format("{} {}{}: {}", kind, plan.at, plan.sticky ? " and all after it" : "",
                       plan.error == 0 ? "in parts" : std::strerror(plan.error));
  }

  FaultBackend& backend_;
  const std::string folder_;
  CatalogFaults catalog_;
  uint64_t stride_ = 1;
  uint64_t plans_ = 0;  // begun
  uint64_t faults_ = 0;
};

}  // namespace quarry::testing_util
