// A CondVar whose waits end.
#pragma once

#include <chrono>
#include <condition_variable>

#include "quarry/base/mutex.h"

namespace quarry {

class TimedCondVar {
 public:
  using Clock = std::chrono::steady_clock;

  // As CondVar.
  void Wait(Mutex& mutex) QUARRY_REQUIRES(mutex) {
    Lockable lockable{mutex};
    condition_.wait(lockable);
  }
  // The same, but not beyond `deadline`.
  void WaitUntil(Mutex& mutex, Clock::time_point deadline) QUARRY_REQUIRES(mutex) {
    Lockable lockable{mutex};
    condition_.wait_until(lockable, deadline);
  }
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

}  // namespace quarry
