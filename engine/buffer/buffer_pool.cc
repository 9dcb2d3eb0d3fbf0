#include "quarry/buffer/buffer_pool.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <utility>

#include "frame_table.h"
#include "prefetcher.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "write_behind.h"

namespace quarry {
namespace {

constexpr uint32_t kFramesMin = 16;

// A quarter of the frames at most is copied for writing.
uint32_t WriteBuffers(uint64_t frame_count, unsigned io_depth) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(frame_count / 4, 1, io_depth));
}

uint64_t PoolBytes(uint64_t frame_count, const PageFile& file, unsigned io_depth) {
  return file.memory_bytes() + FrameTable::Bytes(frame_count, file) +
         WriteBehind::Bytes(WriteBuffers(frame_count, io_depth), frame_count, file.page_bytes()) +
         Prefetcher::Bytes(io_depth, frame_count);
}

// The most frames that fit; more than there are pages would be of no use. REQUIRES: kFramesMin fit.
uint32_t FramesIn(uint64_t memory_bytes, const PageFile& file, unsigned io_depth) {
  uint64_t fit = kFramesMin;
  uint64_t beyond = uint64_t{std::max(file.page_count(), kFramesMin)} + 1;
  while (beyond - fit > 1) {
    const uint64_t middle = (fit + beyond) / 2;
    (PoolBytes(middle, file, io_depth) <= memory_bytes ? fit : beyond) = middle;
  }
  return static_cast<uint32_t>(fit);
}

class BufferPoolImpl final : public BufferPool {
 public:
  BufferPoolImpl(PageFile& file, MemoryBudget::Reservation reservation, PageInit init)
      : file_(file), reservation_(std::move(reservation)), init_(std::move(init)) {}

  Status Start(IoBackend& backend, uint32_t frame_count, const BufferPoolOptions& options) {
    const auto share = [&](double part) { return static_cast<uint32_t>(part * frame_count); };
    QUARRY_TRY(frames_, FrameTable::Make(frame_count, file_,
                                         {.on_wait = [this] { writer_->Wake(); },
                                          .on_unlatch = [this] { writer_->Wake(); }}));
    QUARRY_TRY(writer_, WriteBehind::Make(backend, file_, *frames_,
                                          {.buffer_count = WriteBuffers(frame_count, options.io_depth),
                                           .dirty_high = share(options.dirty_high),
                                           .dirty_low = share(options.dirty_low),
                                           .bytes_per_second = options.write_bytes_per_second}));
    QUARRY_TRY(prefetcher_, Prefetcher::Make(backend, file_, *frames_, options.io_depth));
    return Status::Ok();
  }

  Result<PageGuard> Pin(PageNumber page, LatchMode mode) override {
    QUARRY_TRY(const FrameTable::Pinned pinned, frames_->Pin(page, mode));
    if (pinned.claimed) {
      if (const Status status = Load(page, pinned.frame); !status.ok()) {
        frames_->FailLoad(pinned.frame, 1);
        return status;
      }
      frames_->FinishLoad(pinned.frame, mode);
    }
    return MakeGuard(pinned.frame, mode);
  }

  Status Prefetch(std::span<const PageNumber> pages) override {
    std::vector<uint32_t> claimed;
    for (const PageNumber page : pages) {
      if (frames_->Holds(page) || file_.entry(page).slot == kNoPageSlot)
        continue;  // the latter Pin makes as fast
      const uint32_t frame = frames_->TryAcquire();
      if (frame == kNoFrame) break;
      if (frames_->ClaimForPrefetch(frame, page)) claimed.push_back(frame);
    }
    prefetcher_->Add(claimed);
    return Status::Ok();
  }

  Status Flush() override { return writer_->Flush(); }

  BufferPoolStats stats() const override {
    const FrameTable::Counts counts = frames_->counts();
    return {.hits = counts.hits,
            .misses = counts.misses,
            .evictions = counts.evictions,
            .pages_read = pages_read_ + prefetcher_->pages_read(),
            .pages_written = writer_->pages_written(),
            .dirty_pages = writer_->dirty_pages(),
            .read_wait_seconds =
                counts.read_wait_seconds + static_cast<double>(read_wait_nanoseconds_.load()) * 1e-9,
            .frame_wait_seconds = counts.frame_wait_seconds};
  }

