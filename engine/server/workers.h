// Workers: threads for requests that read, compute or write. Each session has a queue of its own; the threads
// take from one queue after the other, and a session has one thread at a time: so who asks for much waits for
// itself. Long work is to be done in pieces, each a task that submits the next.
//
// A session's queue is as long as the requests that it may have outstanding, so all of them are bounded.
// Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"

namespace quarry {

class Workers {
 public:
  // Given the number of the thread that runs it, from 0.
  using Task = std::function<void(unsigned)>;

  Workers() = default;
  ~Workers() { Stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Starts as many of `threads` as the system has; kOutOfBudget where it has none. 0: nobody submits
  // anything.
  Status Start(unsigned threads);
  // Dropped (destroyed without being run) once stopped.
  void Submit(uint64_t session, Task task);
  // Drops what the session has in its queue.
  void Forget(uint64_t session);
  // Drops all that is queued, and waits for what runs.
  void Stop();
  size_t queued() const;

 private:
  void Run(unsigned thread);
  bool RunNext(unsigned thread);
  bool Take(uint64_t& session, Task& task) QUARRY_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, std::deque<Task>> queues_ QUARRY_GUARDED_BY(mutex_);  // none is empty
  std::set<uint64_t> running_ QUARRY_GUARDED_BY(mutex_);                   // sessions that have a thread
  uint64_t turn_ QUARRY_GUARDED_BY(mutex_) = 0;                            // the session that was served last
  bool stopped_ QUARRY_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

}  // namespace quarry
