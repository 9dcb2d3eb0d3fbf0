#include "task_pool.h"

#include <cassert>

namespace quarry {

TaskPool::TaskPool(unsigned threads) {
  assert(threads > 0);
  for (unsigned thread = 1; thread < threads; thread++)
    workers_.emplace_back([this, thread] { Work(thread); });
}

TaskPool::~TaskPool() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  started_.NotifyAll();
  for (std::thread& worker : workers_) worker.join();
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
  const MutexLock lock(mutex_);
  while (working_ > 0) finished_.Wait(mutex_);
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
    (*task_)(task, thread);
  }
}

}  // namespace quarry
