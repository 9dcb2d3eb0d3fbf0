#include "upload_region.h"

#include <iterator>

#include "quarry/base/units.h"
#include "quarry/format/wire.h"

namespace quarry::client {

UploadRegion::UploadRegion(uint32_t id, std::shared_ptr<MemoryMap> memory)
    : id_(id), memory_(std::move(memory)) {
  free_.emplace(0, size());
}

std::shared_ptr<UploadRegion::Slice> UploadRegion::Take(uint64_t bytes, Deadline deadline) {
  MutexLock lock(mutex_);
  while (true) {
    for (auto place = free_.begin(); place != free_.end(); ++place) {
      const auto [offset, free] = *place;
      if (free < bytes) continue;
      const uint64_t taken = std::min(free, RoundUp(bytes, wire::kRangeAlignment));
      free_.erase(place);
      if (free > taken) free_.emplace(offset + taken, free - taken);
      return std::make_shared<Slice>(shared_from_this(), offset, taken);
    }
    if (!freed_.WaitUntil(mutex_, deadline)) return nullptr;
  }
}

void UploadRegion::Free(uint64_t offset, uint64_t bytes) {
  MutexLock lock(mutex_);
  auto next = free_.lower_bound(offset);
  if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
    next = std::prev(next);
    offset = next->first;
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    free_.erase(next);
  }
  free_.emplace(offset, bytes);
  freed_.NotifyAll();
}

}  // namespace quarry::client