  uint32_t frame_count() const override { return frames_->frame_count(); }

 protected:
  std::span<std::byte> Body(uint32_t frame) override {
    return frames_->Page(frame).subspan(sizeof(PageHeader));
  }

  void MarkDirty(uint32_t frame) override {
    if (frames_->MarkDirty(frame)) writer_->Add(frame);
  }

  void Unpin(uint32_t frame, LatchMode mode) override { frames_->Unpin(frame, mode); }

 private:
  Status Load(PageNumber page, uint32_t frame) {
    if (file_.entry(page).slot == kNoPageSlot) {
      std::ranges::fill(frames_->Page(frame), std::byte{0});
      if (init_) init_(page, Body(frame));
      return Status::Ok();
    }
    const double start = MonotonicSeconds();
    const Status status = file_.Read(page, frames_->Page(frame));
    read_wait_nanoseconds_ += static_cast<uint64_t>((MonotonicSeconds() - start) * 1e9);
    if (status.ok()) ++pages_read_;
    return status;
  }

  PageFile& file_;
  const MemoryBudget::Reservation reservation_;
  const PageInit init_;
  std::atomic<uint64_t> pages_read_{0};  // by Pin; the prefetcher counts its own
  std::atomic<uint64_t> read_wait_nanoseconds_{0};
  std::unique_ptr<FrameTable> frames_;
  std::unique_ptr<WriteBehind> writer_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace

uint64_t BufferPool::BytesMin(const PageFile& file) {
  return PoolBytes(kFramesMin, file, BufferPoolOptions{}.io_depth);
}

Result<std::unique_ptr<BufferPool>> BufferPool::Make(IoBackend& backend, PageFile& file, MemoryBudget& budget,
                                                     const BufferPoolOptions& options, PageInit init) {
  assert(options.io_depth > 0);
  const uint64_t bytes_min = PoolBytes(kFramesMin, file, options.io_depth);
  if (options.memory_bytes < bytes_min) {
    return MakeStatus(Code::kOutOfBudget, "{}: a buffer pool of {} is too small; give it at least {}",
                      file.file().path(), FormatBytes(options.memory_bytes), FormatBytes(bytes_min));
  }
  const uint32_t frame_count = FramesIn(options.memory_bytes, file, options.io_depth);
  QUARRY_TRY(MemoryBudget::Reservation reservation,
             budget.Reserve(PoolBytes(frame_count, file, options.io_depth), "the buffer pool"));
  auto pool = std::make_unique<BufferPoolImpl>(file, std::move(reservation), std::move(init));
  QUARRY_RETURN_IF_ERROR(pool->Start(backend, frame_count, options));
  return std::unique_ptr<BufferPool>(std::move(pool));
}

PageGuard BufferPool::MakeGuard(uint32_t frame, LatchMode mode) {
  PageGuard guard;
  guard.pool_ = this;
  guard.frame_ = frame;
  guard.mode_ = mode;
  return guard;
}

PageGuard::PageGuard(PageGuard&& other) noexcept { *this = std::move(other); }

PageGuard& PageGuard::operator=(PageGuard&& other) noexcept {
  if (this != &other) {
    Release();
    pool_ = std::exchange(other.pool_, nullptr);
    frame_ = other.frame_;
    mode_ = other.mode_;
  }
  return *this;
}

std::span<const std::byte> PageGuard::body() const { return pool_->Body(frame_); }

std::span<std::byte> PageGuard::mutable_body() {
  assert(mode_ == LatchMode::kExclusive);
  return shared_mutable_body();
}

std::span<std::byte> PageGuard::shared_mutable_body() {
  pool_->MarkDirty(frame_);
  return pool_->Body(frame_);
}

void PageGuard::Release() {
  if (pool_ != nullptr) std::exchange(pool_, nullptr)->Unpin(frame_, mode_);
}

}  // namespace quarry
