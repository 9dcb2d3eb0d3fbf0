// The fallback: a pool of threads that block in pread and pwrite. 32 of them reach one ring's rate on virtio
// NVMe.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <new>
#include <string_view>
#include <vector>

#include "posix_files.h"
#include "quarry/base/log.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"

namespace quarry {
namespace {

// Where completions of one port gather. The port outlives its jobs, so jobs point to it.
class Mailbox {
 public:
  // A port of this depth takes no memory afterwards.
  explicit Mailbox(unsigned depth) { completions_.reserve(depth); }

  void Expect(size_t count) {
    MutexLock lock(mutex_);
    in_flight_ += count;
  }

  void Deliver(const RawCompletion& completion) {
    MutexLock lock(mutex_);
    completions_.push_back(completion);
    in_flight_--;
    arrived_.NotifyAll();  // under the latch: afterwards the mailbox may be gone
  }

  size_t Take(size_t count_min, std::span<RawCompletion> out) {
    MutexLock lock(mutex_);
    const size_t wanted = std::min({count_min, completions_.size() + in_flight_, out.size()});
    while (completions_.size() < wanted) arrived_.Wait(mutex_);
    const size_t count = std::min(out.size(), completions_.size());
    std::copy_n(completions_.begin(), count, out.begin());
    completions_.erase(completions_.begin(), completions_.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }

  void AwaitAll() {
    MutexLock lock(mutex_);
    while (in_flight_ > 0) arrived_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar arrived_;
  std::vector<RawCompletion> completions_ QUARRY_GUARDED_BY(mutex_);
  size_t in_flight_ QUARRY_GUARDED_BY(mutex_) = 0;
};

struct Job {
  RawRequest request;
  Mailbox* mailbox = nullptr;
};

void Run(const Job& job) {
  const RawRequest& r = job.request;
  const auto offset = static_cast<off_t>(r.offset);
  const ssize_t n = r.kind == RawRequest::Kind::kRead ? pread(r.descriptor, r.buffer, r.bytes, offset)
                                                      : pwrite(r.descriptor, r.buffer, r.bytes, offset);
  const auto result = static_cast<int32_t>(n < 0 ? -errno : n);
  job.mailbox->Deliver({.user_data = r.user_data, .result = result});
}

// The threads and their queue. Not bounded by itself: ports are, by their depth.
class Pool {
 public:
  explicit Pool(unsigned threads) {
    // As many threads as started do the work, or the caller when none did. A job takes no memory.
    static_cast<void>(StartThreads(
        "read and write", threads, [this](unsigned) { Work(); }, [](const Status&) {}, threads_));
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    work_.NotifyAll();
    threads_.clear();
  }

  void Add(std::span<const RawRequest> requests, Mailbox& mailbox) {
    if (threads_.empty()) {
      for (const RawRequest& request : requests) Run({request, &mailbox});
      return;
    }
    size_t queued = 0;
    try {
      MutexLock lock(mutex_);
      for (; queued < requests.size(); ++queued) jobs_.push_back({requests[queued], &mailbox});
    } catch (const std::bad_alloc&) {  // the caller does those that found no place
    }
    for (size_t i = 0; i < std::min(queued, threads_.size()); i++) work_.NotifyOne();
    for (const RawRequest& request : requests.subspan(queued)) Run({request, &mailbox});
  }

 private:
  void Work() {
    while (true) {
      Job job;
      {
        MutexLock lock(mutex_);
        while (jobs_.empty() && !stopping_) work_.Wait(mutex_);
        if (jobs_.empty()) return;
        job = jobs_.front();
        jobs_.pop_front();
      }
      Run(job);
    }
  }

  Mutex mutex_;
  CondVar work_;
  std::deque<Job> jobs_ QUARRY_GUARDED_BY(mutex_);
  bool stopping_ QUARRY_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

class ThreadPort final : public IoPort {
 public:
  ThreadPort(Pool& pool, unsigned depth) : pool_(pool), mailbox_(depth) {}
  ThreadPort(const ThreadPort&) = delete;
  ThreadPort& operator=(const ThreadPort&) = delete;
  ~ThreadPort() override { mailbox_.AwaitAll(); }

  Status Submit(std::span<const RawRequest> requests) override {
    mailbox_.Expect(requests.size());
    pool_.Add(requests, mailbox_);
    return Status::Ok();
  }

  Result<size_t> Wait(size_t count_min, std::span<RawCompletion> out) override {
    return mailbox_.Take(count_min, out);
  }

 private:
  Pool& pool_;
  Mailbox mailbox_;
};

class ThreadBackend final : public PosixFiles {
 public:
  explicit ThreadBackend(unsigned threads) : pool_(threads) {}
  std::string_view name() const override { return "threads"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override {
    return std::unique_ptr<IoPort>(std::make_unique<ThreadPort>(pool_, depth));
  }

 private:
  Pool pool_;
};

}  // namespace

std::unique_ptr<IoBackend> MakeThreadBackend(unsigned threads) {
  return std::make_unique<ThreadBackend>(threads);
}

std::unique_ptr<IoBackend> MakeDefaultBackend() {
  const char* forced = std::getenv("QUARRY_IO");
  if (forced != nullptr && std::string_view(forced) == "threads") return MakeThreadBackend();
  auto uring = MakeUringBackend();
  if (uring.ok()) return std::move(uring).value();
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) {
    LogWarn("io_uring is not to be had ({}); reading with a pool of threads", uring.status().message());
  }
  return MakeThreadBackend();
}

}  // namespace quarry
