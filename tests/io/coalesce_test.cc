#include "quarry/io/coalesce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "quarry/base/random.h"

namespace quarry {
namespace {

std::vector<MergedRead> Merge(const std::vector<ByteRange>& ranges, const CoalesceOptions& options) {
  std::vector<MergedRead> reads;
  Coalesce(ranges, options, reads);
  return reads;
}

TEST(CoalesceTest, NoRangesMakeNoRequests) { EXPECT_TRUE(Merge({}, {}).empty()); }

TEST(CoalesceTest, ARangeIsWidenedToWholeBlocks) {
  const auto reads = Merge({{.offset = 700, .bytes = 400}}, {.block_bytes = 512});
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].offset, 512u);
  EXPECT_EQ(reads[0].bytes, 1024u);
}

TEST(CoalesceTest, AGapIsBridgedUpToItsLimitAndNoFurther) {
  const CoalesceOptions options{.block_bytes = 512, .gap_bytes_max = 1024};
  EXPECT_EQ(Merge({{0, 512}, {1536, 512}}, options).size(), 1u);
  EXPECT_EQ(Merge({{0, 512}, {2048, 512}}, options).size(), 2u);
}

TEST(CoalesceTest, WithoutGapsOnlyTouchingBlocksAreMerged) {
  const CoalesceOptions options{.block_bytes = 512, .gap_bytes_max = 0};
  EXPECT_EQ(Merge({{0, 512}, {512, 512}, {1100, 10}}, options).size(), 1u);
  EXPECT_EQ(Merge({{0, 512}, {1024, 512}}, options).size(), 2u);
}

TEST(CoalesceTest, ARequestEndsAtItsLimitUnlessOneRangeNeedsMore) {
  const CoalesceOptions options{.block_bytes = 512, .gap_bytes_max = 4096, .request_bytes_max = 1024};
  const auto reads = Merge({{0, 512}, {512, 512}, {1024, 4000}}, options);
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(reads[0].bytes, 1024u);
  EXPECT_EQ(reads[1].bytes, 4096u);
}

TEST(CoalesceTest, ResultsAreAppended) {
  std::vector<MergedRead> reads(1);
  const std::vector<ByteRange> ranges = {{0, 1}};
  Coalesce(ranges, {}, reads);
  EXPECT_EQ(reads.size(), 2u);
}

// These properties determine the greedy merge: it covers, it keeps its limits, and no seam is needless.
void CheckMerge(const std::vector<ByteRange>& ranges, const CoalesceOptions& o,
                const std::vector<MergedRead>& reads) {
  uint32_t next = 0;
  for (size_t k = 0; k < reads.size(); k++) {
    const MergedRead& read = reads[k];
    ASSERT_EQ(read.first, next) << "every range is in exactly one request, in order";
    ASSERT_GT(read.count, 0u);
    next += read.count;
    ASSERT_EQ(read.offset % o.block_bytes, 0u);
    ASSERT_EQ(read.bytes % o.block_bytes, 0u);
    uint64_t end = 0, longest_bytes = 0;
    for (uint32_t i = read.first; i < next; i++) {
      const uint64_t range_begin = ranges[i].offset / o.block_bytes * o.block_bytes;
      const uint64_t range_end =
          (ranges[i].offset + ranges[i].bytes + o.block_bytes - 1) / o.block_bytes * o.block_bytes;
      if (i > read.first) {
        ASSERT_LE(range_begin, end + o.gap_bytes_max) << "bridged too long a gap";
      }
      end = std::max(end, range_end);
      longest_bytes = std::max(longest_bytes, range_end - range_begin);
    }
    ASSERT_EQ(read.offset, ranges[read.first].offset / o.block_bytes * o.block_bytes);
    ASSERT_EQ(read.offset + read.bytes, end) << "begins and ends with its ranges";
    ASSERT_LE(read.bytes, std::max<uint64_t>(o.request_bytes_max, longest_bytes));
    if (next == ranges.size()) continue;
    const uint64_t next_begin = ranges[next].offset / o.block_bytes * o.block_bytes;
    const uint64_t next_end =
        (ranges[next].offset + ranges[next].bytes + o.block_bytes - 1) / o.block_bytes * o.block_bytes;
    ASSERT_TRUE(next_begin > end + o.gap_bytes_max || next_end - read.offset > o.request_bytes_max)
        << "request " << k << " could have gone on";
  }
  ASSERT_EQ(next, ranges.size());
}

TEST(CoalesceTest, RandomRangesAreCoveredWithinTheLimitsAndWithoutNeedlessSeams) {
  for (uint64_t seed = 1; seed <= 2000; seed++) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    std::vector<ByteRange> ranges(rng.Below(60));
    const uint64_t span_bytes = 1 + rng.Below(1 << (10 + rng.Below(12)));
    for (ByteRange& range : ranges) range = {rng.Below(span_bytes), 1 + rng.Below(1 << rng.Below(13))};
    std::ranges::sort(ranges, {}, &ByteRange::offset);
    const CoalesceOptions options{.block_bytes = rng.Below(2) == 0 ? 512u : 4096u,
                                  .gap_bytes_max = rng.Below(3) == 0 ? 0 : rng.Below(1 << 16),
                                  .request_bytes_max = static_cast<uint32_t>(4096 << rng.Below(7))};
    CheckMerge(ranges, options, Merge(ranges, options));
    if (HasFatalFailure()) return;
  }
}

TEST(DeviceProfileTest, TheGapWorthBridgingIsWhatOneRequestCostsInBytes) {
  EXPECT_EQ(
      (DeviceProfile{.random_reads_per_second = 1000, .sequential_bytes_per_second = 5e6}).GapBytesMax(),
      5000u);
}

}  // namespace
}  // namespace quarry
