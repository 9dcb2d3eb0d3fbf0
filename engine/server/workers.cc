#include "workers.h"

#include <utility>

#include "quarry/base/exhaustion.h"
#include "quarry/base/log.h"

namespace quarry {

Status Workers::Start(unsigned threads) {
  return StartThreads(
      "work", threads, [this](unsigned i) { Run(i); }, [](const Status&) {}, threads_);
}

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
  threads_.clear();
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
    running_.insert(queue->first);  // first: it may find no memory
    session = turn_ = queue->first;
    task = std::move(queue->second.front());
    queue->second.pop_front();
    if (queue->second.empty()) queues_.erase(queue);
    return true;
  }
  return false;
}

void Workers::Run(unsigned thread) {
  while (true) {
    bool stopped = false;
    // A task sees to its own end; what it lets through must not take the thread with it.
    const Status status = CatchExhaustion("a request", [&] {
      stopped = !RunNext(thread);
      return Status::Ok();
    });
    if (stopped) return;
    if (!status.ok()) Insist([&] { LogWarn("{}", status.message()); });
  }
}

// False once stopped.
bool Workers::RunNext(unsigned thread) {
  uint64_t session = 0;
  Task task;
  {
    MutexLock lock(mutex_);
    while (!stopped_ && !Take(session, task)) changed_.Wait(mutex_);
    if (stopped_) return false;
  }
  const struct Running {
    ~Running() {
      MutexLock lock(workers.mutex_);
      workers.running_.erase(session);
    }
    Workers& workers;
    const uint64_t session;
  } running{*this, session};
  const Task own = std::move(task);  // dies before it counts as done: what it owns is free then
  own(thread);
  return true;
}

}  // namespace quarry
