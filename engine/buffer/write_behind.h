// WriteBehind: one thread that writes dirty pages to new slots of the file. Private to this room.
//
//   dirty -> copied, sealed and submitted          [SubmitWrites]
//         -> on disk, and its map entry switched   [CollectWrites]
//
// A page is copied under its latch, if nobody holds it at the moment (else its turn comes later: waiting for
// a latch here would stop those who hold it while they wait for a frame). At most one write of a page is on
// the way.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "frame_table.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/base/thread.h"
#include "quarry/buffer/page_file.h"
#include "quarry/io/ring.h"

namespace quarry {

struct WriteBehindOptions {
  uint32_t buffer_count = 0;  // writes on the way
  uint32_t dirty_high = 0;    // frames
  uint32_t dirty_low = 0;
  uint64_t bytes_per_second = 0;  // 0 = no limit; not for Flush, nor while somebody waits for a frame
};

// Add, Wake and Flush are thread-safe.
class WriteBehind {
 public:
  // Memory that it takes for a pool with this many frames.
  static uint64_t Bytes(uint32_t buffer_count, uint64_t frame_count, uint32_t page_bytes);
  // File and frames outlive it. Its thread runs from here on.
  static Result<std::unique_ptr<WriteBehind>> Make(IoBackend& backend, PageFile& file, FrameTable& frames,
                                                   const WriteBehindOptions& options);
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;
  ~WriteBehind();  // waits for what is on the way

  // REQUIRES: the frame became dirty by the caller (FrameTable::MarkDirty).
  void Add(uint32_t frame);
  void Wake();  // somebody waits for a frame, or a page that was latched is not any more
  Status Flush();

  uint64_t dirty_pages() const;  // being written included
  uint64_t pages_written() const;

 private:
  // When a page became dirty, counted in flushes: one of epoch e is waited for by the flush that ends e.
  using Epoch = uint64_t;
  struct DirtyPage {
    uint32_t frame = kNoFrame;
    Epoch epoch = 0;
  };
  struct Work {
    size_t queued = 0;
    uint64_t events = 0;
  };
  struct Write {
    DirtyPage dirty;
    PageNumber page = 0;
    PageEntry entry;  // its slot is kNoPageSlot where nothing is on the way
  };

  WriteBehind(PageFile& file, FrameTable& frames, const WriteBehindOptions& options,
              std::unique_ptr<IoRing> ring, IoBuffer buffer);
  void Run();
  bool AwaitWork();
  Status SubmitWrites();
  bool Prepare(const DirtyPage& dirty);
  Status CollectWrites();
  void Finish(uint32_t number);
  void Fail(const Status& error);
  void Abandon();
  bool Urgent() const QUARRY_REQUIRES(mutex_);
  bool ShouldWrite() const QUARRY_REQUIRES(mutex_);
  bool TakeDirty(DirtyPage& out);
  void PutBack(const DirtyPage& dirty);
  Work WorkNow() const;
  void AwaitEventAfter(uint64_t events);
  void AwaitRate(uint64_t events);
  bool HeldBackByRate();
  void CountForRate();

  PageFile& file_;
  FrameTable& frames_;
  const WriteBehindOptions options_;

  // The thread owns these.
  const std::unique_ptr<IoRing> ring_;
  const IoBuffer buffer_;
  std::vector<Write> writes_;    // by buffer
  std::vector<uint32_t> spare_;  // buffers
  std::vector<IoRequest> requests_;
  std::vector<uint64_t> done_;
  double next_write_seconds_ = 0;  // by the rate

  Mutex flush_mutex_;  // before mutex_: one flush at a time, so two epochs at most
  mutable Mutex mutex_;
  CondVar changed_;
  CondVar flushed_;
  std::deque<DirtyPage> queue_ QUARRY_GUARDED_BY(mutex_);  // the oldest first, but for those put back
  Epoch epoch_ QUARRY_GUARDED_BY(mutex_) = 1;
  uint64_t unwritten_[2] QUARRY_GUARDED_BY(mutex_) = {};  // pages by epoch % 2, being written included
  bool draining_ QUARRY_GUARDED_BY(mutex_) = false;       // from the high-water mark down to the low one
  bool flushing_ QUARRY_GUARDED_BY(mutex_) = false;
  bool stopping_ QUARRY_GUARDED_BY(mutex_) = false;
  bool failed_ QUARRY_GUARDED_BY(mutex_) = false;
  uint64_t events_ QUARRY_GUARDED_BY(mutex_) = 0;  // after which what could not be written may be
  uint64_t pages_written_ QUARRY_GUARDED_BY(mutex_) = 0;
  Thread thread_;
};

}  // namespace quarry
