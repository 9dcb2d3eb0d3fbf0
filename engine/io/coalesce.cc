#include "quarry/io/coalesce.h"

#include <algorithm>
#include <cassert>

#include "quarry/base/units.h"

namespace quarry {

void Coalesce(std::span<const ByteRange> ranges, const CoalesceOptions& options,
              std::vector<MergedRead>& out) {
  assert(options.block_bytes > 0);
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t first = 0;
  const auto flush = [&](size_t next) {
    out.push_back({begin, static_cast<uint32_t>(end - begin), first, static_cast<uint32_t>(next - first)});
  };
  for (size_t i = 0; i < ranges.size(); i++) {
    assert(i == 0 || ranges[i].offset >= ranges[i - 1].offset);
    const uint64_t range_begin = RoundDown(ranges[i].offset, options.block_bytes);
    const uint64_t range_end = RoundUp(ranges[i].offset + ranges[i].bytes, options.block_bytes);
    const bool near = range_begin <= end + options.gap_bytes_max;
    const bool small = std::max(end, range_end) - begin <= options.request_bytes_max;
    // A range that lies within what is read anyway costs nothing, whatever the limits say.
    if (i > 0 && (range_end <= end || (near && small))) {
      end = std::max(end, range_end);
      continue;
    }
    if (i > 0) flush(i);
    begin = range_begin;
    end = range_end;
    first = static_cast<uint32_t>(i);
  }
  if (!ranges.empty()) flush(ranges.size());
}

}  // namespace quarry
