// Thread: how this process starts threads, and what it does when the system has none. No other file makes a
// std::thread (tests/lint): its constructor throws where RLIMIT_NPROC, the cgroup's pids.max or memory for a
// stack runs out, and a body that throws ends the process.
//
//   QUARRY_TRY(thread_, Thread::Start("metrics", [this] { Serve(); }, [this](const Status& why) { Fail(why);
//   }));
//
// A caller that can do with fewer threads starts as many as it gets: StartThreads where one is enough,
// RunOnThreads and BackgroundTask where the calling thread does the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "quarry/base/status.h"

namespace quarry {

// A running thread, or none. A resource: moves, and joins when it dies. Not thread-safe itself.
class [[nodiscard]] Thread {
 public:
  using Body = std::function<void()>;
  // Called by the thread with what ended its body: kOutOfBudget where memory ran out, kInternal for anything
  // else that was thrown. It must release whoever waits for the body. When memory runs out in it, it is
  // called again.
  using OnFailure = std::function<void(const Status&)>;

  Thread() = default;
  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other) noexcept {
    Join();
    thread_ = std::move(other.thread_);
    return *this;
  }
  ~Thread() { Join(); }

  // Runs `body` on a thread of this name (NameThread). kOutOfBudget when the system has none; nothing of
  // `body` has run then, and nothing is thrown.
  static Result<Thread> Start(std::string_view name, Body body, OnFailure on_failure);

  // Waits for the body to end. Does nothing without a thread.
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  bool joinable() const { return thread_.joinable(); }

 private:
  explicit Thread(std::thread thread) : thread_(std::move(thread)) {}

  std::thread thread_;
};

// Starts threads for body(0), body(1), ... body(count - 1), or for as many of them as the system allows, and
// appends them. OK when at least one started, and nothing is thrown: the bodies take their work from a queue
// that any one of them can empty.
Status StartThreads(std::string_view name, unsigned count, const std::function<void(unsigned)>& body,
                    const Thread::OnFailure& on_failure, std::vector<Thread>& threads);

// Calls body(0) on the calling thread and the others, up to `count`, each on a thread of its own as far as
// the system has them; returns when all have ended. The bodies share the work among themselves, so that a
// single one would do all of it. Returns the first failure in the order of bodies, exceptions included.
Status RunOnThreads(std::string_view name, unsigned count, const std::function<Status(unsigned)>& body);

// Work that runs beside its caller; where the system has no thread for it, Get does it. T is Status or a
// Result.
template <typename T>
class BackgroundTask {
 public:
  BackgroundTask() = default;
  BackgroundTask(BackgroundTask&&) noexcept = default;
  BackgroundTask& operator=(BackgroundTask&& other) noexcept {
    thread_ = std::move(other.thread_);  // joins ours, which uses our state
    state_ = std::move(other.state_);
    return *this;
  }
  // Waits for work that has begun, and drops work that has not.
  ~BackgroundTask() = default;

  static BackgroundTask Start(std::string_view name, std::function<T()> work) {
    BackgroundTask task;
    task.state_ = std::make_unique<State>();
    task.state_->work = std::move(work);
    auto thread = Thread::Start(
        name, [state = task.state_.get()] { state->result.emplace(state->work()); },
        [state = task.state_.get()](const Status& why) { state->result.emplace(why); });
    if (thread.ok()) task.thread_ = std::move(thread).value();
    return task;
  }

  bool valid() const { return state_ != nullptr; }
  // REQUIRES: valid(). Afterwards it no longer is.
  T Get() {
    const bool begun = thread_.joinable();
    thread_.Join();
    const std::unique_ptr<State> state = std::move(state_);
    return begun ? *std::move(state->result) : state->work();
  }

 private:
  struct State {
    std::function<T()> work;
    std::optional<T> result;
  };
  std::unique_ptr<State> state_;
  Thread thread_;  // last: dies before what it uses
};

// How many of `count` threads the system would run side by side now: they are started, and end. Call it
// before a library that starts threads by itself and does not survive a refusal.
unsigned ProbeThreads(unsigned count);

// For tests: the `first`-th start from now on (counted from 1) and the ones after it, `count` in all, fail as
// if the system had no thread. 0: none fails.
void FailThreadStarts(uint64_t first, uint64_t count = UINT64_MAX);
// How many starts have failed that way since.
uint64_t FailedThreadStarts();

}  // namespace quarry
