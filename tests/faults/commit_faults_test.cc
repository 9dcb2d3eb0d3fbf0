// Commits that the disk has failed: what is known of them, and what may be done before that is settled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "faults/small_world.h"
#include "quarry/storage/compaction.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::RowsNow;
using testing_util::SmallWorld;

using Step = std::function<Status(SmallWorld&)>;

Status Compact(SmallWorld& world) {
  return CompactTable(world.store(), world.budget(), "feature", false, {}).status();
}

TEST(CommitFaultsTest, AFailedSyncOfTheLogIsNotTriedAgainAndStopsWritesButNotReaders) {
  const std::vector<Step> steps = {
      [](SmallWorld& w) { return w.Put(11); },
      [](SmallWorld& w) { return w.store().UpdateManifest([](Manifest&) { return Status::Ok(); }); },
      Compact,
      [](SmallWorld& w) { return w.Train(7); },
  };
  SmallWorld world({.work = steps[0], .trained = true});
  CatalogFaults faults;
  world.Fresh();
  ASSERT_OK(world.Open());
  ASSERT_OK(world.Put(10));
  const testing_util::TableRows rows = RowsNow(world.store(), "feature");
  faults.SetPlan({.kind = CatalogFault::kSync, .at = 1, .error = EIO});
  const Status failed = world.Put(11);
  EXPECT_THAT(failed, IsStatus(Code::kIoError));
  EXPECT_THAT(std::string(failed.message()),
              testing::AllOf(HasSubstr(world.path()), HasSubstr(".log"), HasSubstr("Input/output error")));
  for (const Step& step : steps) {
    const Status refused = step(world);
    EXPECT_THAT(refused, IsStatus(Code::kIoError));
    EXPECT_THAT(std::string(refused.message()),
                testing::AnyOf(HasSubstr("writes are refused since one failed"),
                               HasSubstr("nothing is written any more until")));
    EXPECT_EQ(RowsNow(world.store(), "feature"), rows);
  }
  EXPECT_EQ(faults.count(CatalogFault::kSync), 1u) << "no other try";
  world.Close();
  faults.SetPlan({});
  ASSERT_OK(world.Open());
  world.Check(/*done=*/false);
  for (const Step& step : steps) EXPECT_OK(step(world));
  world.Check(/*done=*/true);
  world.Close();
}

// A commit that failed may be on disk, and name a file that this process takes for a leftover. A second try
// that also fails must not have damaged it.
TEST(CommitFaultsTest, AFileThatAFailedCommitMayNameIsKeptUntilThatIsSettled) {
  for (const Step& step : {Step(Compact), Step([](SmallWorld& w) { return w.Train(7); }),
                           Step([](SmallWorld& w) { return w.Build(SmallWorld::LayoutOf("other")); })}) {
    SmallWorld world({.work = step, .trained = true});
    CatalogFaults faults;
    for (const bool writable : {false, true}) {
      bool struck = true;
      for (uint64_t at = 1; struck && !HasFailure(); ++at) {
        SCOPED_TRACE(testing::Message() << "sync " << at << (writable ? ", written to before" : ""));
        world.Fresh();
        ASSERT_OK(world.Open());
        if (writable) {
          ASSERT_OK(world.Put(10));
        }
        faults.SetPlan({.kind = CatalogFault::kSync, .at = at, .error = EIO});
        static_cast<void>(world.Work().ok());
        struck = faults.strikes() > 0;
        faults.SetPlan({});
        world.backend().SetPlans({{.kind = FaultKind::kWrite, .at = 1, .sticky = true, .error = EIO}});
        static_cast<void>(world.Work().ok());
        world.backend().SetPlans({});
        world.Close();
        ASSERT_OK(world.Open());
        world.Check(/*done=*/false);
        EXPECT_OK(world.Put(12));
        world.Close();
      }
    }
  }
}

// What the first write would remove may be what a commit names that is not on disk yet: it goes behind a
// commit that is.
TEST(CommitFaultsTest, ALeftoverIsRemovedOnlyBehindACommit) {
  SmallWorld world({.work = Compact});
  CatalogFaults faults;
  world.Fresh();
  const std::string leftover = world.path() + "/features/feature-7.qft";
  fs::copy(world.path() + "/features/feature-1.qft", leftover);
  faults.SetPlan({.kind = CatalogFault::kSync, .at = 1, .sticky = true, .error = EIO});
  ASSERT_OK(world.Open()) << "it can be read";
  EXPECT_FALSE(RowsNow(world.store(), "feature").empty());
  static_cast<void>(world.store().PrepareToWrite().ok());
  EXPECT_TRUE(fs::exists(leftover));
  world.Close();
  faults.SetPlan({});
  ASSERT_OK(world.Open());
  ASSERT_OK(world.store().PrepareToWrite());
  EXPECT_FALSE(fs::exists(leftover));
  world.Close();
}

}  // namespace
}  // namespace quarry
