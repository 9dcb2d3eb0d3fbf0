// The fallback: a pool of threads that block in pread and pwrite. 32 of them reach one ring's rate on virtio
// NVMe.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <string_view>
#include <thread>
#include <vector>

#include "posix_files.h"
#include "quarry/base/log.h"
#include "quarry/base/mutex.h"

namespace quarry {
namespace {

// Where completions of one port gather. Shared with the jobs in flight, so that a port may die first.
struct Mailbox {
  Mutex mutex;
  CondVar arrived;
  std::deque<RawCompletion> completions QUARRY_GUARDED_BY(mutex);
  size_t in_flight QUARRY_GUARDED_BY(mutex) = 0;
};

struct Job {
  RawRequest request;
  std::shared_ptr<Mailbox> mailbox;
};

// The threads and their queue. Not bounded by itself: ports are, by their depth.
class Pool {
 public:
  explicit Pool(unsigned threads) {
    for (unsigned i = 0; i < threads; i++) threads_.emplace_back([this] { Run(); });
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    work_.NotifyAll();
    for (std::thread& thread : threads_) thread.join();
  }

  void Add(Job job) {
    {
      MutexLock lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    work_.NotifyOne();
  }

 private:
  void Run() {
    while (true) {
      Job job;
      {
        MutexLock lock(mutex_);
        while (jobs_.empty() && !stopping_) work_.Wait(mutex_);
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      const RawRequest& r = job.request;
      const auto offset = static_cast<off_t>(r.offset);
      const ssize_t n = r.kind == RawRequest::Kind::kRead ? pread(r.descriptor, r.buffer, r.bytes, offset)
                                                          : pwrite(r.descriptor, r.buffer, r.bytes, offset);
      const auto result = static_cast<int32_t>(n < 0 ? -errno : n);
      MutexLock lock(job.mailbox->mutex);
      job.mailbox->completions.push_back({.user_data = r.user_data, .result = result});
      job.mailbox->in_flight--;
      job.mailbox->arrived.NotifyAll();
    }
  }

  Mutex mutex_;
  CondVar work_;
  std::deque<Job> jobs_ QUARRY_GUARDED_BY(mutex_);
  bool stopping_ QUARRY_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

class ThreadPort final : public IoPort {
 public:
  explicit ThreadPort(Pool& pool) : pool_(pool), mailbox_(std::make_shared<Mailbox>()) {}
  ThreadPort(const ThreadPort&) = delete;
  ThreadPort& operator=(const ThreadPort&) = delete;
  ~ThreadPort() override {  // no buffer may be written after this
    MutexLock lock(mailbox_->mutex);
    while (mailbox_->in_flight > 0) mailbox_->arrived.Wait(mailbox_->mutex);
  }

  Status Submit(std::span<const RawRequest> requests) override {
    {
      MutexLock lock(mailbox_->mutex);
      mailbox_->in_flight += requests.size();
    }
    for (const RawRequest& request : requests) pool_.Add({request, mailbox_});
    return Status::Ok();
  }

  Result<size_t> Wait(size_t count_min, std::span<RawCompletion> out) override {
    MutexLock lock(mailbox_->mutex);
    while (mailbox_->completions.size() < count_min) mailbox_->arrived.Wait(mailbox_->mutex);
    const size_t count = std::min(out.size(), mailbox_->completions.size());
    std::copy_n(mailbox_->completions.begin(), count, out.begin());
    mailbox_->completions.erase(mailbox_->completions.begin(),
                                mailbox_->completions.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }

 private:
  Pool& pool_;
  const std::shared_ptr<Mailbox> mailbox_;
};

class ThreadBackend final : public PosixFiles {
 public:
  explicit ThreadBackend(unsigned threads) : pool_(threads) {}
  std::string_view name() const override { return "threads"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned) override {
    return std::unique_ptr<IoPort>(std::make_unique<ThreadPort>(pool_));
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
  if (forced == nullptr || std::string_view(forced) != "threads") {
    auto uring = MakeUringBackend();
    if (uring.ok()) return std::move(uring).value();
    LogWarn("io_uring is not to be had ({}); reading with a pool of threads", uring.status().message());
  }
  return MakeThreadBackend();
}

}  // namespace quarry
