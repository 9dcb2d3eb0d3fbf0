// SessionMemory: what a session was granted, and the regions of it that its client was handed.
//
// The server lets go of a region with what it is for, a client when it likes. Regions of the session that
// only its client still holds are paid from the session's budget while the session lives (PayForHeld), and
// from what sessions share afterwards (admission.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/service/shared_region.h"

namespace quarry {

// A region that the server has let go of, as far as it knows it.
struct LingeringRegion {
  std::shared_ptr<const RegionWitness> witness;
  uint64_t bytes = 0;
};

class SessionMemory : public MemoryBudget {
 public:
  static constexpr size_t kHeldMax = 16;  // regions; each is a descriptor of the server's

  using MemoryBudget::MemoryBudget;

  // The client has been handed the region. Thread-safe, as all of this.
  void HandedOut(const std::shared_ptr<SharedRegion>& region) {
    MutexLock lock(mutex_);
    handed_out_.push_back({region, {region->witness(), region->bytes().size()}});
  }

  // Pays for regions that have been closed and that the client still holds; kOutOfBudget when they are more
  // than there is room for.
  Status PayForHeld() {
    MutexLock lock(mutex_);
    held_.Release();
    uint64_t bytes = 0;
    size_t regions = 0;
    std::erase_if(handed_out_, [&](const HandedRegion& handed) {
      if (!handed.region.expired()) return false;
      if (!handed.as_lingering.witness->HeldByOthers()) return true;
      bytes += handed.as_lingering.bytes;
      ++regions;
      return false;
    });
    if (regions > kHeldMax) {
      return MakeStatus(
          Code::kOutOfBudget,
          "the client still has {} regions of streams that it has closed open or mapped: let go "
          "of some",
          regions);
    }
    if (bytes == 0) return Status::Ok();
    QUARRY_TRY(held_,
               Reserve(bytes, "regions of closed streams, which the client still has open or mapped,"));
    return Status::Ok();
  }

  // When nobody uses the memory any more: the regions that the client still holds. Those that the server has
  // not let go of are another session's.
  std::vector<LingeringRegion> TakeHeld() {
    MutexLock lock(mutex_);
    held_.Release();
    std::vector<LingeringRegion> held;
    for (HandedRegion& handed : handed_out_) {
      if (!handed.region.expired() || !handed.as_lingering.witness->HeldByOthers()) continue;
      held.push_back(std::move(handed.as_lingering));
    }
    handed_out_.clear();
    return held;
  }

 private:
  struct HandedRegion {
    std::weak_ptr<SharedRegion> region;
    LingeringRegion as_lingering;
  };
  Mutex mutex_;
  std::vector<HandedRegion> handed_out_ QUARRY_GUARDED_BY(mutex_);
  Reservation held_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
