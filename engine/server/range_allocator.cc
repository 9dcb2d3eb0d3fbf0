#include "range_allocator.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "quarry/base/units.h"
#include "quarry/format/wire.h"

namespace quarry {
namespace {

uint64_t Units(uint64_t bytes) { return RoundUp(std::max<uint64_t>(bytes, 1), wire::kLeaseAlignment); }

}  // namespace

RangeAllocator::RangeAllocator(uint64_t bytes) : free_bytes_(RoundDown(bytes, wire::kLeaseAlignment)) {
  if (free_bytes_ > 0) free_.emplace(0, free_bytes_);
}

std::optional<uint64_t> RangeAllocator::Allocate(uint64_t bytes) {
  if (bytes > free_bytes_) return std::nullopt;  // rounding up below cannot overflow then
  const uint64_t wanted = Units(bytes);
  const auto fit =
      std::ranges::find_if(free_, [wanted](const auto& range) { return range.second >= wanted; });
  if (fit == free_.end()) return std::nullopt;
  const auto [offset, found] = *fit;
  free_.erase(fit);
  if (found > wanted) free_.emplace(offset + wanted, found - wanted);
  free_bytes_ -= wanted;
  return offset;
}

void RangeAllocator::Free(uint64_t offset, uint64_t bytes) {
  uint64_t freed = Units(bytes);
  free_bytes_ += freed;
  auto next = free_.lower_bound(offset);
  assert((next == free_.end() || offset + freed <= next->first) && "freed twice");
  if (next != free_.end() && next->first == offset + freed) {
    freed += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    assert(before->first + before->second <= offset && "freed twice");
    if (before->first + before->second == offset) {
      before->second += freed;
      return;
    }
  }
  free_.emplace_hint(next, offset, freed);
}

}  // namespace quarry
