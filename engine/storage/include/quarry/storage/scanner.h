// FileScanner: reads a range of a file, front to back, by large direct reads that overlap with the caller's
// work.
//
// Keeps kDepth reads in flight into one huge-page buffer. One thread owns a scanner.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"
#include "quarry/io/ring.h"

namespace quarry {

class FileScanner {
 public:
  static constexpr unsigned kDepth = 4;

  // Reads [offset, offset + bytes) in pieces of piece_bytes; holds kDepth pieces. The file must hold whole
  // pages up to the end of the range. REQUIRES: offset and piece_bytes are multiples of the page.
  static Result<std::unique_ptr<FileScanner>> Make(IoBackend& backend, const File& file, uint64_t offset,
                                                   uint64_t bytes, uint64_t piece_bytes = 1 << 20);
  ~FileScanner();
  FileScanner(const FileScanner&) = delete;
  FileScanner& operator=(const FileScanner&) = delete;

  // The next piece, rounded up to whole pages at the end of the range; empty after the last. Valid until the
  // next call.
  Result<std::span<const std::byte>> Next();

 private:
  FileScanner(const File& file, std::unique_ptr<IoRing> ring, IoBuffer buffer, uint64_t offset, uint64_t end,
              uint64_t piece_bytes);
  uint32_t PieceBytes(uint64_t piece) const;
  Status Read(uint64_t piece);

  const File& file_;
  const uint64_t offset_;
  const uint64_t end_;  // rounded up to whole pages
  const uint64_t piece_bytes_;
  const uint64_t piece_count_;
  IoBuffer buffer_;
  std::unique_ptr<IoRing> ring_;  // dies before the buffer that it writes to
  uint64_t next_ = 0;             // the piece that Next() returns next
  std::array<bool, kDepth> arrived_{};
  std::vector<uint64_t> done_;
};

}  // namespace quarry
