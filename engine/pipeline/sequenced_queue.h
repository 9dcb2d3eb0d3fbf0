// SequencedQueue<T>: joins two stages of a pass over a known number of items; pops in the order of arrival,
// or of the items' numbers.
//
// It has no limit of its own: what it holds is bounded by the frames of the pass (live_stream.h). So a push
// never blocks, and in order of numbers item i can never be kept out by items after it. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "quarry/base/mutex.h"
#include "quarry/base/process.h"

namespace quarry {

template <typename T>
class SequencedQueue {
 public:
  // `count` items will come, numbered 0..count - 1.
  SequencedQueue(uint64_t count, bool ordered) : count_(count), ordered_(ordered) {}
  SequencedQueue(const SequencedQueue&) = delete;
  SequencedQueue& operator=(const SequencedQueue&) = delete;

  // False (and `item` is destroyed) once cancelled.
  bool Push(uint64_t number, T item) {
    MutexLock lock(mutex_);
    if (cancelled_) return false;
    items_.emplace(ordered_ ? number : arrived_++, std::move(item));
    changed_.NotifyAll();
    return true;
  }

  // Blocks until the next item is there. Nothing after `count` items, or once cancelled.
  std::optional<T> Pop() {
    MutexLock lock(mutex_);
    const double start = MonotonicSeconds();
    while (!cancelled_ && next_ < count_ && (items_.empty() || items_.begin()->first != next_)) {
      changed_.Wait(mutex_);
    }
    wait_seconds_ += MonotonicSeconds() - start;
    if (cancelled_ || next_ == count_) return std::nullopt;
    std::optional<T> item(std::move(items_.begin()->second));
    items_.erase(items_.begin());
    if (++next_ == count_) changed_.NotifyAll();
    return item;
  }

  void Cancel() {
    std::map<uint64_t, T> dropped;  // destroyed outside the latch: an item's destructor may take others
    MutexLock lock(mutex_);
    cancelled_ = true;
    dropped.swap(items_);
    changed_.NotifyAll();
  }

  // Seconds that consumers have waited so far, summed over threads.
  double wait_seconds() const {
    MutexLock lock(mutex_);
    return wait_seconds_;
  }

 private:
  const uint64_t count_;
  const bool ordered_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, T> items_ QUARRY_GUARDED_BY(mutex_);  // by number or arrival
  uint64_t arrived_ QUARRY_GUARDED_BY(mutex_) = 0;
  uint64_t next_ QUARRY_GUARDED_BY(mutex_) = 0;
  bool cancelled_ QUARRY_GUARDED_BY(mutex_) = false;
  double wait_seconds_ QUARRY_GUARDED_BY(mutex_) = 0;
};

}  // namespace quarry
