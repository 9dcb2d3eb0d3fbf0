// What the io_uring and the thread backend share: opening, synchronous transfers, syncs and changes of names
// by plain system calls. Thread-safe.
#pragma once

#include <string>

#include "quarry/io/backend.h"

namespace quarry {

class PosixFiles : public IoBackend {
 public:
  Result<File> Open(const std::string& path, OpenMode mode) override;
  Result<uint64_t> FileBytes(const File& file) override;
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override;
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override;
  Status Truncate(const File& file, uint64_t bytes) override;
  Result<bool> Clone(const File& from, const File& to) override;
  Status SyncFile(const File& file) override;
  Status SyncDirectory(const std::string& path) override;
  Status CreateDirectory(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Link(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
};

}  // namespace quarry
