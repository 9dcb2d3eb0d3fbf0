#include "quarry/embedding/oac.h"

#include <cassert>

namespace quarry {

CommitTracker::Ticket CommitTracker::Begin() {
  MutexLock lock(mutex_);
  outstanding_.emplace(next_id_, mfct_);
  // MFCTs never fall, so the oldest batch under way has the least.
  return {.id = next_id_++, .mfct = mfct_, .safe_to_evict = outstanding_.begin()->second};
}

void CommitTracker::Finish(const Ticket& ticket, int64_t timestamp) {
  MutexLock lock(mutex_);
  assert(timestamp > mfct_);
  outstanding_.erase(ticket.id);
  finished_.insert(timestamp);
  while (!finished_.empty() && *finished_.begin() == mfct_ + 1) {
    finished_.erase(finished_.begin());
    ++mfct_;
  }
}

void CommitTracker::Abandon(const Ticket& ticket) {
  MutexLock lock(mutex_);
  outstanding_.erase(ticket.id);
}

int64_t CommitTracker::mfct() const {
  MutexLock lock(mutex_);
  return mfct_;
}

size_t CommitTracker::outstanding() const {
  MutexLock lock(mutex_);
  return outstanding_.size();
}

}  // namespace quarry
