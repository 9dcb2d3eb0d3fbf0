// Drawing positions of a neighbor list: uniform subsets without replacement, by Floyd's algorithm (Bentley
// and Floyd, CACM 30(9), 1987): one random number a draw whatever the degree, so a block takes the same
// numbers from its stream however its hops are tiled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "quarry/base/random.h"

namespace quarry {

// One thread. Holds the set that large draws are checked against, which grows with them.
class SubsetDrawer {
 public:
  // What it holds behind draws of so many at most.
  static uint64_t BytesMax(uint32_t count_max);

  // Writes to out[0, count) distinct numbers base + [0, degree): each subset of `count` is equally likely,
  // their order is not random. REQUIRES: count < degree
  void Draw(Rng& rng, uint64_t base, uint64_t degree, uint32_t count, uint64_t* out) {
    if (count <= kFilterCountMax) {
      DrawFiltered(rng, base, degree, count, out);
    } else {
      DrawWithSet(rng, base, degree, count, out);
    }
  }
  uint64_t memory_bytes() const { return set_.capacity() * sizeof(uint64_t); }

 private:
  // Up to here a 64-bit filter in a register settles most membership questions, and a scan of `out` the
  // others.
  static constexpr uint32_t kFilterCountMax = 32;

  static void DrawFiltered(Rng& rng, uint64_t base, uint64_t degree, uint32_t count, uint64_t* out) {
    uint64_t filter = 0;  // bit (x mod 64) is set for every x drawn: exact for degrees up to 64
    uint64_t last = degree - count;
    for (uint32_t k = 0; k < count; ++k, ++last) {
      uint64_t drawn = rng.Below(last + 1);
      if ((filter >> (drawn & 63)) & 1) {
        bool taken = degree <= 64;
        for (uint32_t j = 0; !taken && j < k; ++j) taken = out[j] == base + drawn;
        if (taken) drawn = last;  // no earlier draw could give `last`
      }
      filter |= uint64_t{1} << (drawn & 63);
      out[k] = base + drawn;
    }
  }
  void DrawWithSet(Rng& rng, uint64_t base, uint64_t degree, uint32_t count, uint64_t* out);

  std::vector<uint64_t> set_;  // open addressing; 0 = empty, else the number + 1
};

// Draws up to `wanted` of the positions [base, base + degree), with replacement as many as wanted where there is one;
// returns how many.
inline uint32_t DrawPositions(Rng& rng, SubsetDrawer& drawer, bool replace, uint64_t base, uint64_t degree,
                              uint32_t wanted, uint64_t* out) {
  const uint64_t most = replace && degree > 0 ? wanted : degree;
  const auto taken = static_cast<uint32_t>(std::min<uint64_t>(wanted, most));
  if (replace) {
    for (uint32_t k = 0; k < taken; ++k) out[k] = base + rng.Below(degree);
  } else if (degree > wanted) {
    drawer.Draw(rng, base, degree, taken, out);
  } else {
    for (uint32_t k = 0; k < taken; ++k) out[k] = base + k;
  }
  return taken;
}

}  // namespace quarry
