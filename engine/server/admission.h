// Admission: who gets how much of the memory that sessions share.
//
// A session asks for some bytes, and for a least that would do; it is given what there is, up to what it asks
// for, at once, or when others have given back enough. Who waits is served in order of arrival: a small one
// does not overtake a large one, which would wait for ever.
//
// Thread-safe; answers come from any thread, also from within the call, and hold no lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"

namespace quarry {

class Admission {
 public:
  // `budget`: of all sessions together; it outlives the grants.
  explicit Admission(MemoryBudget& budget) : shared_(std::make_shared<Shared>(budget)) {}

  // A budget of the session's own, whose limit is what was granted; it is given back when the last owner of
  // the pointer dies.
  using Grant = std::shared_ptr<MemoryBudget>;
  using Answer = std::function<void(Result<Grant>)>;

  // The grant, or kOutOfBudget with what there is.
  Result<Grant> Ask(uint64_t bytes, uint64_t bytes_min);
  // Waits for it: the answer comes with a grant, or never, when it is given up. Returns a ticket.
  uint64_t Wait(uint64_t bytes, uint64_t bytes_min, Answer answer);
  // Ends a wait: kOutOfBudget with what there is, and the answer is not called any more; OK when it has been.
  Status GiveUp(uint64_t ticket);

 private:
  struct Waiter {
    uint64_t ticket;
    uint64_t bytes, bytes_min;
    Answer answer;
  };
  // Grants keep it: they may outlive the sessions, and this object.
  struct Shared {
    explicit Shared(MemoryBudget& whole) : budget(whole) {}
    MemoryBudget& budget;
    Mutex mutex;
    uint64_t tickets QUARRY_GUARDED_BY(mutex) = 0;
    std::deque<Waiter> waiters QUARRY_GUARDED_BY(mutex);
  };
  struct Held;

  static Result<Grant> Take(const std::shared_ptr<Shared>& shared, uint64_t bytes, uint64_t bytes_min)
      QUARRY_REQUIRES(shared->mutex);
  static void Serve(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace quarry
