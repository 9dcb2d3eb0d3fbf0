// Thread: how this process starts threads, and what it does when the system has none. No other file makes a
// std::thread (tests/lint): its constructor throws where RLIMIT_NPROC, the cgroup's pids.max or memory for a
// stack runs out, and a body that throws ends the process.
//
//   QUARRY_TRY(thread_, Thread::Start("metrics", [this] { Serve(); }, [this](const Status& why) { Fail(why);
//   }));
//
// Who can do with fewer threads starts as many as there are: StartThreads where one is enough, RunOnThreads
// and BackgroundTask where the calling thread does the rest.
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
  // Told by the thread what ended its body: kOutOfBudget where memory ran out, kInternal for anything else
  // that was thrown. Whoever waits for the body must be let go. Called again when memory runs out in it.
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

  // Waits for the body to end. No thread: nothing.
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  bool joinable() const { return thread_.joinable(); }

 private:
  explicit Thread(std::thread thread) : thread_(std::move(thread)) {}

  std::thread thread_;
};

// Starts threads for body(0), body(1), ... body(count - 1), and appends them; where the system has fewer,
// those. OK with one of them at least, and nothing is thrown: the bodies take their work from a queue that
// any of them empties.
Status StartThreads(std::string_view name, unsigned count, const std::function<void(unsigned)>& body,
                    const Thread::OnFailure& on_failure, std::vector<Thread>& threads);

// Calls body(0) on the calling thread and the others, up to `count`, each on one of its own, as far as the
// system has threads; returns when all have ended. The bodies share out the work, so that one of them would
// do all of it. The first failure in the order of bodies, thrown ones included.
Status RunOnThreads(std::string_view name, unsigned count, const std::function<Status(unsigned)>& body);

// Work that goes on beside its caller; where the system has no thread for it, Get does it. T: Status or a
// Result.
template <typename T>
class BackgroundTask {
 public:
  BackgroundTask() = default;
  BackgroundTask(BackgroundTask&&) = default;
  BackgroundTask& operator=(BackgroundTask&& other) noexcept {
    thread_ = std::move(other.thread_);  // joins ours, which uses our state
    state_ = std::move(other.state_);
    return *this;
  }
  // Waits for work that has begun; drops other.
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
  // REQUIRES: valid(), which it is not any more then.
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

// How many of `count` threads the system would start now, beside each other: they are started, and end.
// Before a library is called that starts threads by itself and does not survive that it cannot.
unsigned ProbeThreads(unsigned count);

// For tests: of all starts from now on, the `first`-th (from 1) and as many as `count` from there fail as if
// the system had no thread. 0: none fails.
void FailThreadStarts(uint64_t first, uint64_t count = UINT64_MAX);
// How many of them have failed since.
uint64_t FailedThreadStarts();

}  // namespace quarry
