// Deadlines, and waiting until one. Private to this library.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>

#include "quarry/base/mutex.h"

namespace quarry::client {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// What is beyond a year is as good as never, and adds up without overflow.
inline Deadline DeadlineIn(double seconds) {
  constexpr double kYearSeconds = 365.0 * 24 * 3600;
  const std::chrono::duration<double> wait(std::clamp(seconds, 0.0, kYearSeconds));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(wait);
}

inline bool HasPassed(Deadline deadline) { return Clock::now() >= deadline; }

// A CondVar whose waits end.
class DeadlineCondVar {
 public:
  // As CondVar::Wait, but not beyond `deadline`: false when it has passed.
  bool WaitUntil(Mutex& mutex, Deadline deadline) QUARRY_REQUIRES(mutex) {
    Lockable lockable{mutex};
    return condition_.wait_until(lockable, deadline) == std::cv_status::no_timeout;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  // A Mutex under the names that the standard library calls.
  struct Lockable {
    Mutex& mutex;
    void lock() { mutex.Lock(); }
    void unlock() { mutex.Unlock(); }
  };
  std::condition_variable_any condition_;
};

}  // namespace quarry::client
