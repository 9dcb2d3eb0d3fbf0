#include "quarry/io/ring.h"

#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <deque>

#include "quarry/base/exhaustion.h"
#include "quarry/base/process.h"

namespace quarry {
namespace {

constexpr uint32_t kBlockBytesMax = 4096;  // a multiple of every device's logical block

class IoRingImpl final : public IoRing {
 public:
  IoRingImpl(std::unique_ptr<IoPort> port, unsigned depth)
      : port_(std::move(port)), slots_(depth), completions_(depth) {
    for (unsigned i = 0; i < depth; i++) free_slots_.push_back(depth - 1 - i);
    raw_.reserve(depth);
  }
  ~IoRingImpl() override { Drain(); }

  Status Submit(std::span<const IoRequest> requests) override {
    if (!poison_.ok()) return poison_;
    for (const IoRequest& request : requests) queued_.push_back({request, 0, 0});
    return Pump();
  }

  Status Wait(std::vector<uint64_t>& done) override {
    if (!poison_.ok()) return poison_;
    const size_t before = done.size();
    while (done.size() == before && in_flight_ > 0) {
      const double start = MonotonicSeconds();
      const Result<size_t> count = Collect();
      stats_.wait_seconds += MonotonicSeconds() - start;
      if (!count.ok()) return poison_ = count.status();
      assert(*count > 0 && "a port waits while something is in flight");
      in_flight_ -= *count;
      const Status completed = CatchExhaustion("transfers that have ended", [&] {
        for (size_t i = 0; i < *count; i++) {
          const Status status = Complete(completions_[i], done);
          if (!status.ok() && poison_.ok()) poison_ = status;
        }
        return Status::Ok();
      });
      if (!completed.ok() && poison_.ok()) poison_ = completed;
      if (!poison_.ok()) return poison_;
      QUARRY_RETURN_IF_ERROR(Pump());
    }
    return Status::Ok();
  }

  void Drain() override {
    queued_.clear();
    while (in_flight_ > 0) {
      const Result<size_t> count = Collect();
      // Nothing comes although something is in flight: the port failed while it took them.
      if (!count.ok() || *count == 0) {
        assert(!count.ok() || !poison_.ok());
        if (poison_.ok()) poison_ = count.status();
        port_.reset();  // waits for what the kernel did take
        in_flight_ = 0;
        return;
      }
      for (size_t i = 0; i < *count; i++)
        free_slots_.push_back(static_cast<uint32_t>(completions_[i].user_data));
      in_flight_ -= *count;
    }
  }

  size_t pending() const override { return queued_.size() + in_flight_; }
  const RingStats& stats() const override { return stats_; }

 private:
  // A request with what it has got so far.
  struct Transfer {
    IoRequest request;
    uint32_t done_bytes = 0;
    unsigned retries = 0;  // without progress
  };

  // What a port had is lost where it ran out of memory, too.
  Result<size_t> Collect() {
    return CatchExhaustion("awaiting transfers", [this] { return port_->Wait(1, completions_); });
  }

  // Submits queued transfers while the depth allows.
  Status Pump() {
    raw_.clear();
    while (!queued_.empty() && !free_slots_.empty()) {
      const uint32_t slot = free_slots_.back();
      free_slots_.pop_back();
      slots_[slot] = queued_.front();
      queued_.pop_front();
      const Transfer& t = slots_[slot];
      raw_.push_back({.kind = t.request.kind,
                      .descriptor = t.request.file->descriptor(),
                      .offset = t.request.offset + t.done_bytes,
                      .buffer = t.request.buffer + t.done_bytes,
                      .bytes = t.request.bytes - t.done_bytes,
                      .user_data = slot});
    }
    if (raw_.empty()) return Status::Ok();
    in_flight_ += raw_.size();
    // Memory that ran out in the port is an error of it: what it took of them is not known.
    const Status status = CatchExhaustion("submitting transfers", [&] { return port_->Submit(raw_); });
    if (!status.ok()) poison_ = status;
    return status;
  }

