// CatalogWatch: shows a test everything that catalogs do to their files and folders. For tests that take the
// power away: what RocksDB writes does not pass through an IoBackend.
//
// Catalogs that are opened while it lives are watched, and must be closed before it goes; one CatalogWatch or
// CatalogFaults at a time in a process. The watcher is called by any thread of RocksDB, several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace quarry {

struct CatalogOperation {
  // kCreate: of a file that is empty then, whatever was there; kReopen: of one that is written on.
  enum class Kind : uint8_t {
    kCreate,
    kReopen,
    kWrite,
    kTruncate,
    kSyncFile,
    kSyncDirectory,
    kCreateDirectory,
    kRename,
    kLink,
    kRemove
  };
  Kind kind = Kind::kWrite;
  const std::string& path;  // of the file when it was opened; what is renamed, linked or removed
  std::string to = {};      // of kRename and kLink
  uint64_t file = 0;        // which open file, from 1, of those kinds that have one
  uint64_t offset = 0;      // of kWrite; the new size of kTruncate
  std::span<const std::byte> bytes = {};  // of kWrite
};

class CatalogWatch {
 public:
  // Does the operation; false when that failed.
  using Perform = std::function<bool()>;
  // REQUIRES: calls `perform` once.
  using Watcher = std::function<void(const CatalogOperation& operation, const Perform& perform)>;

  explicit CatalogWatch(Watcher watcher);
  ~CatalogWatch();
  CatalogWatch(const CatalogWatch&) = delete;
  CatalogWatch& operator=(const CatalogWatch&) = delete;

  class Impl;

 private:
  const std::unique_ptr<Impl> impl_;
};

}  // namespace quarry
