// Mutex, MutexLock, CondVar: std's, annotated for clang's thread-safety analysis (-Wthread-safety).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define QUARRY_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define QUARRY_THREAD_ANNOTATION(x)
#endif

#define QUARRY_GUARDED_BY(x) QUARRY_THREAD_ANNOTATION(guarded_by(x))
#define QUARRY_REQUIRES(...) QUARRY_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define QUARRY_EXCLUDES(...) QUARRY_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace quarry {

class QUARRY_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void Lock() QUARRY_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void Unlock() QUARRY_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  // Tells the analysis that the caller holds the mutex: needed in a lambda, which the analysis takes for a
  // function of its own.
  void AssertHeld() const QUARRY_THREAD_ANNOTATION(assert_capability(this)) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class QUARRY_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) QUARRY_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() QUARRY_THREAD_ANNOTATION(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // Atomically releases `mutex`, sleeps, and holds it again on return. It may wake spuriously: loop on the
  // condition at the call.
  void Wait(Mutex& mutex) QUARRY_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // The same, but waits no longer than `deadline`; false when it has passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline) QUARRY_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace quarry
