// Merged reads by their number alone, beside reads that are drawn and merged one by one.
#include "quarry/pipeline/scattered_reads.h"

#include <gtest/gtest.h>

#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"

namespace quarry {
namespace {

// Units of 4 KiB, each wanted with `chance`: what Coalesce makes of them, with requests that go on with the run before
// them counted as one.
ScatteredReads Draw(uint64_t units, double chance, const DeviceProfile& device, uint64_t seed) {
  Rng rng(seed);
  std::vector<ByteRange> ranges;
  for (uint64_t unit = 0; unit < units; ++unit) {
    if (rng.Unit() < chance) ranges.push_back({unit * kPageBytes, kPageBytes});
  }
  std::vector<MergedRead> reads;
  Coalesce(ranges, {.block_bytes = kPageBytes, .gap_bytes_max = device.GapBytesMax()}, reads);
  ScatteredReads sum;
  for (size_t i = 0; i < reads.size(); ++i) {
    sum.bytes += reads[i].bytes;
    const bool goes_on =
        i > 0 && reads[i].offset <= reads[i - 1].offset + reads[i - 1].bytes + device.GapBytesMax();
    sum.requests += goes_on ? 0 : 1;
  }
  return sum;
}

TEST(ScatteredReadsTest, ComeToWhatDrawnOnesDo) {
  const DeviceProfile device;
  for (const double chance : {0.003, 0.01, 0.05, 0.1, 0.3, 0.8}) {
    SCOPED_TRACE(chance);
    const ScatteredReads drawn = Draw(200'000, chance, device, 7);
    const ScatteredReads predicted = MergedReadsOf(200'000, kPageBytes, chance, device);
    EXPECT_NEAR(predicted.bytes / drawn.bytes, 1, 0.05);
    EXPECT_NEAR(predicted.requests, drawn.requests, drawn.requests * 0.1 + 5);
  }
  EXPECT_EQ(MergedReadsOf(1000, kPageBytes, 0, device), ScatteredReads());
}

TEST(ScatteredReadsTest, AListsCacheServesWhatItHas) {
  const DeviceProfile device;
  ListsProbe probe{.lists = 10'000, .indices_bytes = kGiB, .mean_list_bytes = 64};
  const ScatteredReads none = ReadsOfLists(probe, 0, device);
  // Each list that is missed lies in one page of a quarter million, and one list in 64 goes on in the next.
  const auto drawn = [&](double missed) {
    const double pages = static_cast<double>(kGiB / kPageBytes);
    return Draw(kGiB / kPageBytes, missed * (1 + 64.0 / kPageBytes) / pages, device, 11).requests;
  };
  EXPECT_NEAR(none.requests / drawn(10'000), 1, 0.1);
  double before = none.Seconds(device);
  for (uint64_t cache = 64 * kMiB; cache < kGiB; cache += 64 * kMiB) {
    const double seconds = ReadsOfLists(probe, cache, device).Seconds(device);
    EXPECT_LT(seconds, before);
    before = seconds;
  }
  EXPECT_EQ(ReadsOfLists(probe, kGiB, device), ScatteredReads());

  // What was measured holds for the cache it was measured with; a smaller one has fewer hits, a larger one more.
  probe.in_memory = false;
  probe.cache_bytes = 256 * kMiB;
  probe.hits = 8'000;
  probe.reads = {.bytes = 2'050 * 4096.0, .requests = 2'000};
  EXPECT_EQ(ReadsOfLists(probe, probe.cache_bytes, device), probe.reads);
  EXPECT_NEAR(ReadsOfLists(probe, 128 * kMiB, device).requests / drawn(6'000), 1, 0.1);
  EXPECT_NEAR(ReadsOfLists(probe, 640 * kMiB, device).requests / drawn(1'000), 1, 0.1);
}

}  // namespace
}  // namespace quarry
