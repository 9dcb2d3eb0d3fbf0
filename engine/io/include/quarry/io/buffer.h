// IoBuffer: memory that direct I/O reads into at full speed.
//
// Anonymous memory aligned to 2 MiB with madvise(MADV_HUGEPAGE), touched once: physically contiguous pages
// read 2 to 3 times faster than 4 KiB ones on virtio NVMe (docs/benchmarks.md). When huge pages cannot be had
// the buffer falls back to ordinary pages, says so in `huge_pages()`, and one line is logged per process.
#pragma once

#include <cstddef>
#include <span>

#include "quarry/base/status.h"

namespace quarry {

class IoBuffer {
 public:
  IoBuffer() = default;
  IoBuffer(IoBuffer&& other) noexcept;
  IoBuffer& operator=(IoBuffer&& other) noexcept;
  ~IoBuffer();

  // Allocates at least `bytes`, zeroed, aligned to 2 MiB when bytes >= 1 MiB (the mapping is rounded up to
  // whole huge pages) and to 4096 otherwise. kOutOfBudget when the system refuses.
  static Result<IoBuffer> Allocate(size_t bytes);

  // What Allocate(bytes) costs a budget.
  static size_t MappedBytes(size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }            // as asked
  size_t mapped_bytes() const { return mapped_; }  // what it costs a budget
  bool huge_pages() const { return huge_pages_; }
  std::span<std::byte> span() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
  bool huge_pages_ = false;
};

}  // namespace quarry
