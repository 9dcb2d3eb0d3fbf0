#include "quarry/base/budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "support/status_matchers.h"

namespace quarry {
namespace {

TEST(MemoryBudgetTest, ReservationsAreGivenBackWhenTheyDie) {
  MemoryBudget budget(100);
  {
    ASSERT_OK_AND_ASSIGN(auto first, budget.Reserve(60, "a"));
    EXPECT_EQ(budget.available_bytes(), 40u);
    MemoryBudget::Reservation moved = std::move(first);
    EXPECT_EQ(budget.used_bytes(), 60u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(MemoryBudgetTest, ARefusalNamesTheUseAndTheLeastThatWouldDo) {
  MemoryBudget budget(100);
  auto first = budget.Reserve(60, "cache");
  const Status refused = budget.Reserve(50, "batches").status();
  EXPECT_THAT(refused, IsStatus(Code::kOutOfBudget, testing::HasSubstr("batches")));
  EXPECT_NE(refused.message().find("at least 110 B"), std::string_view::npos) << refused.message();
  EXPECT_EQ(budget.used_bytes(), 60u);
}

TEST(MemoryBudgetTest, HugeRequestsDoNotWrapAround) {
  MemoryBudget budget(100);
  auto first = budget.Reserve(60, "a");
  EXPECT_FALSE(budget.Reserve(UINT64_MAX - 10, "b").ok());
}

TEST(MemoryBudgetTest, ConcurrentReservationsNeverExceedTheLimit) {
  MemoryBudget budget(1000);
  std::vector<std::thread> threads;
  std::atomic<bool> exceeded{false};
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; i++) {
        auto reservation = budget.Reserve(300, "x");
        if (budget.used_bytes() > budget.limit_bytes()) exceeded = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(MemoryBudgetTest, ALoanIsOfWhatIsFreeAndNobodyIsRefusedBecauseOfIt) {
  MemoryBudget budget(100);
  ASSERT_OK_AND_ASSIGN(auto first, budget.Reserve(30, "a"));
  EXPECT_THAT(budget.Borrow(71, "merging", [] {}).status(),
              IsStatus(Code::kOutOfBudget, testing::HasSubstr("cannot hold merging (71 B)")));
  std::atomic<int> called = 0;
  std::optional<MemoryBudget::Loan> loan;
  ASSERT_OK_AND_ASSIGN(loan, budget.Borrow(60, "merging", [&] { ++called; }));
  EXPECT_THAT(budget.Borrow(1, "another", [] {}).status(),
              IsStatus(Code::kOutOfBudget, testing::HasSubstr("60 B are lent already")));
  EXPECT_EQ(budget.used_bytes(), 30u) << "it does not count";
  ASSERT_OK_AND_ASSIGN(auto beside, budget.Reserve(10, "b"));
  EXPECT_EQ(called, 0) << "there is room for both";
  EXPECT_FALSE(budget.Reserve(61, "c").ok()) << "there would be none without the loan either";
  EXPECT_EQ(called, 0);
  std::thread reserving([&] { EXPECT_OK(budget.Reserve(60, "d")); });
  while (called == 0) std::this_thread::yield();
  loan.reset();
  reserving.join();
  ASSERT_OK_AND_ASSIGN(auto again, budget.Borrow(60, "merging", [] {}));
}

// What is reserved and what is lent never exceed the limit together, and reservations that fit by themselves are never refused.
TEST(MemoryBudgetTest, LoansGiveWayToConcurrentReservations) {
  MemoryBudget budget(1000);
  std::atomic<uint64_t> held = 0;
  std::atomic<bool> exceeded = false, over = false;
  std::atomic<uint64_t> loans = 0;
  const auto hold = [&](uint64_t bytes) {
    if (held.fetch_add(bytes) + bytes > 1000) exceeded = true;
  };
  std::thread borrower([&] {
    while (!over || loans == 0) {
      std::atomic<bool> give_back = false;
      const auto loan = budget.Borrow(500, "merging", [&] { give_back = true; });
      if (!loan.ok()) continue;
      ++loans;
      hold(500);
      for (int i = 0; i < 100 && !give_back; ++i) std::this_thread::yield();
      held -= 500;
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; i++) {
        const auto reservation = budget.Reserve(300, "x");
        ASSERT_OK(reservation);
        hold(300);
        std::this_thread::yield();
        held -= 300;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  borrower.join();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(budget.used_bytes(), 0u);
}

}  // namespace
}  // namespace quarry
