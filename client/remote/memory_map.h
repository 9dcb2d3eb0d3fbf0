// Memory that a remote store reads and writes: regions of the server's, and pages of its own. Private to this
// library.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "quarry/base/status.h"
#include "quarry/format/wire_types.h"
#include "unix_socket.h"

namespace quarry::client {

// Mapped bytes; unmapped when it dies.
class MemoryMap {
 public:
  // kCorruption when the descriptor is not what the server announced: of another size, or one that could
  // shrink under its reader. kOutOfBudget when the system refuses.
  static Result<std::shared_ptr<MemoryMap>> OfRegion(const wire::Region& region, const UniqueFd& fd,
                                                     const std::string& path);
  // Pages of zeros, which take memory once they are written to, whatever somebody claims that they will hold.
  static Result<std::shared_ptr<MemoryMap>> Anonymous(uint64_t bytes, const std::string& path);
  ~MemoryMap();
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::span<std::byte> writable() const { return bytes_; }  // REQUIRES: anonymous, or for clients to write

 private:
  explicit MemoryMap(std::span<std::byte> bytes) : bytes_(bytes) {}
  const std::span<std::byte> bytes_;
};

}  // namespace quarry::client