  Status Complete(const RawCompletion& completion, std::vector<uint64_t>& done) {
    const auto slot = static_cast<uint32_t>(completion.user_data);
    Transfer transfer = slots_[slot];
    free_slots_.push_back(slot);
    const IoRequest& request = transfer.request;
    int32_t result = completion.result;
    if (result == -ECANCELED) result = TransferHere(transfer);
    if (result < 0) {
      const int error = -result;
      if ((error != EINTR && error != EAGAIN) || ++transfer.retries > kRetriesMax)
        return Failure(request, error);
      stats_.retries++;
      queued_.push_front(transfer);
      return Status::Ok();
    }
    if (result == 0) return NoProgress(request, transfer.done_bytes);
    const uint32_t before_bytes = transfer.done_bytes;
    const uint32_t arrived_bytes = before_bytes + static_cast<uint32_t>(result);
    transfer.done_bytes = arrived_bytes;
    if (arrived_bytes < request.bytes) {
      // Direct transfers go on at a block boundary: the part of a block that has passed does so again.
      if (request.file->direct()) transfer.done_bytes -= transfer.done_bytes % kBlockBytesMax;
      transfer.retries = transfer.done_bytes > before_bytes ? 0 : transfer.retries + 1;
      if (transfer.retries > kRetriesMax) return NoProgress(request, arrived_bytes);
      stats_.retries++;
      queued_.push_front(transfer);
      return Status::Ok();
    }
    stats_.requests++;
    stats_.bytes += request.bytes;
    done.push_back(request.user_data);
    return Status::Ok();
  }

  // io_uring gives up what would block when the kernel has no thread to block in its place: at the limit of
  // processes (pids.max, RLIMIT_NPROC) its workers count too. Then the caller waits, as it would have anyway.
  static int32_t TransferHere(const Transfer& transfer) {
    const IoRequest& request = transfer.request;
    const int descriptor = request.file->descriptor();
    std::byte* const buffer = request.buffer + transfer.done_bytes;
    const uint32_t bytes = request.bytes - transfer.done_bytes;
    const auto offset = static_cast<off_t>(request.offset + transfer.done_bytes);
    const ssize_t moved = request.kind == RawRequest::Kind::kWrite ? pwrite(descriptor, buffer, bytes, offset)
                                                                   : pread(descriptor, buffer, bytes, offset);
    return static_cast<int32_t>(moved < 0 ? -errno : moved);
  }

  static Status NoProgress(const IoRequest& request, uint32_t arrived_bytes) {
    if (request.kind == RawRequest::Kind::kWrite) return Failure(request, EIO);
    return MakeStatus(Code::kCorruption, "{}: ends at offset {}, but {} bytes are expected at offset {}",
                      request.file->path(), request.offset + arrived_bytes, request.bytes, request.offset);
  }

  static Status Failure(const IoRequest& request, int error) {
    const char* const verb = request.kind == RawRequest::Kind::kWrite ? "write" : "read";
    return ErrnoStatus(error, fmt::format("{} {} bytes at offset {} of", verb, request.bytes, request.offset),
                       request.file->path());
  }

  std::unique_ptr<IoPort> port_;  // null once it failed and was drained
  std::vector<Transfer> slots_;
  std::vector<uint32_t> free_slots_;
  std::deque<Transfer> queued_;
  std::vector<RawRequest> raw_;
  std::vector<RawCompletion> completions_;
  size_t in_flight_ = 0;
  RingStats stats_;
  Status poison_;
};

}  // namespace

Result<std::unique_ptr<IoRing>> IoRing::Make(IoBackend& backend, unsigned depth) {
  assert(depth > 0);
  QUARRY_TRY(std::unique_ptr<IoPort> port, backend.NewPort(depth));
  return std::unique_ptr<IoRing>(std::make_unique<IoRingImpl>(std::move(port), depth));
}

}  // namespace quarry
