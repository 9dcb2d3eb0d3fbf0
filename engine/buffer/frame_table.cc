#include "frame_table.h"

#include <cassert>
#include <utility>

#include "quarry/base/process.h"

namespace quarry {

uint64_t FrameTable::Bytes(uint64_t frame_count, const PageFile& file) {
  constexpr uint64_t kBytesPerFrame = sizeof(Frame) + sizeof(uint32_t) + 1;  // free list, replacer
  return IoBuffer::MappedBytes(frame_count * file.page_bytes()) + frame_count * kBytesPerFrame +
         uint64_t{file.page_count()} * sizeof(uint32_t) + kShards * sizeof(Shard);
}

Result<std::unique_ptr<FrameTable>> FrameTable::Make(uint32_t frame_count, const PageFile& file,
                                                     Callbacks callbacks) {
  QUARRY_TRY(IoBuffer memory, IoBuffer::Allocate(size_t{frame_count} * file.page_bytes()));
  return std::unique_ptr<FrameTable>(
      new FrameTable(frame_count, file, std::move(memory), std::move(callbacks)));
}

FrameTable::FrameTable(uint32_t frame_count, const PageFile& file, IoBuffer memory, Callbacks callbacks)
    : page_bytes_(file.page_bytes()),
      memory_(std::move(memory)),
      callbacks_(std::move(callbacks)),
      replacer_(MakeClockReplacer(frame_count)),
      frames_(frame_count),
      table_(file.page_count()),
      shards_(kShards) {
  for (std::atomic<uint32_t>& frame : table_) frame.store(kNoFrame, std::memory_order_relaxed);
  for (uint32_t frame = frame_count; frame-- > 0;) free_.push_back(frame);
}

bool FrameTable::Frame::TryLatch(LatchMode mode) {
  if (exclusive || (mode == LatchMode::kExclusive && readers > 0)) return false;
  mode == LatchMode::kExclusive ? void(exclusive = true) : void(++readers);
  return true;
}

void FrameTable::Frame::Unlatch(LatchMode mode) {
  assert(mode == LatchMode::kExclusive ? exclusive : readers > 0);
  mode == LatchMode::kExclusive ? void(exclusive = false) : void(--readers);
}

void FrameTable::Notify(Shard& shard) {
  if (shard.waiting > 0) shard.changed.NotifyAll();
}

// A frame is acquired without a lock held, since that may wait; meanwhile another thread may bring the page
// in, so the table is looked at again with the spare frame in hand. A pin is taken before waiting for the
// read or the latch: the frame cannot become another page's in between.
Result<FrameTable::Pinned> FrameTable::Pin(PageNumber page, LatchMode mode) {
  assert(page < table_.size());
  Shard& shard = ShardOf(page);
  uint32_t spare = kNoFrame;
  while (true) {
    uint32_t found = kNoFrame;
    bool latched = false;
    bool freed = false;
    {
      MutexLock lock(shard.mutex);
      found = table_[page].load(std::memory_order_relaxed);
      if (found != kNoFrame) {
        ++frames_[found].pins;
        ++shard.hits;
        replacer_->Touch(found);
        latched = AwaitLatch(shard, frames_[found], mode);
        freed = !latched && DropPins(frames_[found], 1);  // the read failed, and was awaited by nobody else
      } else if (spare != kNoFrame) {
        ++shard.misses;
        Install(spare, page, 1);
        return Pinned{spare, true};
      }
    }
    if (freed) PushFree(found);
    if (latched) {
      if (spare != kNoFrame) PushFree(spare);  // somebody was faster
      return Pinned{found, false};
    }
    if (spare == kNoFrame) {
      QUARRY_TRY(spare, Acquire());
    }
  }
}

void FrameTable::Install(uint32_t number, PageNumber page, uint32_t pins) {
  Frame& frame = frames_[number];
  assert(frame.state == State::kFree && frame.pins == 0);
  frame.page = page;
  frame.state = State::kLoading;
  frame.pins = pins;
  table_[page] = number;
  replacer_->Touch(number);
}

bool FrameTable::ClaimForPrefetch(uint32_t spare, PageNumber page) {
  assert(page < table_.size());
  {
    Shard& shard = ShardOf(page);
    MutexLock lock(shard.mutex);
    if (table_[page].load(std::memory_order_relaxed) == kNoFrame) {
      Install(spare, page, 0);
      return true;
    }
  }
  PushFree(spare);
  return false;
}

// True: the frame is resident, and latched. False: its read failed.
bool FrameTable::AwaitLatch(Shard& shard, Frame& frame, LatchMode mode) {
  const bool loading = frame.state == State::kLoading;
  const double start = loading ? MonotonicSeconds() : 0;
  ++shard.waiting;
  while (frame.state == State::kLoading) shard.changed.Wait(shard.mutex);
  if (loading) shard.read_wait_seconds += MonotonicSeconds() - start;
  bool latched = false;
  while (frame.state == State::kResident && !(latched = frame.TryLatch(mode)))
    shard.changed.Wait(shard.mutex);
  --shard.waiting;
  return latched;
}

void FrameTable::FinishLoad(uint32_t number, LatchMode mode) {
  Frame& frame = frames_[number];
  Shard& shard = ShardOf(PageOf(number));
  MutexLock lock(shard.mutex);
  frame.state = State::kResident;
  const bool latched = frame.TryLatch(mode);
  assert(latched);  // nobody latches what is not resident
  (void)latched;
  Notify(shard);
}

void FrameTable::FinishPrefetch(uint32_t number) {
  Frame& frame = frames_[number];
  {
    Shard& shard = ShardOf(PageOf(number));
    MutexLock lock(shard.mutex);
    frame.state = State::kResident;
    Notify(shard);
    if (!frame.MayLeave()) return;
    replacer_->SetEvictable(number, true);
  }
  Offer(number);
}

void FrameTable::FailLoad(uint32_t number, uint32_t pins) {
  Frame& frame = frames_[number];
  {
    const PageNumber page = PageOf(number);
    Shard& shard = ShardOf(page);
    MutexLock lock(shard.mutex);
    table_[page] = kNoFrame;
    frame.state = State::kFailed;
    Notify(shard);
    if (!DropPins(frame, pins)) return;
  }
  PushFree(number);
}

// Drops pins of a failed load. True: those were the last, and the frame is the caller's.
bool FrameTable::DropPins(Frame& frame, uint32_t pins) {
  assert(frame.pins >= pins);
  frame.pins -= pins;
  if (frame.pins > 0) return false;
  frame.state = State::kFree;
  frame.page = kNoPage;
  return true;
}

void FrameTable::Unpin(uint32_t number, LatchMode mode) {
  Frame& frame = frames_[number];
  bool wanted = false;
  bool may_leave = false;
  {
    Shard& shard = ShardOf(PageOf(number));
    MutexLock lock(shard.mutex);
    frame.Unlatch(mode);
    --frame.pins;
    Notify(shard);
    if (!frame.exclusive && frame.readers == 0) wanted = std::exchange(frame.wanted, false);
    may_leave = frame.MayLeave();
    if (may_leave) replacer_->SetEvictable(number, true);
  }
  if (wanted) callbacks_.on_unlatch();
  if (may_leave) Offer(number);
}

bool FrameTable::MarkDirty(uint32_t number) {
  std::atomic<bool>& dirty = frames_[number].dirty;
  return !dirty.load(std::memory_order_relaxed) && !dirty.exchange(true);
}

// The page is copied without the shard's lock but under the exclusive latch, so the copy is of one moment.
// `dirty` is cleared before the copy: a change that comes afterwards marks the page anew, and it will be
// written again.
bool FrameTable::BeginWrite(uint32_t number, const std::function<void(std::span<const std::byte>)>& copy) {
  Frame& frame = frames_[number];
  Shard& shard = ShardOf(PageOf(number));
  {
    MutexLock lock(shard.mutex);
    if (frame.writing) return false;
    frame.wanted = !frame.TryLatch(LatchMode::kExclusive);
    if (frame.wanted) return false;
    frame.writing = true;
    frame.dirty = false;
  }
  copy(Page(number));
  MutexLock lock(shard.mutex);
  frame.Unlatch(LatchMode::kExclusive);
  Notify(shard);
  return true;
}

bool FrameTable::EndWrite(uint32_t number, bool written) {
  Frame& frame = frames_[number];
  const bool dirtied = !written && !frame.dirty.exchange(true);
  {
    MutexLock lock(ShardOf(PageOf(number)).mutex);
    frame.writing = false;
    if (!frame.MayLeave()) return dirtied;
    replacer_->SetEvictable(number, true);
  }
  Offer(number);
  return dirtied;
}

bool FrameTable::TryEvict(uint32_t number) {
  Frame& frame = frames_[number];
  const PageNumber page = frame.page;
  if (page == kNoPage) return false;
  Shard& shard = ShardOf(page);
  MutexLock lock(shard.mutex);
  if (table_[page].load(std::memory_order_relaxed) != number) return false;  // it left in between
  replacer_->SetEvictable(number, false);
  if (!frame.MayLeave()) return false;  // whoever makes it so will say that it may
  table_[page] = kNoFrame;
  frame.state = State::kFree;
  frame.page = kNoPage;
  ++shard.evictions;
  return true;
}

uint32_t FrameTable::TryAcquire() {
  {
    MutexLock lock(free_mutex_);
    if (!free_.empty()) {
      const uint32_t frame = free_.back();
      free_.pop_back();
      return frame;
    }
  }
  while (true) {
    const uint32_t frame = replacer_->Candidate();
    if (frame == kNoFrame || TryEvict(frame)) return frame;
  }
}

// Whoever waits is counted before he looks for the last time. So a frame that may leave is either found by
// that look, or its Offer finds him.
Result<uint32_t> FrameTable::Acquire() {
  if (const uint32_t frame = TryAcquire(); frame != kNoFrame) return frame;
  const double start = MonotonicSeconds();
  ++waiters_;
  callbacks_.on_wait();
  Result<uint32_t> frame = AwaitFrame();
  --waiters_;
  MutexLock lock(free_mutex_);
  wait_seconds_ += MonotonicSeconds() - start;
  return frame;
}

Result<uint32_t> FrameTable::AwaitFrame() {
  uint64_t offers_seen = 0;
  while (true) {
    {
      MutexLock lock(free_mutex_);
      while (offers_ == offers_seen && error_.ok()) freed_.Wait(free_mutex_);
      if (offers_ == offers_seen) return error_;
      offers_seen = offers_;
    }
    if (const uint32_t frame = TryAcquire(); frame != kNoFrame) return frame;
  }
}

// The frame may leave. When there are not enough free ones for those who wait, it leaves now: a waiter would
// have to look for it among all frames.
void FrameTable::Offer(uint32_t frame) {
  if (waiters_ == 0) return;
  {
    MutexLock lock(free_mutex_);
    if (free_.size() >= waiters_) {
      ++offers_;  // who finds the free ones taken by others finds this one
      freed_.NotifyOne();
      return;
    }
  }
  if (TryEvict(frame)) PushFree(frame);
}

void FrameTable::PushFree(uint32_t frame) {
  MutexLock lock(free_mutex_);
  free_.push_back(frame);
  ++offers_;
  freed_.NotifyOne();
}

void FrameTable::SetError(const Status& error) {
  MutexLock lock(free_mutex_);
  error_ = error;
  freed_.NotifyAll();
}

FrameTable::Counts FrameTable::counts() const {
  Counts counts;
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    counts.hits += shard.hits;
    counts.misses += shard.misses;
    counts.evictions += shard.evictions;
    counts.read_wait_seconds += shard.read_wait_seconds;
  }
  MutexLock lock(free_mutex_);
  counts.frame_wait_seconds = wait_seconds_;
  return counts;
}

}  // namespace quarry
