#include "snapshot_list.h"

#include <algorithm>

#include "quarry/base/process.h"

namespace quarry {

std::shared_ptr<Snapshot> SnapshotList::Make() {
  return {new Snapshot, [list = shared_from_this()](Snapshot* gone) {
            {
              MutexLock lock(list->mutex_);
              list->taken_.erase(gone);
            }
            delete gone;  // its files go with it, which is none of the latch's business
          }};
}

void SnapshotList::Add(const Snapshot& snapshot) {
  MutexLock lock(mutex_);
  taken_.emplace(&snapshot, Taken{snapshot.timestamp, MonotonicSeconds()});
}

std::vector<HeldSnapshots> SnapshotList::Held() const {
  const double now = MonotonicSeconds();
  std::map<uint64_t, HeldSnapshots> by_timestamp;
  MutexLock lock(mutex_);
  for (const auto& [snapshot, taken] : taken_) {
    HeldSnapshots& held = by_timestamp[taken.timestamp];
    held.timestamp = taken.timestamp;
    ++held.count;
    held.oldest_seconds = std::max(held.oldest_seconds, now - taken.seconds);
  }
  std::vector<HeldSnapshots> all;
  for (const auto& [timestamp, held] : by_timestamp) all.push_back(held);
  return all;
}

}  // namespace quarry
