// Admission: who gets how much of the memory that sessions share.
//
// A session asks for some bytes, and for a least that would do; it is given what there is for its user
// (user_shares.h), up to what it asks for, at once, or when others have given back enough, in an order that
// starves nobody (admission_queue.h).
//
// Regions of sessions that have ended stay on their user's account as long as a process has them open or
// mapped, since they take memory as long. Nobody tells the server when that ends: it looks with every call,
// and somebody has to call Look while others wait.
//
// Thread-safe; answers come from any thread, also from within the calls, and hold no lock.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "admission_queue.h"
#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "session_memory.h"
#include "user_shares.h"

namespace quarry {

class Admission {
 public:
  using Request = AdmissionQueue::Request;
  static constexpr size_t kLingeringMax = 64;  // regions of a user; each is a descriptor of the server's

  // `budget`: of all sessions together, which nobody else draws on; it outlives the grants. `users`: who may
  // come.
  explicit Admission(MemoryBudget& budget, const std::vector<uid_t>& users = {})
      : shared_(std::make_shared<Shared>(budget, users)) {}

  // A budget of the session's own, whose limit is what was granted; it is given back when the last owner of
  // the pointer dies.
  using Grant = std::shared_ptr<SessionMemory>;
  using Answer = std::function<void(Result<Grant>)>;

  // kOutOfBudget when processes of the user hold regions of so many ended sessions that another session might
  // take the server's last descriptors.
  Status CheckHeld(uid_t user);
  // The grant, or kOutOfBudget with what there is.
  Result<Grant> Ask(const Request& request);
  // Waits for it: the answer comes with a grant, or never, when it is given up. Returns a ticket.
  uint64_t Wait(const Request& request, Answer answer);
  // Ends a wait: kOutOfBudget with what there is, and the answer is not called any more; OK when it has been.
  Status GiveUp(uint64_t ticket);
  // Serves who waits for regions that have been let go of meanwhile, or for another's turn to end.
  void Look() { Serve(shared_); }
  // Memory of regions of sessions that have ended.
  uint64_t lingering_bytes();

 private:
  struct Lingering {
    uid_t user = 0;
    LingeringRegion region;
  };
  // Grants keep it: they may outlive the sessions, and this object.
  struct Shared {
    Shared(MemoryBudget& whole, const std::vector<uid_t>& users)
        : budget(whole), shares(whole.limit_bytes(), users) {}
    MemoryBudget& budget;
    Mutex mutex;
    UserShares shares QUARRY_GUARDED_BY(mutex);  // what is granted, and what lingers
    AdmissionQueue queue QUARRY_GUARDED_BY(mutex);
    std::map<uint64_t, Answer> answers QUARRY_GUARDED_BY(mutex);  // by ticket
    std::vector<Lingering> lingering QUARRY_GUARDED_BY(mutex);
    MemoryBudget::Reservation lingering_paid QUARRY_GUARDED_BY(mutex);
  };
  struct Held;

  static Grant Make(const std::shared_ptr<Shared>& shared, uid_t user, uint64_t bytes)
      QUARRY_REQUIRES(shared->mutex);
  static void ForgetLetGo(Shared& shared) QUARRY_REQUIRES(shared.mutex);
  static void PayForLingering(Shared& shared) QUARRY_REQUIRES(shared.mutex);
  static uint64_t LingeringOf(const Shared& shared, uid_t user, size_t* regions)
      QUARRY_REQUIRES(shared.mutex);
  static std::string WhatThereIs(const Shared& shared, uid_t user) QUARRY_REQUIRES(shared.mutex);
  static void Serve(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace quarry
