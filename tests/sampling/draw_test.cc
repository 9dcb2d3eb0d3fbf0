// What the drawer promises is a distribution. Seeds are fixed, so these tests either always pass or always
// fail; the bounds are 5 standard deviations of the statistic.
#include "draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

namespace quarry {
namespace {

struct Shape {
  uint64_t degree;
  uint32_t count;
};

// Below and above what one filter word settles exactly, and on both sides of the step to the set.
const Shape kShapes[] = {{2, 1},    {11, 10},  {30, 10},  {64, 10},  {65, 10},
                         {300, 15}, {100, 32}, {100, 33}, {200, 150}};

TEST(SubsetDrawer, DrawsDistinctNumbersBelowTheDegree) {
  SubsetDrawer drawer;
  Rng rng(1);
  for (const Shape shape : {Shape{1025, 1024}, Shape{100'000, 1024}, Shape{uint64_t{1} << 40, 33},
                            Shape{33, 32}, Shape{uint64_t{1} << 40, 32}}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<uint64_t> out(shape.count);
      drawer.Draw(rng, 1000, shape.degree, shape.count, out.data());
      EXPECT_EQ(std::set<uint64_t>(out.begin(), out.end()).size(), shape.count);
      for (const uint64_t number : out) {
        EXPECT_GE(number, 1000);
        EXPECT_LT(number, 1000 + shape.degree);
      }
    }
  }
}

TEST(SubsetDrawer, GivesEverySubsetTheSameChance) {
  constexpr int kRounds = 100'000;
  SubsetDrawer drawer;
  Rng rng(2);
  std::map<std::set<uint64_t>, int> counts;
  for (int i = 0; i < kRounds; ++i) {
    uint64_t out[3];
    drawer.Draw(rng, 0, 7, 3, out);
    ++counts[std::set<uint64_t>(out, out + 3)];
  }
  ASSERT_EQ(counts.size(), 35);  // 7 choose 3
  const double expected = kRounds / 35.0;
  double chi_square = 0;
  for (const auto& [subset, count] : counts) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_NEAR(chi_square, 34, 5 * std::sqrt(2 * 34.0));
}

TEST(SubsetDrawer, IncludesEachNumberAndEachPairAsOftenAsAnyOther) {
  constexpr int kRounds = 20'000;
  for (const Shape shape : kShapes) {
    SCOPED_TRACE(testing::Message() << "degree " << shape.degree << ", count " << shape.count);
    SubsetDrawer drawer;
    Rng rng(3);
    std::vector<int> single(shape.degree);
    std::vector<int> pair(shape.degree * shape.degree);
    std::vector<uint64_t> out(shape.count);
    for (int i = 0; i < kRounds; ++i) {
      drawer.Draw(rng, 0, shape.degree, shape.count, out.data());
      std::sort(out.begin(), out.end());
      for (size_t a = 0; a < out.size(); ++a) {
        ++single[out[a]];
        for (size_t b = a + 1; b < out.size(); ++b) ++pair[out[a] * shape.degree + out[b]];
      }
    }
    // Inclusions are dependent through their fixed sum: the statistic below has degree - 1 degrees of
    // freedom.
    const double n = static_cast<double>(shape.degree);
    const double p = shape.count / n;
    double chi_square = 0;
    for (const int count : single)
      chi_square += (count - kRounds * p) * (count - kRounds * p) / (kRounds * p * (1 - p));
    chi_square *= (n - 1) / n;
    EXPECT_NEAR(chi_square, n - 1, 5 * std::sqrt(2 * (n - 1)));

    const double q = p * (shape.count - 1) / (n - 1);
    const double deviation = std::sqrt(kRounds * q * (1 - q));
    for (uint64_t a = 0; a < shape.degree; ++a) {
      for (uint64_t b = a + 1; b < shape.degree; ++b) {
        EXPECT_NEAR(pair[a * shape.degree + b], kRounds * q, 6 * deviation + 1e-9) << a << " with " << b;
      }
    }
  }
}

}  // namespace
}  // namespace quarry
