#include "draw.h"

#include <algorithm>
#include <bit>

namespace quarry {

uint64_t SubsetDrawer::BytesMax(uint32_t count_max) {
  return count_max > kFilterCountMax ? 2 * sizeof(uint64_t) * std::bit_ceil(count_max) : 0;
}

void SubsetDrawer::DrawWithSet(Rng& rng, uint64_t base, uint64_t degree, uint32_t count, uint64_t* out) {
  const uint64_t mask = 2 * std::bit_ceil(count) - 1;
  if (mask >= set_.size()) set_ = std::vector<uint64_t>(mask + 1);
  std::fill_n(set_.begin(), mask + 1, 0);
  const auto insert = [&](uint64_t number) {
    uint64_t slot = (number * 0x9e3779b97f4a7c15) >> 40 & mask;
    while (set_[slot] != 0) {
      if (set_[slot] == number + 1) return false;
      slot = (slot + 1) & mask;
    }
    set_[slot] = number + 1;
    return true;
  };
  uint64_t last = degree - count;
  for (uint32_t k = 0; k < count; ++k, ++last) {
    uint64_t drawn = rng.Below(last + 1);
    if (!insert(drawn)) {
      drawn = last;
      insert(drawn);
    }
    out[k] = base + drawn;
  }
}

}  // namespace quarry
