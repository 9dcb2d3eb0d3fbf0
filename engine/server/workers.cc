#include "workers.h"

#include <utility>

#include "quarry/base/trace.h"

namespace quarry {

Workers::Workers(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) {
    threads_.emplace_back([this, i] {
      NameThread("work");
      Run(i);
    });
  }
}

Workers::~Workers() { Stop(); }

void Workers::Submit(uint64_t session, Task task) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  queues_[session].push_back(std::move(task));
  changed_.NotifyOne();
}

void Workers::Forget(uint64_t session) {
  std::deque<Task> dropped;  // destroyed behind the lock: a task may own anything
  MutexLock lock(mutex_);
  const auto found = queues_.find(session);
  if (found == queues_.end()) return;
  dropped.swap(found->second);
  queues_.erase(found);
}

void Workers::Stop() {
  std::map<uint64_t, std::deque<Task>> dropped;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    dropped.swap(queues_);
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

size_t Workers::queued() const {
  MutexLock lock(mutex_);
  size_t tasks = 0;
  for (const auto& [session, queue] : queues_) tasks += queue.size();
  return tasks;
}

// The next task of the first session behind the last one that has no thread.
bool Workers::Take(uint64_t& session, Task& task) {
  auto queue = queues_.upper_bound(turn_);
  for (size_t looked = 0; looked < queues_.size(); ++looked, ++queue) {
    if (queue == queues_.end()) queue = queues_.begin();
    if (running_.contains(queue->first)) continue;
    session = turn_ = queue->first;
    task = std::move(queue->second.front());
    queue->second.pop_front();
    if (queue->second.empty()) queues_.erase(queue);
    running_.insert(session);
    return true;
  }
  return false;
}

void Workers::Run(unsigned thread) {
  while (true) {
    uint64_t session = 0;
    Task task;
    {
      MutexLock lock(mutex_);
      while (!stopped_ && !Take(session, task)) changed_.Wait(mutex_);
      if (stopped_) break;
    }
    task(thread);
    task = nullptr;  // before it counts as done: what it owns is free then
    MutexLock lock(mutex_);
    running_.erase(session);
  }
}

}  // namespace quarry
