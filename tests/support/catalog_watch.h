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
    kRemove,
    kRead  // the next bytes of a file that is read from its beginning on: a log, or what is copied
  };
  Kind kind = Kind::kWrite;
  const std::string& path;  // the file's when it was opened; what is renamed, linked, removed
  std::string to = {};      // target of kRename and kLink
  uint64_t file = 0;        // number of the open file, from 1, for kinds that have one, kRead not
  uint64_t offset = 0;      // where kWrite writes or kRead reads; the new size of kTruncate
  std::span<const std::byte> bytes = {};  // what kWrite writes
};

class CatalogWatch {
 public:
  // Performs the operation; false when it failed.
  using Perform = std::function<bool()>;
  // REQUIRES: calls `perform` once.
  using Watcher = std::function<void(const CatalogOperation& operation, const Perform& perform)>;

  // Logs have room ahead (log_room.h) as in use, or are as long as what was written to them: in a file system in
  // memory, reserving space takes longer than all the rest.
  enum class Logs { kAsWritten, kWithRoom };

  explicit CatalogWatch(Watcher watcher, Logs logs = Logs::kAsWritten);
  ~CatalogWatch();
  CatalogWatch(const CatalogWatch&) = delete;
  CatalogWatch& operator=(const CatalogWatch&) = delete;

  class Impl;

 private:
  const std::unique_ptr<Impl> impl_;
};

}  // namespace quarry
