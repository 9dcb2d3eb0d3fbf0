// The parts of a server that decide without a socket: who gets memory, which write is done again, whose turn
// a thread is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "admission.h"
#include "answer_memory.h"
#include "quarry/base/random.h"
#include "retry_memory.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"
#include "workers.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using Grant = Admission::Grant;

constexpr uint64_t kPieceSeed = 20267;

TEST(AdmissionTest, GrantsWhatThereIsUpToWhatIsAsked) {
  MemoryBudget budget(1000);
  Admission admission(budget);
  ASSERT_OK_AND_ASSIGN(auto first, admission.Ask({.bytes = 600, .bytes_min = 100}));
  EXPECT_EQ(first->limit_bytes(), 600U);
  ASSERT_OK_AND_ASSIGN(const auto second, admission.Ask({.bytes = 600, .bytes_min = 100}));
  EXPECT_EQ(second->limit_bytes(), 400U);
  EXPECT_THAT(admission.Ask({.bytes = 600, .bytes_min = 100}), IsStatus(Code::kOutOfBudget));
  std::move(first).reset();
  EXPECT_EQ(budget.used_bytes(), 400U);
  EXPECT_OK(admission.Ask({.bytes = 1, .bytes_min = 1}));
}

TEST(AdmissionTest, WhoWaitsIsServedInOrderAndNotOvertaken) {
  MemoryBudget budget(1000);
  Admission admission(budget);
  Grant all = admission.Ask({.bytes = 1000, .bytes_min = 1000}).value();
  std::vector<int> served;
  std::vector<Grant> grants;
  const auto wait = [&](int who, uint64_t bytes) {
    return admission.Wait({.bytes = bytes, .bytes_min = bytes}, [&, who](Result<Grant> grant) {
      served.push_back(who);
      grants.push_back(std::move(grant).value());
    });
  };
  wait(1, 900);
  const uint64_t second = wait(2, 50);
  wait(3, 100);
  EXPECT_THAT(admission.Ask({.bytes = 1, .bytes_min = 1}), IsStatus(Code::kOutOfBudget));
  EXPECT_THAT(admission.GiveUp(second), IsStatus(Code::kOutOfBudget));
  EXPECT_OK(admission.GiveUp(second));
  all.reset();
  EXPECT_THAT(served, ElementsAre(1, 3));
  EXPECT_EQ(budget.used_bytes(), 1000U);
  grants.clear();
  EXPECT_EQ(budget.used_bytes(), 0U);
}

TEST(AdmissionTest, AGrantMayOutliveEverybody) {
  MemoryBudget budget(10);
  Grant grant;
  {
    Admission admission(budget);
    grant = admission.Ask({.bytes = 10, .bytes_min = 10}).value();
  }
  grant.reset();
  EXPECT_EQ(budget.used_bytes(), 0U);
}

wire::Response Written(uint64_t timestamp) { return wire::Written{timestamp}; }

class RetryMemoryTest : public testing::Test {
 protected:
  // Begins a write, and tells what its answer was, once there is one.
  Result<std::shared_ptr<RetryMemory::Turn>> Begin(uint64_t number, uint8_t client = 1,
                                                   RetryMemory::Clock::time_point now = {}, uid_t user = 0) {
    ClientId id{};
    id[0] = std::byte{client};
    std::memcpy(id.data() + 1, &high_, sizeof(high_));
    return memory_->Begin(
        {user, id}, number,
        [this, number](const Result<wire::Response>& result) {
          answers_.emplace_back(number, result.ok() ? std::get<wire::Written>(*result).timestamp : 0);
        },
        now);
  }
  // So many clients that write once.
  void Fill(RetryMemory::Clock::time_point now, uid_t user, size_t clients) {
    for (high_ = 1; high_ <= clients; ++high_) {
      const auto turn = Begin(1, 0, now, user);
      ASSERT_OK(turn) << high_;
      (*turn)->Finish(Written(1));
    }
    high_ = 0;
  }

