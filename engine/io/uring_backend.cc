// The io_uring backend. Plain rings: SQPOLL, IOPOLL, registered buffers and registered files were measured
// and do not pay on virtio NVMe with few cores (docs/benchmarks.md).
#include <liburing.h>

#include <algorithm>
#include <cerrno>

#include "posix_files.h"
#include "quarry/io/ring.h"

namespace quarry {
namespace {

class UringPort final : public IoPort {
 public:
  static Result<std::unique_ptr<IoPort>> Make(unsigned depth) {
    auto port = std::make_unique<UringPort>();
    // Completions need not interrupt the thread that submitted: they are run when it enters the kernel
    // anyway. SINGLE_ISSUER and DEFER_TASKRUN would bind the ring to the thread that made it, for no
    // measurable gain.
    for (const unsigned flags : {unsigned{IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG}, 0U}) {
      const int error = io_uring_queue_init(depth, &port->ring_, flags);
      if (error == 0) {
        port->open_ = true;
        return std::unique_ptr<IoPort>(std::move(port));
      }
      if (error != -EINVAL) return ErrnoStatus(-error, "set up", "io_uring");
    }
    return ErrnoStatus(EINVAL, "set up", "io_uring");
  }
  UringPort() = default;
  UringPort(const UringPort&) = delete;
  UringPort& operator=(const UringPort&) = delete;
  ~UringPort() override {
    if (!open_) return;
    // Closing a ring does not wait for its transfers: the kernel would still write to buffers that are freed.
    io_uring_cqe* entry = nullptr;
    while (in_flight_ > 0) {
      const int error = io_uring_wait_cqe(&ring_, &entry);
      if (error == -EINTR) continue;
      if (error < 0) break;
      io_uring_cqe_seen(&ring_, entry);
      in_flight_--;
    }
    io_uring_queue_exit(&ring_);
  }

  Status Submit(std::span<const RawRequest> requests) override {
    if (!poison_.ok()) return poison_;
    for (const RawRequest& request : requests) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      if (entry == nullptr) {
        return poison_ = Status(Code::kInternal, "io_uring: more requests than the ring was made for");
      }
      if (request.kind == RawRequest::Kind::kRead) {
        io_uring_prep_read(entry, request.descriptor, request.buffer, request.bytes, request.offset);
      } else {
        io_uring_prep_write(entry, request.descriptor, request.buffer, request.bytes, request.offset);
      }
      io_uring_sqe_set_data64(entry, request.user_data);
    }
    unsigned retries = 0;
    while (io_uring_sq_ready(&ring_) > 0) {
      const int submitted = io_uring_submit(&ring_);
      if (submitted > 0) {
        in_flight_ += static_cast<size_t>(submitted);
        retries = 0;
        continue;
      }
      const bool transient =
          submitted == 0 || submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY;
      if (!transient || ++retries > IoRing::kRetriesMax) {
        return poison_ = ErrnoStatus(submitted == 0 ? EAGAIN : -submitted, "submit to", "io_uring");
      }
    }
    return Status::Ok();
  }

  Result<size_t> Wait(size_t count_min, std::span<RawCompletion> out) override {
    const size_t wanted = std::min({count_min, in_flight_, out.size()});
    io_uring_cqe* entry = nullptr;
    if (wanted > 0) {
      int error = 0;
      do {
        error = io_uring_wait_cqe_nr(&ring_, &entry, static_cast<unsigned>(wanted));
      } while (error == -EINTR);
      if (error < 0) return ErrnoStatus(-error, "wait for", "io_uring");
    }
    size_t count = 0;
    while (count < out.size() && io_uring_peek_cqe(&ring_, &entry) == 0) {
      out[count++] = {.user_data = io_uring_cqe_get_data64(entry), .result = entry->res};
      io_uring_cqe_seen(&ring_, entry);
    }
    in_flight_ -= count;
    return count;
  }

 private:
  io_uring ring_{};
  bool open_ = false;
  size_t in_flight_ = 0;  // taken by the kernel and not yet handed out
  Status poison_;
};

class UringBackend final : public PosixFiles {
 public:
  std::string_view name() const override { return "io_uring"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override { return UringPort::Make(depth); }
};

}  // namespace

Result<std::unique_ptr<IoBackend>> MakeUringBackend() {
  auto backend = std::make_unique<UringBackend>();
  // The kernel's refusal (seccomp, kernel.io_uring_disabled, no such call) shows in making a ring.
  QUARRY_TRY(auto port, backend->NewPort(1));
  return std::unique_ptr<IoBackend>(std::move(backend));
}

}  // namespace quarry
