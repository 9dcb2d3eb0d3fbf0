// The least budget on a machine of a given size, beside a brute force over all budgets.
#include "cli/train_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

// A road takes `base`, and `times` what the trainer needs of the budget: twice where half of it is for building.
std::optional<uint64_t> LeastByTrying(const MachineMemory& memory, uint64_t base, uint64_t times) {
  for (uint64_t budget = 0; budget <= memory.machine_bytes; ++budget) {
    if (base + times * memory.TrainerOf(budget) <= budget) return budget;
  }
  return std::nullopt;
}

TEST(TrainMemoryTest, TheLeastIsThatOfNoOtherLimit) {
  for (uint64_t machine = 0; machine <= 24; ++machine) {
    for (uint64_t trainer = 0; trainer <= 26; ++trainer) {
      const MachineMemory memory = {.machine_bytes = machine, .trainer_bytes = trainer};
      for (uint64_t base = 0; base <= 26; ++base) {
        for (const uint64_t times : {1, 2}) {
          SCOPED_TRACE(testing::Message() << machine << ", " << trainer << ", " << base << ", " << times);
          const std::optional<uint64_t> least = LeastByTrying(memory, base, times);
          ASSERT_EQ(least.has_value(), memory.Holds(base));
          ASSERT_EQ(least.value_or(base), base);
        }
      }
    }
  }
}

// A GiB of road and 3 of trainer, on 4 GiB: a budget of 2 GiB is refused, and what is named is less, not more.
TEST(TrainMemoryTest, ARefusalNamesABudgetThatDoes) {
  using testing::HasSubstr;
  const MachineMemory memory = {.machine_bytes = 4 * kGiB, .trainer_bytes = 3 * kGiB};
  EXPECT_EQ(memory.TrainerOf(2 * kGiB), kGiB);
  EXPECT_EQ(memory.TrainerOf(kGiB), 0u);
  EXPECT_THAT(WhyTooLittle(memory, kGiB, 512 * kMiB), HasSubstr("1024MiB, and has 512 MiB"));
  EXPECT_THAT(WhyTooLittle(memory, kGiB, 2 * kGiB), HasSubstr("1024MiB, and 2.00 GiB leaves too little"));
  EXPECT_THAT(WhyTooLittle(memory, kGiB + 1, 2 * kGiB), HasSubstr("the machine or cgroup has 4.00 GiB"));
}

}  // namespace
}  // namespace quarry::cli
