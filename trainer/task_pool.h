// TaskPool: a few threads that share out the independent tasks of a step of about a millisecond. Starting
// threads for it would cost too much, and threads that spin between steps would take the cores of the
// pipeline.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"

namespace quarry {

class TaskPool {
 public:
  using Task = std::function<void(uint32_t task, unsigned thread)>;

  // The caller of Run is one of the threads, and the only one where the system has no others. REQUIRES:
  // threads > 0
  explicit TaskPool(unsigned threads);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  unsigned threads() const { return static_cast<unsigned>(workers_.size()) + 1; }

  // Runs task(i, thread) for each i below task_count, where thread < threads() tells the threads apart; which
  // thread runs which task is left to chance. Returns when all are done. One call at a time. Tasks throw
  // nothing but std::bad_alloc, and so does this once all of them have ended.
  void Run(uint32_t task_count, const Task& task);

 private:
  void Work(unsigned thread);
  void TakeTasks(unsigned thread);

  Mutex mutex_;
  CondVar started_, finished_;
  uint64_t run_ QUARRY_GUARDED_BY(mutex_) = 0;      // number of the current Run
  unsigned working_ QUARRY_GUARDED_BY(mutex_) = 0;  // workers that have not finished it
  bool stopping_ QUARRY_GUARDED_BY(mutex_) = false;
  // Written while no worker works, published by the mutex.
  const Task* task_ = nullptr;
  uint32_t task_count_ = 0;
  std::atomic<uint32_t> next_task_ = 0;
  std::atomic<bool> exhausted_ = false;  // a task found no memory

  std::vector<Thread> workers_;  // last: they use what is above
};

}  // namespace quarry
