// RangeAllocator: which ranges of a region of shared memory are free. First fit, in multiples of
// wire::kLeaseAlignment; neighboring free ranges are one. A value; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace quarry {

class RangeAllocator {
 public:
  explicit RangeAllocator(uint64_t bytes);  // the region's size, rounded down to whole units

  // The offset of the first free range of at least `bytes`, rounded up; nothing when there is none. 0 bytes
  // take a unit, so that every range has a place of its own.
  std::optional<uint64_t> Allocate(uint64_t bytes);
  // REQUIRES: Allocate gave `offset` for `bytes`, and it has not been freed since.
  void Free(uint64_t offset, uint64_t bytes);
  uint64_t free_bytes() const { return free_bytes_; }

 private:
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes; no two touch
  uint64_t free_bytes_;
};

}  // namespace quarry
