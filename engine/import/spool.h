// Spool: bytes written once, then read once in the same order; a part of a file whose place comes later.
// Private to this room. Stays in its buffer while it fits there; what exceeds it goes to a scratch file that
// is unlinked at once.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "quarry/base/status.h"
#include "quarry/import/external_sort.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/data_file.h"

namespace quarry {

class Spool {
 public:
  static constexpr uint64_t kBufferBytes = 1 << 20;
  static Result<Spool> Make(IoBackend& backend, std::string directory);
  Status Append(std::span<const std::byte> bytes);
  // Appends everything to the writer's open section.
  Status CopyTo(DataFileWriter& writer);
  uint64_t bytes() const { return bytes_; }

 private:
  Spool(IoBackend& backend, std::string directory, IoBuffer buffer);
  IoBackend* backend_;
  std::string directory_;
  IoBuffer buffer_;
  size_t buffered_bytes_ = 0;
  uint64_t bytes_ = 0;
  std::unique_ptr<RunFile> file_;
};

}  // namespace quarry