  RetryMemory own_;
  RetryMemory* memory_ = &own_;
  std::vector<std::pair<uint64_t, uint64_t>> answers_;  // number, timestamp; 0: a failure
  uint64_t high_ = 0;                                   // of clients' ids
};

TEST_F(RetryMemoryTest, AWriteIsDoneOnceAndWhoAsksMeanwhileWaitsForIt) {
  const auto turn = Begin(1).value();
  ASSERT_NE(turn, nullptr);
  EXPECT_EQ(Begin(1).value(), nullptr);
  EXPECT_NE(Begin(1, 2).value(), nullptr) << "another client's number 1 is another write";
  answers_.clear();
  turn->Finish(Written(77));
  EXPECT_THAT(answers_, ElementsAre(std::pair(1, 77), std::pair(1, 77)));
  EXPECT_EQ(Begin(1).value(), nullptr);
  EXPECT_EQ(answers_.back(), std::pair(uint64_t{1}, uint64_t{77}));
}

TEST_F(RetryMemoryTest, FailuresAndWritesThatNeverBeganMayBeTriedAgain) {
  Begin(1).value()->Finish(Status(Code::kNoSpace, "full"));
  EXPECT_NE(Begin(1).value(), nullptr);  // which dies unfinished at once
  EXPECT_NE(Begin(1).value(), nullptr);
  EXPECT_THAT(answers_, ElementsAre(std::pair(1, 0), std::pair(1, 0), std::pair(1, 0)));
}

TEST_F(RetryMemoryTest, RemembersTheLast64AndRefusesOlderOnes) {
  for (uint64_t number = 1; number <= 100; ++number) Begin(number).value()->Finish(Written(number));
  EXPECT_THAT(Begin(36), IsStatus(Code::kUsage));
  answers_.clear();
  EXPECT_EQ(Begin(37).value(), nullptr);
  EXPECT_THAT(answers_, ElementsAre(std::pair(37, 37)));
}

TEST_F(RetryMemoryTest, KeepsAClientForTenMinutesWhileThereIsRoom) {
  using std::chrono::minutes;
  const RetryMemory::Clock::time_point start{};
  Begin(1, 1, start).value()->Finish(Written(5));
  Fill(start + minutes(8), 0, RetryMemory::kWritesMax - 1);
  EXPECT_EQ(Begin(1, 1, start + minutes(9)).value(), nullptr) << "it is remembered";
  EXPECT_OK(Begin(2, 2, start + minutes(10))) << "those idle for more than a minute make room";
  EXPECT_EQ(Begin(1, 1, start + minutes(10)).value(), nullptr) << "which it was not";
  EXPECT_NE(Begin(1, 1, start + minutes(10), 7).value(), nullptr) << "an id of another user's is another id";
}

TEST_F(RetryMemoryTest, AUserOfManyIdsIsInTheWayOfNobodyElse) {
  using std::chrono::minutes;
  using std::chrono::seconds;
  const RetryMemory::Clock::time_point start{};
  RetryMemory two({1000, 1001});
  memory_ = &two;
  Begin(1, 1, start, 1001).value()->Finish(Written(5));
  constexpr size_t kShare = RetryMemory::kWritesMax - RetryMemory::kWritesMax / 4;
  Fill(start, 1000, kShare);
  const auto refused = Begin(2, 2, start + seconds(30), 1000);
  EXPECT_THAT(refused, IsStatus(Code::kBusy, testing::HasSubstr("user 1000")));
  EXPECT_EQ(Begin(1, 1, start + seconds(30), 1001).value(), nullptr)
      << "what another has written is remembered";
  EXPECT_OK(Begin(2, 2, start + seconds(30), 1001)) << "and another may write";
  EXPECT_OK(Begin(2, 2, start + minutes(2), 1000)) << "it has lost what was idle";
  EXPECT_EQ(Begin(1, 1, start + minutes(2), 1001).value(), nullptr) << "and nobody else has";
}

