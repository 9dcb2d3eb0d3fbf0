#include "range_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "quarry/base/random.h"

namespace quarry {
namespace {

constexpr uint64_t kUnit = 4096;

TEST(RangeAllocatorTest, TakesTheFirstRangeThatFitsAndPutsNeighborsTogether) {
  RangeAllocator ranges(4 * kUnit + 100);
  EXPECT_EQ(ranges.free_bytes(), 4 * kUnit);
  EXPECT_EQ(ranges.Allocate(1), 0u);
  EXPECT_EQ(ranges.Allocate(kUnit + 1), kUnit);
  EXPECT_EQ(ranges.Allocate(0), 3 * kUnit);
  EXPECT_EQ(ranges.Allocate(1), std::nullopt);
  EXPECT_EQ(ranges.free_bytes(), 0u);
  ranges.Free(0, 1);
  ranges.Free(3 * kUnit, 0);
  EXPECT_EQ(ranges.Allocate(2 * kUnit), std::nullopt);
  ranges.Free(kUnit, kUnit + 1);
  EXPECT_EQ(ranges.Allocate(4 * kUnit), 0u);
}

TEST(RangeAllocatorTest, WhatCannotBeIsRefused) {
  RangeAllocator ranges(kUnit);
  EXPECT_EQ(ranges.Allocate(~uint64_t{0}), std::nullopt);
  EXPECT_EQ(RangeAllocator(kUnit - 1).Allocate(1), std::nullopt);
}

// Against a map of units.
TEST(RangeAllocatorTest, AgreesWithABitmapOfUnits) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t units = 1 + rng.Below(60);
    RangeAllocator ranges(units * kUnit);
    std::vector<bool> taken(units);
    struct Range {
      uint64_t offset, bytes;
    };
    std::vector<Range> held;
    const auto mark = [&](const Range& range, bool value) {
      for (uint64_t unit = 0; unit < (range.bytes + kUnit - 1) / kUnit; ++unit) {
        ASSERT_NE(taken[range.offset / kUnit + unit], value);
        taken[range.offset / kUnit + unit] = value;
      }
    };
    const auto first_fit = [&](uint64_t wanted) -> std::optional<uint64_t> {
      for (uint64_t at = 0, run = 0; at < units; ++at) {
        run = taken[at] ? 0 : run + 1;
        if (run == wanted) return (at + 1 - wanted) * kUnit;
      }
      return std::nullopt;
    };
    for (int step = 0; step < 2000; ++step) {
      if (rng.Below(2) == 0 && !held.empty()) {
        const size_t which = rng.Below(held.size());
        mark(held[which], false);
        ranges.Free(held[which].offset, held[which].bytes);
        held[which] = held.back();
        held.pop_back();
      } else {
        const uint64_t bytes = 1 + rng.Below(8 * kUnit);
        const std::optional<uint64_t> offset = ranges.Allocate(bytes);
        ASSERT_EQ(offset, first_fit((bytes + kUnit - 1) / kUnit));
        if (!offset) continue;
        held.push_back({*offset, bytes});
        mark(held.back(), true);
      }
      ASSERT_EQ(ranges.free_bytes(), kUnit * static_cast<uint64_t>(std::ranges::count(taken, false)));
    }
  }
}

}  // namespace
}  // namespace quarry
