#include "task_pool.h"

#include <cassert>
#include <new>

namespace quarry {

TaskPool::TaskPool(unsigned threads) {
  assert(threads > 0);
  static_cast<void>(StartThreads(
      "compute", threads - 1, [this](unsigned i) { Work(i + 1); }, [](const Status&) {}, workers_));
}

TaskPool::~TaskPool() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  started_.NotifyAll();
  workers_.clear();
}

void TaskPool::Run(uint32_t task_count, const Task& task) {
  {
    const MutexLock lock(mutex_);
    task_ = &task;
    task_count_ = task_count;
    next_task_.store(0, std::memory_order_relaxed);
    working_ = static_cast<unsigned>(workers_.size());
    run_++;
  }
  started_.NotifyAll();
  TakeTasks(0);
  {
    const MutexLock lock(mutex_);
    while (working_ > 0) finished_.Wait(mutex_);
  }
  if (exhausted_.exchange(false)) throw std::bad_alloc();
}

void TaskPool::Work(unsigned thread) {
  for (uint64_t last_run = 0;; last_run++) {
    {
      const MutexLock lock(mutex_);
      while (run_ == last_run && !stopping_) started_.Wait(mutex_);
      if (stopping_) return;
    }
    TakeTasks(thread);
    const MutexLock lock(mutex_);
    if (--working_ == 0) finished_.NotifyOne();
  }
}

void TaskPool::TakeTasks(unsigned thread) {
  while (true) {
    const uint32_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= task_count_) return;
    try {
      (*task_)(task, thread);
    } catch (const std::bad_alloc&) {
      exhausted_ = true;
    }
  }
}

}  // namespace quarry
