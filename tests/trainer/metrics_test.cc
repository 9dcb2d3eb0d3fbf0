#include "metrics.h"

#include <gtest/gtest.h>

#include <vector>

#include "quarry/base/random.h"

namespace quarry {
namespace {

TEST(RocAuc, IsTheShareOfPairsInTheRightOrderWithTiesCountedHalf) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    std::vector<float> scores;
    std::vector<uint8_t> positive;
    for (int i = 0; i < 200; i++) {
      scores.push_back(static_cast<float>(rng.Below(seed * 5)));  // small seeds: many ties
      positive.push_back(rng.Below(3) == 0);
    }
    double wins = 0, pairs = 0;
    for (size_t i = 0; i < scores.size(); i++) {
      for (size_t j = 0; j < scores.size(); j++) {
        if (!positive[i] || positive[j]) continue;
        pairs++;
        wins += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
      }
    }
    EXPECT_DOUBLE_EQ(RocAuc(scores, positive).value(), wins / pairs);
  }
}

TEST(RocAuc, IsAbsentWhenAClassIsAbsent) {
  const std::vector<float> scores = {1, 2, 3};
  EXPECT_FALSE(RocAuc(scores, std::vector<uint8_t>{1, 1, 1}).has_value());
  EXPECT_FALSE(RocAuc(scores, std::vector<uint8_t>{0, 0, 0}).has_value());
  EXPECT_EQ(RocAuc(scores, std::vector<uint8_t>{0, 0, 1}), 1.0);
}

TEST(ArgMax, TakesTheFirstOfTheLargest) {
  EXPECT_EQ(ArgMax(std::vector<float>{1, 3, 2, 3}), 1u);
  EXPECT_EQ(ArgMax(std::vector<float>{-5}), 0u);
}

}  // namespace
}  // namespace quarry
