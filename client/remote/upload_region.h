// UploadRegion: the region that a client writes to, divided among the requests under way. Private to this
// library.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "deadline.h"
#include "memory_map.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"

namespace quarry::client {

class UploadRegion : public std::enable_shared_from_this<UploadRegion> {
 public:
  // Bytes for one request; free again when it dies. Keeps the region.
  class Slice {
   public:
    Slice(std::shared_ptr<UploadRegion> region, uint64_t offset, uint64_t bytes)
        : region_(std::move(region)), offset_(offset), bytes_(bytes) {}
    ~Slice() { region_->Free(offset_, bytes_); }
    Slice(const Slice&) = delete;
    Slice& operator=(const Slice&) = delete;
    uint64_t offset() const { return offset_; }
    std::span<std::byte> bytes() const { return region_->memory_->writable().subspan(offset_, bytes_); }

   private:
    const std::shared_ptr<UploadRegion> region_;
    const uint64_t offset_;
    const uint64_t bytes_;
  };

  UploadRegion(uint32_t id, std::shared_ptr<MemoryMap> memory);
  uint32_t id() const { return id_; }
  uint64_t size() const { return memory_->bytes().size(); }

  // Waits for other requests to be answered. Null when the deadline passes. REQUIRES: 0 < bytes <= size().
  std::shared_ptr<Slice> Take(uint64_t bytes, Deadline deadline);

 private:
  void Free(uint64_t offset, uint64_t bytes);

  const uint32_t id_;
  const std::shared_ptr<MemoryMap> memory_;
  Mutex mutex_;
  CondVar freed_;
  std::map<uint64_t, uint64_t> free_ QUARRY_GUARDED_BY(mutex_);  // offset -> bytes, never two that touch
};

}  // namespace quarry::client
