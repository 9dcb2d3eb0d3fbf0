// BufferPool: pages of a PageFile in a fixed number of frames, read and changed in place, written behind.
//
//   Pin          brings a page in (or finds it), and holds it there, latched, while the guard lives
//   Prefetch     reads pages that will be wanted soon
//   write-behind one thread copies dirty pages under their latch, checksums them and writes them to new slots
//                by a ring, from the high-water mark of dirty frames down to the low one, at most at the
//                given rate; readers and writers of the page go on meanwhile
//   checkpoint   Flush, then PageFile::WriteMap, the catalog's commit, and PageFile::CommitMap
//
// Thread-safe. Lock order: frame latch < shard of the page table < the writer's state < the page file's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/buffer/page_file.h"

namespace quarry {

enum class LatchMode : uint8_t { kShared, kExclusive };

struct BufferPoolOptions {
  uint64_t memory_bytes = 0;  // frames and all that the pool holds; at least BufferPool::BytesMin
  unsigned io_depth = 64;     // requests in flight, for reading ahead and for writing behind; at least 1
  double dirty_high = 0.5;    // share of frames: above it, writing begins
  double dirty_low = 0.25;    // and goes on down to it
  // The rate limit of writing behind; 0 = as fast as the device. Flush, and writes that a reader waits for,
  // are not held back.
  uint64_t write_bytes_per_second = 0;
};

struct BufferPoolStats {
  uint64_t hits = 0, misses = 0, evictions = 0;
  uint64_t pages_read = 0, pages_written = 0;
  uint64_t dirty_pages = 0;
  double read_wait_seconds = 0;   // Pin waited for reads
  double frame_wait_seconds = 0;  // Pin waited for a frame: all were pinned, dirty or being written
};

class BufferPool;

// A pinned and latched page. Its body may be used while the guard lives, by many readers or by one writer. A
// thread may pin a page only once at a time.
class PageGuard {
 public:
  PageGuard() = default;
  PageGuard(PageGuard&& other) noexcept;
  PageGuard& operator=(PageGuard&& other) noexcept;
  ~PageGuard() { Release(); }
  std::span<const std::byte> body() const;
  // Marks the page dirty. REQUIRES: an exclusive latch.
  std::span<std::byte> mutable_body();
  // Marks the page dirty under a shared latch, for callers that guard parts of the body by latches of their
  // own (rows). The writer copies pages under an exclusive latch, so it never sees half of what happens under
  // a shared one.
  std::span<std::byte> shared_mutable_body();
  void Release();

 private:
  friend class BufferPool;
  BufferPool* pool_ = nullptr;
  uint32_t frame_ = 0;
  LatchMode mode_ = LatchMode::kShared;
};

class BufferPool {
 public:
  // Fills the body (zeros) of a page that was never written. Such a page may leave and be filled anew, so it
  // must give the same bytes each time. Called by any thread. An empty function leaves zeros.
  using PageInit = std::function<void(PageNumber page, std::span<std::byte> body)>;

  // The least memory_bytes: 16 frames at the default io_depth, and what the page file holds.
  static uint64_t BytesMin(const PageFile& file);
  // `file` outlives the pool. kOutOfBudget when memory_bytes is less than BytesMin.
  static Result<std::unique_ptr<BufferPool>> Make(IoBackend& backend, PageFile& file, MemoryBudget& budget,
                                                  const BufferPoolOptions& options, PageInit init);
  virtual ~BufferPool() = default;  // writes nothing: dirty pages that are not checkpointed are lost

  // Waits for the read of the page, for other holders of the latch, and for a frame when every frame is
  // pinned, dirty or being written. A thread pins at most frames / threads pages at a time: more may wait
  // forever. kCorruption for a page that does not verify, kIoError; the error of a failed write when only
  // frames that could not be written are left. REQUIRES: page < the file's page_count().
  virtual Result<PageGuard> Pin(PageNumber page, LatchMode mode) = 0;
  // Starts reading pages that are not in memory, as far as clean frames are free; never waits for a write. It
  // is a hint: a page that cannot be read is an error of the Pin that wants it.
  virtual Status Prefetch(std::span<const PageNumber> pages) = 0;
  // Writes all pages that are dirty now and syncs the file. Changes made meanwhile may or may not be written,
  // so a caller that wants an exact state keeps writers out. The caller must hold no pins. After an error of
  // a write or a sync the pool refuses all further writes with that error; what is dirty then stays in
  // memory.
  virtual Status Flush() = 0;
  virtual BufferPoolStats stats() const = 0;
  virtual uint32_t frame_count() const = 0;

 protected:
  friend class PageGuard;
  virtual std::span<std::byte> Body(uint32_t frame) = 0;
  virtual void MarkDirty(uint32_t frame) = 0;
  virtual void Unpin(uint32_t frame, LatchMode mode) = 0;
  PageGuard MakeGuard(uint32_t frame, LatchMode mode);
};

}  // namespace quarry
