#include "quarry/base/kill_point.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <set>

namespace quarry {
namespace {

constexpr std::string_view kName = "put: not logged";

size_t IndexOf(std::string_view name) {
  return static_cast<size_t>(std::ranges::find(kKillPoints, name) - std::begin(kKillPoints));
}

TEST(KillPointTest, NothingHappensUntilOneIsArmed) {
  EXPECT_EXIT(
      {
        for (int i = 0; i < 100; ++i) KillPoint("put: not logged");
        _exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(KillPointTest, TheArmedOneKillsAtThePassageThatWasAskedFor) {
  const auto pass_twice = [] {
    for (int i = 0; i < 9; ++i) KillPoint("put: visible, not told");
    for (int i = 0; i < 2; ++i) KillPoint("put: not logged");
  };
  EXPECT_EXIT(
      {
        ArmKillPoint(IndexOf(kName), 2);
        pass_twice();
        _exit(0);
      },
      testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(
      {
        ArmKillPoint(IndexOf(kName), 3);
        pass_twice();
        _exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(KillPointTest, NamesDiffer) {
  EXPECT_EQ(std::set<std::string_view>(std::begin(kKillPoints), std::end(kKillPoints)).size(),
            kKillPointCount);
}

}  // namespace
}  // namespace quarry
