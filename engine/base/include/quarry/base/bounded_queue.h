// BoundedQueue<T>: joins two pipeline stages; has a limit, can be closed (no more will come) and cancelled
// (forget what is there), and accounts the time that each side waited.
//
// Thread-safe for any number of producers and consumers.
//
//   kOpen -> kClosed     [Close]   pops drain what is left, then end; pushes are refused
//   kOpen -> kCancelled  [Cancel]  pops and pushes end at once; contents are destroyed
//   kClosed -> kCancelled [Cancel]
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "quarry/base/mutex.h"

namespace quarry {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Blocks while full. False (and `item` is dropped) once closed or cancelled.
  bool Push(T item) {
    MutexLock lock(mutex_);
    if (items_.size() >= capacity_ && state_ == State::kOpen) {
      const auto start = Clock::now();
      while (items_.size() >= capacity_ && state_ == State::kOpen) changed_.Wait(mutex_);
      push_wait_ += Clock::now() - start;
    }
    if (state_ != State::kOpen) return false;
    items_.push_back(std::move(item));
    changed_.NotifyAll();
    return true;
  }

  // Blocks while empty. Nothing once closed and drained, or cancelled.
  std::optional<T> Pop() {
    MutexLock lock(mutex_);
    if (items_.empty() && state_ == State::kOpen) {
      const auto start = Clock::now();
      while (items_.empty() && state_ == State::kOpen) changed_.Wait(mutex_);
      pop_wait_ += Clock::now() - start;
    }
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    changed_.NotifyAll();
    return item;
  }

  // As Pop, but nothing while empty.
  std::optional<T> TryPop() {
    MutexLock lock(mutex_);
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    changed_.NotifyAll();
    return item;
  }

  void Close() {
    MutexLock lock(mutex_);
    if (state_ == State::kOpen) state_ = State::kClosed;
    changed_.NotifyAll();
  }

  void Cancel() {
    std::deque<T> dropped;  // destroyed outside the latch: an item's destructor may take others
    {
      MutexLock lock(mutex_);
      state_ = State::kCancelled;
      dropped.swap(items_);
      changed_.NotifyAll();
    }
  }

  // Seconds that producers (push) and consumers (pop) have waited so far, summed over threads.
  double push_wait_seconds() const {
    MutexLock lock(mutex_);
    return std::chrono::duration<double>(push_wait_).count();
  }
  double pop_wait_seconds() const {
    MutexLock lock(mutex_);
    return std::chrono::duration<double>(pop_wait_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kOpen, kClosed, kCancelled };

  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<T> items_ QUARRY_GUARDED_BY(mutex_);
  State state_ QUARRY_GUARDED_BY(mutex_) = State::kOpen;
  Clock::duration push_wait_ QUARRY_GUARDED_BY(mutex_){};
  Clock::duration pop_wait_ QUARRY_GUARDED_BY(mutex_){};
};

}  // namespace quarry