TEST_F(RetryMemoryTest, FailuresAreNotRemembered) {
  RetryMemory two({1000, 1001});
  memory_ = &two;
  for (size_t i = 0; i < 2 * RetryMemory::kWritesMax; ++i) {
    high_ = i;
    const auto turn = Begin(1, 1, {}, 1000);
    ASSERT_OK(turn) << i;
    (*turn)->Finish(Status(Code::kNoSpace, "full"));
  }
}

TEST(WorkersTest, ASessionWithMuchToDoWaitsForItself) {
  Workers workers;
  ASSERT_OK(workers.Start(1));
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> ran;
  bool open = false;
  workers.Submit(1, [&](unsigned) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return open; });
  });
  const auto note = [&](int who) {
    return [&, who](unsigned) {
      const std::scoped_lock lock(mutex);
      ran.push_back(who);
      changed.notify_all();
    };
  };
  for (int i = 0; i < 4; ++i) workers.Submit(1, note(1));
  for (int i = 0; i < 2; ++i) workers.Submit(2, note(2));
  workers.Submit(3, note(3));
  workers.Forget(3);
  {
    std::unique_lock lock(mutex);
    open = true;
    changed.notify_all();
    changed.wait(lock, [&] { return ran.size() == 6; });
  }
  EXPECT_THAT(ran, ElementsAre(2, 1, 2, 1, 1, 1));
}

TEST(WorkersTest, ASessionHasOneThreadAtATime) {
  Workers workers;
  ASSERT_OK(workers.Start(2));
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  int running = 0, ran = 0, running_most = 0;
  for (int i = 0; i < 3; ++i) {
    workers.Submit(1, [&](unsigned) {
      std::unique_lock lock(mutex);
      running_most = std::max(running_most, ++running);
      changed.wait(lock, [&] { return open; });
      --running;
      ++ran;
      changed.notify_all();
    });
  }
  bool other = false;
  workers.Submit(2, [&](unsigned) {
    const std::scoped_lock lock(mutex);
    other = true;
  });
  testing_util::WaitUntilAllSleep();
  std::unique_lock lock(mutex);
  EXPECT_TRUE(other) << "while those of the first session stand still";
  EXPECT_EQ(running, 1);
  open = true;
  changed.notify_all();
  changed.wait(lock, [&] { return ran == 3; });
  EXPECT_EQ(running_most, 1);
}

// Answers take what they need, wait for each other, and never overlap.
TEST(AnswerMemoryTest, PlacesNeverOverlapAndWhoWaitsIsServedInOrder) {
  SCOPED_TRACE(kPieceSeed);
  Rng rng(kPieceSeed);
  MemoryBudget budget(1 << 20);
  const auto region = SharedRegion::Make(64 << 10, wire::RegionAccess::kClientReads).value();
  AnswerMemory memory(3, region, budget);
  std::vector<std::shared_ptr<AnswerMemory::Place>> held;
  uint64_t asked = 0, last = 0;
  for (int step = 0; step < 5000; ++step) {
    if (rng.Below(2) == 0) {
      const uint64_t request = ++asked;
      memory.Allocate(request, 1 + rng.Below(30'000),
                      [&, request](Result<std::shared_ptr<AnswerMemory::Place>> place) {
                        ASSERT_OK(place);
                        EXPECT_GT(request, last);
                        last = request;
                        EXPECT_EQ((*place)->range.region, 3U);
                        for (const auto& other : held) {
                          EXPECT_TRUE((*place)->range.offset >= other->range.offset + other->range.bytes ||
                                      other->range.offset >= (*place)->range.offset + (*place)->range.bytes);
                        }
                        held.push_back(*place);
                      });
    } else if (!held.empty()) {
      const size_t i = rng.Below(held.size());
      const auto place = held[i];
      held.erase(held.begin() + static_cast<ptrdiff_t>(i));
      memory.Free(place);
    }
  }
  EXPECT_GT(last, 1000U);
  bool refused = false;
  memory.Allocate(++asked, 65 << 10,
                  [&](const auto& place) { refused = place.status().code() == Code::kOutOfBudget; });
  EXPECT_TRUE(refused) << "what never fits does not wait";
}

}  // namespace
}  // namespace quarry
