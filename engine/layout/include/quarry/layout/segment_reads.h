// Which pages of a segment cache a batch reads, and by which requests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/format/feature_table.h"
#include "quarry/io/coalesce.h"

namespace quarry {

// Merges the pages that hold rows `places` (ascending, row_stride apart, from the page-aligned `offset` on)
// into requests of whole pages; request r serves places [first, first + count). A row that lies across the
// end of a request's range lies in it whole: the range ends where its last row's page ends. Appends to
// `reads`; `ranges` is scratch.
void PlanSegmentReads(uint64_t offset, uint64_t row_stride, std::span<const uint32_t> places,
                      uint64_t gap_bytes_max, std::vector<ByteRange>& ranges, std::vector<MergedRead>& reads);

}  // namespace quarry
