#include "quarry/base/budget.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace quarry
