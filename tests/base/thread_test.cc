// Threads, and what becomes of work when the system has none or memory runs out in one. The system's refusal
// is a test's (FailThreadStarts): RLIMIT_NPROC does not hold for root.
#include "quarry/base/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <set>

#include "quarry/base/exhaustion.h"
#include "quarry/base/mutex.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

void Ignore(const Status&) {}

class ThreadTest : public testing::Test {
 protected:
  ~ThreadTest() override { FailThreadStarts(0); }
};

TEST_F(ThreadTest, AThreadRunsItsBodyAndIsJoinedWhenItDies) {
  std::atomic<bool> ran{false};
  {
    const auto thread = Thread::Start(
        "test", [&] { ran = true; }, Ignore);
    ASSERT_OK(thread);
  }
  EXPECT_TRUE(ran);
}

TEST_F(ThreadTest, WhereTheSystemHasNoneTheSentenceNamesWhatToRaise) {
  FailThreadStarts(1, 1);
  bool ran = false;
  const auto refused = Thread::Start(
      "extract", [&] { ran = true; }, Ignore);
  EXPECT_THAT(refused, IsStatus(Code::kOutOfBudget, HasSubstr("cannot start a thread (extract)")));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("ulimit -u"));
  EXPECT_FALSE(ran);
  EXPECT_EQ(FailedThreadStarts(), 1U);
  EXPECT_OK(Thread::Start(
      "extract", [] {}, Ignore))
      << "the next one";
}

TEST_F(ThreadTest, TheThirdAndFourthStartFailWhenTheyAreAskedTo) {
  FailThreadStarts(3, 2);
  std::vector<bool> started;
  for (int i = 0; i < 6; ++i)
    started.push_back(Thread::Start(
                          "test", [] {}, Ignore)
                          .ok());
  EXPECT_EQ(started, std::vector<bool>({true, true, false, false, true, true}));
}

TEST_F(ThreadTest, WhatEndsABodyIsToldByItsThread) {
  Status told;
  {
    const auto thread = Thread::Start(
        "sample", [] { throw std::bad_alloc(); }, [&](const Status& why) { told = why; });
  }
  EXPECT_THAT(told, IsStatus(Code::kOutOfBudget, HasSubstr("sample: the system has no more memory")));
  {
    const auto thread = Thread::Start(
        "sample", [] { throw std::runtime_error("a bug"); }, [&](const Status& why) { told = why; });
  }
  EXPECT_THAT(told, IsStatus(Code::kInternal, HasSubstr("sample: a bug")));
}

TEST_F(ThreadTest, ATellerThatFindsNoMemoryTellsAgain) {
  int tries = 0;
  {
    const auto thread = Thread::Start(
        "test", [] { throw std::bad_alloc(); },
        [&](const Status&) {
          if (++tries < 3) throw std::bad_alloc();
        });
  }
  EXPECT_EQ(tries, 3);
}

TEST_F(ThreadTest, AnAssignedThreadIsJoinedFirst) {
  std::atomic<int> ran{0};
  Thread thread;
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(auto next, Thread::Start(
                                        "test", [&] { ++ran; }, Ignore));
    thread = std::move(next);
    EXPECT_GE(ran, i);
  }
  thread.Join();
  thread.Join();
  EXPECT_EQ(ran, 3);
}

TEST_F(ThreadTest, APoolStartsWithAsManyAsThereAre) {
  for (unsigned fails = 1; fails <= 4; ++fails) {
    SCOPED_TRACE(fails);
    FailThreadStarts(fails);
    Mutex mutex;
    std::set<unsigned> ran;
    std::vector<Thread> threads;
    const Status status = StartThreads(
        "test", 3,
        [&](unsigned i) {
          MutexLock lock(mutex);
          ran.insert(i);
        },
        Ignore, threads);
    EXPECT_EQ(status.code(), fails == 1 ? Code::kOutOfBudget : Code::kOk);
    EXPECT_EQ(threads.size(), fails - 1);
    threads.clear();
    EXPECT_EQ(ran.size(), fails - 1);
  }
}

