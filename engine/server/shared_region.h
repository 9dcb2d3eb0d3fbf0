// SharedRegion: a memfd that the server and its clients map (docs/protocol.md, "Shared memory").
//
// Its memory is taken as it is written to; whoever makes one has reserved it. Thread-safe; the bytes are
// their users' to share out (range_allocator.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "quarry/base/status.h"
#include "quarry/format/wire_types.h"

namespace quarry {

class SharedRegion {
 public:
  // Zeroed, sealed against shrinking, growing and further seals, and, when clients only read it, against new
  // writable mappings after the server's own. kOutOfBudget when the system refuses.
  static Result<std::shared_ptr<SharedRegion>> Make(uint64_t bytes, wire::RegionAccess access);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  int fd() const { return fd_; }
  // Of a region that clients write to they may change at any moment: copy, then check, then use.
  std::span<std::byte> bytes() const { return bytes_; }
  wire::RegionAccess access() const { return access_; }

 private:
  SharedRegion(int fd, wire::RegionAccess access) : fd_(fd), access_(access) {}
  const int fd_;
  const wire::RegionAccess access_;
  std::span<std::byte> bytes_;  // as Make has mapped it
};

}  // namespace quarry
