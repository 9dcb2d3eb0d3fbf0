#include "quarry/partition/auto_tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

// Freebase86M with vectors of 100 floats.
constexpr PartitionedSizes kFreebase{.node_count = 86'054'151, .row_bytes = 400, .edge_count = 338'586'276};

PartitionTuning TuningOf(const PartitionedSizes& sizes, const TuneOptions& options) {
  const Result<PartitionTuning> tuning = TunePartitions(sizes, options);
  EXPECT_OK(tuning);
  return tuning.ok() ? *tuning : PartitionTuning{};
}

void ExpectPlannable(const PartitionTuning& tuning, PartitionOrder order) {
  const Status checked = CheckSwapSpec(
      {.order = order, .parts = tuning.parts, .buffer = tuning.buffer, .logical = tuning.logical});
  EXPECT_OK(checked);
}

TEST(AutoTuneTest, RequestsOfTheDefaultDeviceAreAQuarterOfAMebibyte) {
  EXPECT_EQ(RequestBytesAt(DeviceProfile(), kBandwidthShare), 256 * kKiB);
  // A disk that seeks needs larger ones; where a request costs nothing, pages will do.
  EXPECT_GT(
      RequestBytesAt({.random_reads_per_second = 200, .sequential_bytes_per_second = 200e6}, kBandwidthShare),
      4 * kMiB);
  EXPECT_EQ(
      RequestBytesAt({.random_reads_per_second = 1e9, .sequential_bytes_per_second = 1e9}, kBandwidthShare),
      4096U);
}

TEST(AutoTuneTest, TheSmallestReadIsARequest) {
  // sqrt(EO / D) = sqrt(338.6 M * 8 / 256 KiB) = 101.6: buckets are smaller than parts.
  const PartitionTuning tuning = TuningOf(kFreebase, {.memory_bytes = 64 * kGiB});
  EXPECT_LE(tuning.parts, 101U);
  EXPECT_GT(tuning.parts, 50U);
  EXPECT_EQ(tuning.buffer, tuning.parts);  // all of it fits
  EXPECT_EQ(tuning.logical, 2U);
  // A few nodes with wide rows and no edges: NO / D.
  const PartitionTuning wide = TuningOf({.node_count = 1000, .row_bytes = 16 * kKiB}, {.memory_bytes = kGiB});
  EXPECT_LE(wide.parts, 62U);
  EXPECT_GT(wide.parts, 31U);
}

TEST(AutoTuneTest, TheLargestShareThatFitsIsHeld) {
  Rng rng(3);
  for (int round = 0; round < 300; ++round) {
    const PartitionedSizes sizes{.node_count = 1000 + rng.Below(100'000'000),
                                 .row_bytes = 4 * (1 + rng.Below(300)),
                                 .edge_count = rng.Below(1'000'000'000)};
    const PartitionOrder order = round % 3 == 0 ? PartitionOrder::kEuler : PartitionOrder::kComet;
    const TuneOptions options{.order = order,
                              .memory_bytes = sizes.node_count * sizes.row_bytes / (1 + rng.Below(8)) + kMiB,
                              .working_bytes = rng.Below(kMiB),
                              .prefetch = round % 2 == 0};
    SCOPED_TRACE(testing::Message() << "round " << round);
    const Result<PartitionTuning> tuned = TunePartitions(sizes, options);
    if (!tuned.ok()) {
      EXPECT_EQ(tuned.status().code(), Code::kOutOfBudget);
      continue;
    }
    const PartitionTuning tuning = *tuned;
    ExpectPlannable(tuning, order);
    EXPECT_EQ(tuning.logical, 2 * tuning.parts / tuning.buffer);
    EXPECT_LE(tuning.memory_bytes, options.memory_bytes);
    if (tuning.logical <= 3) continue;
    // With one logical part less, or two for euler, the same number of parts would not fit.
    const uint32_t fewer = tuning.logical - (order == PartitionOrder::kEuler ? 2 : 1);
    const uint32_t group = tuning.parts / fewer;
    EXPECT_GT(PartitionBufferBytes(sizes, group * fewer, 2 * group, options.prefetch ? group : 0) +
                  options.working_bytes,
              options.memory_bytes);
  }
}

TEST(AutoTuneTest, WhereTwoPartsDoNotFitThereAreMoreAndSmallerOnes) {
  const PartitionedSizes sizes{.node_count = 1'000'000, .row_bytes = 512, .edge_count = 1'000'000};
  TuneOptions options{.memory_bytes = 64 * kMiB};
  const PartitionTuning tuning = TuningOf(sizes, options);
  EXPECT_GT(tuning.parts, 5U);  // sqrt(8 MB / 256 KiB)
  ExpectPlannable(tuning, options.order);
  options.memory_bytes = 100 * kKiB;
  const Status refused = TunePartitions(sizes, options).status();
  EXPECT_EQ(refused.code(), Code::kOutOfBudget);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("give it"));
}

TEST(AutoTuneTest, SmallGraphsHaveTwoParts) {
  const PartitionTuning tuning =
      TuningOf({.node_count = 10, .row_bytes = 4, .edge_count = 20}, {.memory_bytes = kMiB});
  EXPECT_EQ(tuning.parts, 2U);
  EXPECT_EQ(tuning.buffer, 2U);
  EXPECT_EQ(TunePartitions({.node_count = 1}, {.memory_bytes = kMiB}).status().code(), Code::kUsage);
}

TEST(AutoTuneTest, PrefetchedPartsAndTheirBucketsAreCounted) {
  const PartitionedSizes sizes{.node_count = 1600, .row_bytes = 10, .edge_count = 25600, .edge_bytes = 1};
  // Of 16 parts one has 1000 bytes, and each of 256 buckets 100, in each of two lists.
  EXPECT_EQ(PartitionBufferBytes(sizes, 16, 4, 0), 4 * 1000 + 2 * 16 * 100U);
  EXPECT_EQ(PartitionBufferBytes(sizes, 16, 4, 2), 6 * 1000 + 2 * (16 + 12) * 100U);
}

}  // namespace
}  // namespace quarry
