// BoundedQueue<T>: joins two pipeline stages. It has a limit, can be closed (no more will come) and cancelled
// (what is there is forgotten), and accounts for the time that each side waited.
//
// Thread-safe for any number of producers and consumers. It allocates when it is made and never again, since
// destructors push what they give back.
//
//   kOpen -> kClosed     [Close]   pops drain what is left, then end; pushes are refused
//   kOpen -> kCancelled  [Cancel]  pops and pushes end at once; contents are destroyed
//   kClosed -> kCancelled [Cancel]
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "quarry/base/mutex.h"

namespace quarry {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : items_(capacity) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Blocks while the queue is full. Returns false (and drops `item`) once it is closed or cancelled.
  bool Push(T item) {
    MutexLock lock(mutex_);
    if (count_ == items_.size() && state_ == State::kOpen) {
      const auto start = Clock::now();
      while (count_ == items_.size() && state_ == State::kOpen) changed_.Wait(mutex_);
      push_wait_ += Clock::now() - start;
    }
    if (state_ != State::kOpen) return false;
    items_[(first_ + count_++) % items_.size()].emplace(std::move(item));
    changed_.NotifyAll();
    return true;
  }

  // Blocks while the queue is empty. Returns nothing once it is closed and drained, or cancelled.
  std::optional<T> Pop() {
    MutexLock lock(mutex_);
    if (count_ == 0 && state_ == State::kOpen) {
      const auto start = Clock::now();
      while (count_ == 0 && state_ == State::kOpen) changed_.Wait(mutex_);
      pop_wait_ += Clock::now() - start;
    }
    return state_ == State::kCancelled ? std::nullopt : Take();
  }

  // Like Pop, but returns nothing when the queue is empty.
  std::optional<T> TryPop() {
    MutexLock lock(mutex_);
    return state_ == State::kCancelled ? std::nullopt : Take();
  }

  void Close() {
    MutexLock lock(mutex_);
    if (state_ == State::kOpen) state_ = State::kClosed;
    changed_.NotifyAll();
  }

  void Cancel() {
    {
      MutexLock lock(mutex_);
      state_ = State::kCancelled;
      changed_.NotifyAll();
    }
    while (Drop()) {
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

  // Returns false when there is nothing. The item is destroyed outside the latch, since its destructor may
  // take other latches.
  bool Drop() {
    std::optional<T> item;
    MutexLock lock(mutex_);
    item = Take();
    return item.has_value();
  }

  std::optional<T> Take() QUARRY_REQUIRES(mutex_) {
    if (count_ == 0) return std::nullopt;
    std::optional<T> item = std::exchange(items_[first_], std::nullopt);
    first_ = (first_ + 1) % items_.size();
    --count_;
    changed_.NotifyAll();
    return item;
  }

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::optional<T>> items_ QUARRY_GUARDED_BY(mutex_);  // a ring; its size is the limit
  size_t first_ QUARRY_GUARDED_BY(mutex_) = 0;
  size_t count_ QUARRY_GUARDED_BY(mutex_) = 0;
  State state_ QUARRY_GUARDED_BY(mutex_) = State::kOpen;
  Clock::duration push_wait_ QUARRY_GUARDED_BY(mutex_){};
  Clock::duration pop_wait_ QUARRY_GUARDED_BY(mutex_){};
};

}  // namespace quarry
