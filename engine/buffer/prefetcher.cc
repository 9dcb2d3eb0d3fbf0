#include "prefetcher.h"

#include <algorithm>

#include "quarry/base/exhaustion.h"

namespace quarry {

uint64_t Prefetcher::Bytes(unsigned depth, uint64_t frame_count) {
  constexpr uint64_t kBytesPerRead =
      sizeof(uint32_t) + sizeof(IoRequest) + sizeof(uint64_t) + 128;            // and the ring's
  return 2 * depth * kBytesPerRead + frame_count * (2 * sizeof(uint32_t) + 1);  // the queue may be half empty
}

Result<std::unique_ptr<Prefetcher>> Prefetcher::Make(IoBackend& backend, const PageFile& file,
                                                     FrameTable& frames, unsigned depth) {
  QUARRY_TRY(std::unique_ptr<IoRing> ring, IoRing::Make(backend, depth));
  std::unique_ptr<Prefetcher> reader(new Prefetcher(backend, file, frames, depth, std::move(ring)));
  QUARRY_TRY(reader->thread_, Thread::Start(
                                  "read pages ahead", [r = reader.get()] { r->Run(); },
                                  [r = reader.get()](const Status&) { r->GiveUp(); }));
  return reader;
}

Prefetcher::Prefetcher(IoBackend& backend, const PageFile& file, FrameTable& frames, unsigned depth,
                       std::unique_ptr<IoRing> ring)
    : backend_(backend),
      file_(file),
      frames_(frames),
      depth_(depth),
      ring_(std::move(ring)),
      reading_(frames.frame_count()) {
  new_.reserve(depth);
}

Prefetcher::~Prefetcher() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

void Prefetcher::Add(std::span<const uint32_t> frames) {
  MutexLock lock(mutex_);
  queue_.insert(queue_.end(), frames.begin(), frames.end());
  changed_.NotifyAll();
}

uint64_t Prefetcher::pages_read() const {
  MutexLock lock(mutex_);
  return pages_read_;
}

void Prefetcher::Run() {
  while (TakeNew()) {
    if (!CatchExhaustion("reading pages ahead", [this] { return Transfer(); }).ok()) GiveUp();
  }
  GiveUp();
}

// Moves to new_ what is queued, as far as the depth allows; waits when nothing is being read. False: stop.
bool Prefetcher::TakeNew() {
  MutexLock lock(mutex_);
  while (!stopping_ && queue_.empty() && reading_count_ == 0) changed_.Wait(mutex_);
  new_.clear();
  for (; !queue_.empty() && reading_count_ < depth_; ++reading_count_) {
    reading_[queue_.front()] = true;
    new_.push_back(queue_.front());
    queue_.pop_front();
  }
  return !stopping_;
}

Status Prefetcher::Transfer() {
  if (ring_ == nullptr) return Status(Code::kIoError, "no ring");
  requests_.clear();
  for (const uint32_t frame : new_) {
    requests_.push_back({.file = &file_.file(),
                         .offset = file_.SlotOffset(file_.entry(frames_.PageOf(frame)).slot),
                         .bytes = file_.page_bytes(),
                         .buffer = frames_.Page(frame).data(),
                         .user_data = frame});
  }
  QUARRY_RETURN_IF_ERROR(ring_->Submit(requests_));
  done_.clear();
  const Status status = ring_->Wait(done_);
  for (const uint64_t frame : done_) Finish(static_cast<uint32_t>(frame));
  return status;
}

void Prefetcher::Finish(uint32_t frame) {
  reading_[frame] = false;
  --reading_count_;
  const PageNumber page = frames_.PageOf(frame);
  if (file_.Check(page, file_.entry(page), frames_.Page(frame)).ok()) {
    {
      MutexLock lock(mutex_);
      ++pages_read_;
    }
    frames_.FinishPrefetch(frame);
  } else {
    frames_.FailLoad(frame, 0);
  }
}

// A ring that failed does nothing any more: what it had is given up, and the next reads get another one.
void Prefetcher::GiveUp() {
  if (ring_ != nullptr) ring_->Drain();
  for (uint32_t frame = 0; frame < reading_.size() && reading_count_ > 0; ++frame) {
    if (!reading_[frame]) continue;
    reading_[frame] = false;
    --reading_count_;
    frames_.FailLoad(frame, 0);
  }
  auto ring = CatchExhaustion("a ring", [this] { return IoRing::Make(backend_, depth_); });
  ring_ = ring.ok() ? std::move(ring).value() : nullptr;
}

}  // namespace quarry
