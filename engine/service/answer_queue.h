// AnswerQueue: callbacks, called one after the other in the order in which they were added, and without any
// lock: so one may call whatever added it. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "quarry/base/exhaustion.h"
#include "quarry/base/mutex.h"

namespace quarry {

class AnswerQueue {
 public:
  void Add(std::function<void()> answer) {
    MutexLock lock(mutex_);
    answers_.push_back(std::move(answer));
  }

  // Calls what was added, unless somebody is just doing so (who then also calls what is new).
  void Run() {
    if (!Begin()) return;
    while (const std::function<void()> answer = Pop()) {
      // One that finds no memory must not keep the others.
      static_cast<void>(CatchExhaustion("an answer", [&] {
        answer();
        return Status::Ok();
      }));
    }
  }

 private:
  bool Begin() {
    MutexLock lock(mutex_);
    return !std::exchange(running_, true);
  }
  std::function<void()> Pop() {
    MutexLock lock(mutex_);
    if (answers_.empty()) {
      running_ = false;
      return nullptr;
    }
    std::function<void()> answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }

  Mutex mutex_;
  std::deque<std::function<void()>> answers_ QUARRY_GUARDED_BY(mutex_);
  bool running_ QUARRY_GUARDED_BY(mutex_) = false;
};

}  // namespace quarry
