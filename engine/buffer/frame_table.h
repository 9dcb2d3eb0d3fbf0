// FrameTable: the frames, the page table over them, pins and latches, and which frame leaves. Private to this
// room.
//
//   kFree -> kLoading [Pin, ClaimForPrefetch] -> kResident [FinishLoad] -> kFree [TryEvict]
//            kLoading -> kFailed [FailLoad] -> kFree [the last pin goes]
//
// A resident frame is clean, or dirty [MarkDirty ... BeginWrite], or being written [BeginWrite ... EndWrite],
// or both: it can be dirtied again while its copy is on the way. It may leave when it is neither and nobody
// has it pinned.
//
// A latch is two fields beside the pins and not a lock of its own: one visit to the shard pins and latches,
// and pages may be latched in any order of frames. Readers go before writers, so that who holds some page
// shared can always share another that is.
//
// Thread-safe. Lock order: latch of a page < shard of the page table < free list.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/buffer/buffer_pool.h"
#include "quarry/buffer/page_file.h"
#include "quarry/io/buffer.h"
#include "replacer.h"

namespace quarry {

class FrameTable {
 public:
  struct Pinned {
    uint32_t frame = kNoFrame;
    bool claimed = false;  // it was not there: read it, then FinishLoad or FailLoad
  };
  struct Counts {
    uint64_t hits = 0, misses = 0, evictions = 0;
    double read_wait_seconds = 0;  // for reads that others do
    double frame_wait_seconds = 0;
  };
  // Called without a lock held.
  struct Callbacks {
    std::function<void()> on_wait;     // somebody starts to wait for a frame
    std::function<void()> on_unlatch;  // a page that BeginWrite found latched is not any more
  };

  // Memory of a table with this many frames, the frames included.
  static uint64_t Bytes(uint64_t frame_count, const PageFile& file);
  static Result<std::unique_ptr<FrameTable>> Make(uint32_t frame_count, const PageFile& file,
                                                  Callbacks callbacks);
  FrameTable(const FrameTable&) = delete;
  FrameTable& operator=(const FrameTable&) = delete;

  uint32_t frame_count() const { return static_cast<uint32_t>(frames_.size()); }
  std::span<std::byte> Page(uint32_t frame) const {
    return memory_.span().subspan(size_t{frame} * page_bytes_, page_bytes_);
  }
  // REQUIRES: the frame is not free, and cannot become so.
  PageNumber PageOf(uint32_t frame) const { return frames_[frame].page.load(std::memory_order_relaxed); }

  // The page's frame, pinned and, unless it was claimed, latched. Waits for a read that is on, for other
  // holders of the latch, and for a frame when all are pinned, dirty or being written; the error is that of
  // SetError.
  Result<Pinned> Pin(PageNumber page, LatchMode mode);
  void Unpin(uint32_t frame, LatchMode mode);
  bool Holds(PageNumber page) const { return table_[page].load(std::memory_order_relaxed) != kNoFrame; }
  // A frame that is free, or becomes so without a wait; kNoFrame when there is none.
  uint32_t TryAcquire();
  // Takes such a frame for a page, without a pin. False: the page has one already.
  bool ClaimForPrefetch(uint32_t frame, PageNumber page);
  // A claimed frame has been read: by Pin, and it is latched now; or ahead.
  void FinishLoad(uint32_t frame, LatchMode mode);
  void FinishPrefetch(uint32_t frame);
  // Also takes back `pins` pins of the caller: that of Pin, or none.
  void FailLoad(uint32_t frame, uint32_t pins);

  // True for the first since the last BeginWrite. REQUIRES: the latch, in any mode.
  bool MarkDirty(uint32_t frame);
  // Hands `copy` the page to copy, unless somebody holds the latch or an older copy is still on the way:
  // false. The frame is clean afterwards and stays until EndWrite. For one thread.
  bool BeginWrite(uint32_t frame, const std::function<void(std::span<const std::byte>)>& copy);
  // True when it was not written and is dirty only because of that.
  bool EndWrite(uint32_t frame, bool written);

  uint32_t waiters() const { return waiters_; }
  // From now on nobody waits for a frame: dirty pages will not leave any more.
  void SetError(const Status& error);
  Counts counts() const;

 private:
  enum class State : uint8_t { kFree, kLoading, kResident, kFailed };
  static constexpr PageNumber kNoPage = 0xffffffff;
  static constexpr size_t kShards = 256;

  struct Frame {
    std::atomic<PageNumber> page{kNoPage};  // changes under its shard
    std::atomic<bool> dirty{false};         // set under the latch, cleared under the exclusive one
    // The page's shard guards the rest.
    State state = State::kFree;
    bool writing = false;
    bool exclusive = false;  // latched so
    bool wanted = false;     // by the writer, as soon as it is not latched
    uint32_t readers = 0;    // latched shared, so many times
    uint32_t pins = 0;       // those who hold the latch, or wait for it or for the read
    bool MayLeave() const { return state == State::kResident && pins == 0 && !dirty && !writing; }
    bool TryLatch(LatchMode mode);
    void Unlatch(LatchMode mode);
  };
  struct alignas(64) Shard {
    mutable Mutex mutex;
    CondVar changed;  // the state or the latch of one of its pages
    uint32_t waiting QUARRY_GUARDED_BY(mutex) = 0;
    uint64_t hits QUARRY_GUARDED_BY(mutex) = 0;
    uint64_t misses QUARRY_GUARDED_BY(mutex) = 0;
    uint64_t evictions QUARRY_GUARDED_BY(mutex) = 0;
    double read_wait_seconds QUARRY_GUARDED_BY(mutex) = 0;
  };

  FrameTable(uint32_t frame_count, const PageFile& file, IoBuffer memory, Callbacks callbacks);
  Shard& ShardOf(PageNumber page) { return shards_[page % kShards]; }
  void Install(uint32_t frame, PageNumber page, uint32_t pins);
  bool AwaitLatch(Shard& shard, Frame& frame, LatchMode mode) QUARRY_REQUIRES(shard.mutex);
  static void Notify(Shard& shard) QUARRY_REQUIRES(shard.mutex);
  bool DropPins(Frame& frame, uint32_t pins);
  bool TryEvict(uint32_t frame);
  Result<uint32_t> Acquire();
  Result<uint32_t> AwaitFrame();
  void Offer(uint32_t frame);
  void PushFree(uint32_t frame);

  const uint32_t page_bytes_;
  const IoBuffer memory_;
  const Callbacks callbacks_;
  const std::unique_ptr<Replacer> replacer_;
  std::vector<Frame> frames_;
  std::vector<std::atomic<uint32_t>> table_;  // by page; changes under its shard
  std::vector<Shard> shards_;

  std::atomic<uint32_t> waiters_{0};
  mutable Mutex free_mutex_;
  CondVar freed_;
  std::vector<uint32_t> free_ QUARRY_GUARDED_BY(free_mutex_);
  uint64_t offers_ QUARRY_GUARDED_BY(free_mutex_) = 1;  // frames offered to waiters; never 0
  Status error_ QUARRY_GUARDED_BY(free_mutex_);
  double wait_seconds_ QUARRY_GUARDED_BY(free_mutex_) = 0;
};

}  // namespace quarry
