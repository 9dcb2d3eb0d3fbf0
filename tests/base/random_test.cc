#include "quarry/base/random.h"

#include <gtest/gtest.h>

#include <array>

namespace quarry {
namespace {

TEST(RandomTest, TheSequenceOfASeedIsFixedForever) {
  // Databases generated and batches sampled by an older build must be reproducible: these values may not
  // change.
  Rng rng(1);
  for (uint64_t value : {0x589f791ff020ad85u, 0x6bd488aa02c9ddc4u, 0x6f6223af086a5f0du})
    EXPECT_EQ(rng(), value);
  EXPECT_EQ(MixSeed(1, 2, 3), 0x5b42cdf42184245u);
  EXPECT_EQ(Mix64(0), 0xe220a8397b1dcdafu);  // SplitMix64's published first output for seed 0
}

TEST(RandomTest, DerivedSeedsDependOnTheOrderOfTheirParts) {
  EXPECT_NE(MixSeed(1, 2, 3), MixSeed(1, 3, 2));
  EXPECT_NE(MixSeed(1, 2), MixSeed(2, 2));
  EXPECT_NE(MixSeed(1, 0), MixSeed(1, 0, 0));
}

TEST(RandomTest, BelowIsUniform) {
  Rng rng(7);
  constexpr int kDraws = 100000;
  std::array<int, 10> counts{};
  for (int i = 0; i < kDraws; i++) counts[rng.Below(10)]++;
  double chi_square = 0;
  for (int count : counts) chi_square += (count - kDraws / 10.0) * (count - kDraws / 10.0) / (kDraws / 10.0);
  EXPECT_LT(chi_square, 27.9);  // 9 degrees of freedom, p = 0.001
}

TEST(RandomTest, UnitStaysInTheHalfOpenInterval) {
  Rng rng(3);
  double sum = 0;
  for (int i = 0; i < 10000; i++) {
    const double x = rng.Unit();
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

}  // namespace
}  // namespace quarry
