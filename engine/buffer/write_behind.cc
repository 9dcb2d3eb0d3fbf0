#include "write_behind.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>

#include "quarry/base/kill_point.h"
#include "quarry/base/process.h"

namespace quarry {
namespace {

constexpr double kBurstSeconds =
    0.01;  // for which the rate may be exceeded: longer than a thread takes to wake

}  // namespace

uint64_t WriteBehind::Bytes(uint32_t buffer_count, uint64_t frame_count, uint32_t page_bytes) {
  constexpr uint64_t kBytesPerBuffer =
      sizeof(Write) + sizeof(uint32_t) + sizeof(IoRequest) + sizeof(uint64_t) + 128;  // and the ring's
  return IoBuffer::MappedBytes(uint64_t{buffer_count} * page_bytes) + buffer_count * kBytesPerBuffer +
         2 * frame_count * sizeof(DirtyPage);  // a deque may have as much in half-empty blocks
}

Result<std::unique_ptr<WriteBehind>> WriteBehind::Make(IoBackend& backend, PageFile& file, FrameTable& frames,
                                                       const WriteBehindOptions& options) {
  QUARRY_TRY(std::unique_ptr<IoRing> ring, IoRing::Make(backend, options.buffer_count));
  QUARRY_TRY(IoBuffer buffer, IoBuffer::Allocate(size_t{options.buffer_count} * file.page_bytes()));
  std::unique_ptr<WriteBehind> writer(
      new WriteBehind(file, frames, options, std::move(ring), std::move(buffer)));
  QUARRY_TRY(writer->thread_, Thread::Start(
                                  "write pages", [w = writer.get()] { w->Run(); },
                                  [w = writer.get()](const Status& why) { w->Fail(why); }));
  return writer;
}

WriteBehind::WriteBehind(PageFile& file, FrameTable& frames, const WriteBehindOptions& options,
                         std::unique_ptr<IoRing> ring, IoBuffer buffer)
    : file_(file),
      frames_(frames),
      options_(options),
      ring_(std::move(ring)),
      buffer_(std::move(buffer)),
      writes_(options.buffer_count) {
  for (uint32_t number = options.buffer_count; number-- > 0;) spare_.push_back(number);
}

WriteBehind::~WriteBehind() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

void WriteBehind::Add(uint32_t frame) {
  MutexLock lock(mutex_);
  queue_.push_back({frame, epoch_});
  ++unwritten_[epoch_ % 2];
  if (queue_.size() > options_.dirty_high) draining_ = true;
  ++events_;
  if (ShouldWrite()) changed_.NotifyAll();
}

void WriteBehind::Wake() {
  MutexLock lock(mutex_);
  ++events_;
  changed_.NotifyAll();
}

Status WriteBehind::Flush() {
  MutexLock flush_lock(flush_mutex_);
  {
    MutexLock lock(mutex_);
    const Epoch ended = epoch_++;
    flushing_ = true;
    ++events_;
    changed_.NotifyAll();
    while (unwritten_[ended % 2] > 0 && !failed_) flushed_.Wait(mutex_);
    flushing_ = false;
  }
  return file_.Sync();
}

uint64_t WriteBehind::dirty_pages() const {
  MutexLock lock(mutex_);
  return unwritten_[0] + unwritten_[1];
}

uint64_t WriteBehind::pages_written() const {
  MutexLock lock(mutex_);
  return pages_written_;
}

bool WriteBehind::Urgent() const {
  return (flushing_ && unwritten_[(epoch_ - 1) % 2] > 0) || frames_.waiters() > 0;
}

bool WriteBehind::ShouldWrite() const { return !failed_ && !queue_.empty() && (draining_ || Urgent()); }

void WriteBehind::Run() {
  while (AwaitWork()) {
    Status status = SubmitWrites();
    if (status.ok() && ring_->pending() > 0) status = CollectWrites();
    if (!status.ok()) Fail(status);
  }
  Abandon();
}

// False: stop.
bool WriteBehind::AwaitWork() {
  MutexLock lock(mutex_);
  while (!stopping_ && ring_->pending() == 0 && !ShouldWrite()) changed_.Wait(mutex_);
  return !stopping_;
}

// Submits what there is to write, as far as buffers and rate allow.
Status WriteBehind::SubmitWrites() {
  QUARRY_RETURN_IF_ERROR(file_.write_error());  // a sync may have failed
  requests_.clear();
  const Work work = WorkNow();
  bool held_back = false;
  DirtyPage dirty;
  for (size_t turn = 0; turn < work.queued && !spare_.empty(); ++turn) {
    held_back = HeldBackByRate();
    if (held_back || !TakeDirty(dirty)) break;
    if (!Prepare(dirty)) PutBack(dirty);
  }
  if (!requests_.empty()) {
    QUARRY_RETURN_IF_ERROR(ring_->Submit(requests_));
    KillPoint("pages: writes on the way");
    return Status::Ok();
  }
  if (ring_->pending() > 0) return Status::Ok();
  if (held_back) {
    AwaitRate(work.events);
  } else {
    AwaitEventAfter(work.events);  // all of them are latched
  }
  return Status::Ok();
}

// Copies the page to a spare buffer and makes a request of it. False: its frame is latched.
bool WriteBehind::Prepare(const DirtyPage& dirty) {
  const uint32_t number = spare_.back();
  const std::span<std::byte> bytes =
      buffer_.span().subspan(size_t{number} * file_.page_bytes(), file_.page_bytes());
  const bool copied = frames_.BeginWrite(dirty.frame, [&](std::span<const std::byte> page) {
    std::memcpy(bytes.data(), page.data(), page.size());
  });
  if (!copied) return false;
  spare_.pop_back();
  CountForRate();
  const PageNumber page = frames_.PageOf(dirty.frame);
  const PageEntry entry = SealPage(page, file_.entry(page).version + 1, file_.AllocateSlot(), bytes);
  writes_[number] = {dirty, page, entry};
  requests_.push_back({.file = &file_.file(),
                       .offset = file_.SlotOffset(entry.slot),
                       .bytes = file_.page_bytes(),
                       .buffer = bytes.data(),
                       .user_data = number,
                       .kind = RawRequest::Kind::kWrite});
  MutexLock lock(mutex_);
  if (queue_.size() <= options_.dirty_low) draining_ = false;
  return true;
}

Status WriteBehind::CollectWrites() {
  done_.clear();
  const Status status = ring_->Wait(done_);
  for (const uint64_t number : done_) Finish(static_cast<uint32_t>(number));
  return status;
}

void WriteBehind::Finish(uint32_t number) {
  const Write write = writes_[number];
  writes_[number].entry.slot = kNoPageSlot;
  spare_.push_back(number);
  KillPoint("pages: page written, not in the map");
  // Before the frame may leave: who reads it again needs the new slot.
  file_.SetEntry(write.page, write.entry);
  frames_.EndWrite(write.dirty.frame, true);
  MutexLock lock(mutex_);
  ++pages_written_;
  if (--unwritten_[write.dirty.epoch % 2] == 0) flushed_.NotifyAll();
}

void WriteBehind::Fail(const Status& error) {
  file_.SetWriteError(error);
  Abandon();
  frames_.SetError(file_.write_error());
  MutexLock lock(mutex_);
  failed_ = true;
  flushed_.NotifyAll();
}

// What is on the way when there is no going on: the pages are as dirty as before, so they stay.
void WriteBehind::Abandon() {
  ring_->Drain();
  for (Write& write : writes_) {
    if (write.entry.slot == kNoPageSlot) continue;
    file_.ReleaseSlot(write.entry.slot);
    write.entry.slot = kNoPageSlot;
    if (frames_.EndWrite(write.dirty.frame, false)) {
      PutBack(write.dirty);
    } else {
      MutexLock lock(mutex_);
      --unwritten_[write.dirty.epoch % 2];  // it was dirtied again, and counts for that
    }
  }
}

bool WriteBehind::TakeDirty(DirtyPage& out) {
  MutexLock lock(mutex_);
  if (!ShouldWrite()) return false;
  out = queue_.front();
  queue_.pop_front();
  return true;
}

WriteBehind::Work WriteBehind::WorkNow() const {
  MutexLock lock(mutex_);
  return {queue_.size(), events_};
}

void WriteBehind::AwaitEventAfter(uint64_t events) {
  MutexLock lock(mutex_);
  while (events_ == events && !stopping_) changed_.Wait(mutex_);
}

// Until the rate allows the next write, or somebody cannot wait for that.
void WriteBehind::AwaitRate(uint64_t events) {
  const std::chrono::duration<double> left(next_write_seconds_ - MonotonicSeconds());
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::ceil<std::chrono::steady_clock::duration>(left);
  MutexLock lock(mutex_);
  while (events_ == events && !stopping_ && changed_.WaitUntil(mutex_, until)) {
  }
}

void WriteBehind::PutBack(const DirtyPage& dirty) {
  MutexLock lock(mutex_);
  queue_.push_back(dirty);
}

bool WriteBehind::HeldBackByRate() {
  if (options_.bytes_per_second == 0 || MonotonicSeconds() >= next_write_seconds_) return false;
  MutexLock lock(mutex_);
  return !Urgent();
}

void WriteBehind::CountForRate() {
  if (options_.bytes_per_second == 0) return;
  next_write_seconds_ =
      std::max(next_write_seconds_, MonotonicSeconds() - kBurstSeconds) +
      static_cast<double>(file_.page_bytes()) / static_cast<double>(options_.bytes_per_second);
}

}  // namespace quarry