TEST_F(ThreadTest, WorkThatIsSharedOutIsDoneByWhoeverThereIs) {
  for (unsigned fails = 0; fails <= 4; ++fails) {
    SCOPED_TRACE(fails);
    FailThreadStarts(fails);
    std::atomic<int> next{0}, done{0};
    const Status status = RunOnThreads("test", 4, [&](unsigned) {
      for (int task = next++; task < 100; task = next++) ++done;
      return Status::Ok();
    });
    EXPECT_OK(status);
    EXPECT_EQ(done, 100);
  }
}

TEST_F(ThreadTest, TheFirstFailureOfSharedWorkComesBack) {
  EXPECT_OK(RunOnThreads("test", 0, [](unsigned) { return Status::Ok(); }));
  for (unsigned fails = 0; fails < 3; ++fails) {
    const Status status = RunOnThreads("test", 3, [&](unsigned i) -> Status {
      if (i == fails) throw std::bad_alloc();
      return i > fails ? Status(Code::kIoError, "later") : Status::Ok();
    });
    EXPECT_THAT(status, IsStatus(Code::kOutOfBudget)) << fails;
  }
}

TEST_F(ThreadTest, ABackgroundTaskIsDoneByWhoAsksWhereThereIsNoThread) {
  for (const uint64_t fails : {0, 1}) {
    FailThreadStarts(fails);
    const auto caller = std::this_thread::get_id();
    auto task = BackgroundTask<Result<bool>>::Start(
        "test", [&]() -> Result<bool> { return std::this_thread::get_id() == caller; });
    ASSERT_TRUE(task.valid());
    ASSERT_OK_AND_ASSIGN(const bool here, task.Get());
    EXPECT_EQ(here, fails == 1);
    EXPECT_FALSE(task.valid());
  }
}

TEST_F(ThreadTest, ABackgroundTaskThatIsDroppedIsWaitedForOrNeverBegun) {
  std::atomic<int> ran{0};
  {
    const auto task = BackgroundTask<Status>::Start("test", [&] { return ++ran, Status::Ok(); });
  }
  EXPECT_EQ(ran, 1);
  FailThreadStarts(1);
  {
    const auto task = BackgroundTask<Status>::Start("test", [&] { return ++ran, Status::Ok(); });
  }
  EXPECT_EQ(ran, 1);
}

TEST_F(ThreadTest, ABackgroundTaskThatFindsNoMemorySaysSo) {
  auto task = BackgroundTask<Status>::Start("test", []() -> Status { throw std::bad_alloc(); });
  EXPECT_THAT(task.Get(), IsStatus(Code::kOutOfBudget));
}

TEST_F(ThreadTest, AProbeCountsTheThreadsThatThereWouldBe) {
  EXPECT_EQ(ProbeThreads(0), 0U);
  EXPECT_EQ(ProbeThreads(5), 5U);
  FailThreadStarts(4);
  EXPECT_EQ(ProbeThreads(5), 3U);
  EXPECT_EQ(ProbeThreads(5), 0U);
}

TEST(ExhaustionTest, WhatIsThrownBecomesAStatus) {
  EXPECT_OK(CatchExhaustion("work", [] { return Status::Ok(); }));
  EXPECT_THAT(CatchExhaustion("work", []() -> Status { throw std::bad_alloc(); }),
              IsStatus(Code::kOutOfBudget));
  const Result<int> result =
      CatchExhaustion("work", []() -> Result<int> { throw std::runtime_error("bug"); });
  EXPECT_EQ(result.status().ToString(), Unexpected("work", std::runtime_error("bug")).ToString());
}

TEST(ExhaustionTest, InsistingEndsAfterASecond) {
  int tries = 0;
  EXPECT_THROW(Insist([&] {
                 ++tries;
                 throw std::bad_alloc();
               }),
               std::bad_alloc);
  EXPECT_EQ(tries, 100);
}

}  // namespace
}  // namespace quarry
