// MergedReader: reads scattered ranges of files by merged requests, through one ring that stays open, so a
// single range is one read and nothing else. Used by one thread.
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

namespace quarry {

class MergedReader {
 public:
  // Backend and budget outlive it. It holds `staging_bytes` of the budget once it has read a range, and more
  // once it has read a larger one.
  MergedReader(IoBackend& backend, MemoryBudget& budget, const DeviceProfile& profile, uint64_t staging_bytes)
      : backend_(backend), budget_(budget), profile_(profile), staging_bytes_(staging_bytes) {}

  // Calls visit(i, bytes) for each of `ranges` (ascending by offset), in any order, with the bytes of the
  // file, valid during the call. An error that visit returns is passed on; otherwise kIoError, kOutOfBudget.
  using Visit = std::function<Status(size_t, std::span<const std::byte>)>;
  Status Read(const File& file, uint32_t block_bytes, std::span<const ByteRange> ranges, const Visit& visit);

 private:
  Status Grow(uint64_t bytes);

  IoBackend& backend_;
  MemoryBudget& budget_;
  const DeviceProfile profile_;
  const uint64_t staging_bytes_;
  MemoryBudget::Reservation reservation_;
  IoBuffer staging_;
  std::unique_ptr<IoRing> ring_;  // dies before the buffer that it writes to; null after an error
  std::vector<MergedRead> reads_;
};

}  // namespace quarry
