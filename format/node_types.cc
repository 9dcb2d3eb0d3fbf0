#include "quarry/format/node_types.h"

#include <algorithm>
#include <cassert>

namespace quarry {

NodeTypes::NodeTypes(std::span<const NodeTypeRecord> types, uint64_t node_count) {
  for (uint32_t type = 0; type < types.size(); ++type) {
    begins_.push_back(by_type_.size());
    uint64_t row = 0;
    const auto add = [&](uint64_t first, uint64_t count) {
      const uint64_t end = std::min(first + count, node_count);
      if (first >= end) return;
      by_type_.push_back({.first = first, .end = end, .row = row, .type = type});
      row += end - first;
    };
    add(types[type].first, types[type].count);
    for (const TypeRange& range : types[type].later) add(range.first, range.count);
    counts_.push_back(row);
  }
  begins_.push_back(by_type_.size());
  ranges_ = by_type_;
  std::ranges::sort(ranges_, {}, &Range::first);
}

const NodeTypes::Range& NodeTypes::RangeOf(uint64_t node) const {
  const auto after = std::ranges::upper_bound(ranges_, node, {}, &Range::first);
  assert(after != ranges_.begin());
  return *(after - 1);
}

uint64_t NodeTypes::NodeOf(uint32_t type, uint64_t row) const {
  const std::span<const Range> ranges = RangesOf(type);
  const auto after = std::ranges::upper_bound(ranges, row, {}, &Range::row);
  assert(after != ranges.begin());
  const Range& range = *(after - 1);
  return range.first + (row - range.row);
}

uint64_t NodeCount(const NodeTypeRecord& type) {
  uint64_t count = type.count;
  for (const TypeRange& range : type.later) count += range.count;
  return count;
}

void Extend(NodeTypeRecord& type, uint64_t first, uint64_t count) {
  TypeRange last = {.first = type.first, .count = type.count};
  if (!type.later.empty()) last = type.later.back();
  if (last.first + last.count != first) {
    type.later.push_back({.first = first, .count = count});
  } else if (type.later.empty()) {
    type.count += count;
  } else {
    type.later.back().count += count;
  }
}

}  // namespace quarry
