#include "quarry/embedding/oac.h"

#include <cassert>
#include <map>
#include <set>

#include "quarry/base/mutex.h"

namespace quarry {
namespace {

class CommitTrackerImpl final : public CommitTracker {
 public:
  explicit CommitTrackerImpl(int64_t last_finished) : mfct_(last_finished) {}

  Ticket Begin() override {
    MutexLock lock(mutex_);
    outstanding_.emplace(next_id_, mfct_);
    // MFCTs never fall, so the oldest batch under way has the least.
    return {.id = next_id_++, .mfct = mfct_, .safe_to_evict = outstanding_.begin()->second};
  }

  void Finish(const Ticket& ticket, int64_t timestamp) override {
    MutexLock lock(mutex_);
    assert(timestamp > mfct_);
    outstanding_.erase(ticket.id);
    finished_.insert(timestamp);
    while (!finished_.empty() && *finished_.begin() == mfct_ + 1) {
      finished_.erase(finished_.begin());
      ++mfct_;
    }
  }

  void Abandon(const Ticket& ticket) override {
    MutexLock lock(mutex_);
    outstanding_.erase(ticket.id);
  }

  int64_t mfct() const override {
    MutexLock lock(mutex_);
    return mfct_;
  }
  size_t outstanding() const override {
    MutexLock lock(mutex_);
    return outstanding_.size();
  }

 private:
  mutable Mutex mutex_;
  int64_t mfct_ QUARRY_GUARDED_BY(mutex_);
  std::set<int64_t> finished_ QUARRY_GUARDED_BY(mutex_);               // beyond mfct_ + 1
  std::map<uint64_t, int64_t> outstanding_ QUARRY_GUARDED_BY(mutex_);  // id -> MFCT
  uint64_t next_id_ QUARRY_GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::unique_ptr<CommitTracker> MakeCommitTracker(int64_t last_finished) {
  return std::make_unique<CommitTrackerImpl>(last_finished);
}

}  // namespace quarry
