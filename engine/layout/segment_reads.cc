#include "quarry/layout/segment_reads.h"

namespace quarry {

void PlanSegmentReads(uint64_t offset, uint64_t row_stride, std::span<const uint32_t> places,
                      uint64_t gap_bytes_max, std::vector<ByteRange>& ranges,
                      std::vector<MergedRead>& reads) {
  ranges.clear();
  for (const uint32_t place : places) ranges.push_back({offset + place * row_stride, row_stride});
  Coalesce(ranges, {.block_bytes = kPageBytes, .gap_bytes_max = gap_bytes_max}, reads);
}

}  // namespace quarry
