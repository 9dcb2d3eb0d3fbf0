// MergedReader: ranges of a file from here and there, by merged requests through one ring that stays open.
// Private to this room; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"
#include "quarry/io/coalesce.h"
#include "quarry/io/ring.h"

namespace quarry::sql {

class MergedReader {
 public:
  // Holds 4 MiB of the budget, more from the first range on that is larger.
  static Result<std::unique_ptr<MergedReader>> Make(IoBackend& backend, MemoryBudget& budget,
                                                    const DeviceProfile& profile);

  // Calls visit(i, bytes) for each of `ranges` (ascending by offset), in any order, with what the file has
  // there, valid during the call. What visit returns other than OK comes back.
  using Visit = std::function<Status(size_t, std::span<const std::byte>)>;
  Status Read(const File& file, uint32_t block_bytes, std::span<const ByteRange> ranges, const Visit& visit);

 private:
  MergedReader(IoBackend& backend, MemoryBudget& budget, const DeviceProfile& profile)
      : backend_(backend), budget_(budget), profile_(profile) {}
  Status Grow(uint64_t bytes);

  IoBackend& backend_;
  MemoryBudget& budget_;
  const DeviceProfile profile_;
  MemoryBudget::Reservation reservation_;
  IoBuffer staging_;
  std::unique_ptr<IoRing> ring_;  // dies before the buffer that it writes to; null after an error
};

}  // namespace quarry::sql
