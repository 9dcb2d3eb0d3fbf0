// SnapshotList: the snapshots of a store that somebody holds. With a life of its own: the last snapshot may go after the
// store, as long as nobody reads by it. Thread-safe. Private to this room.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/storage/deltas.h"

namespace quarry {

class SnapshotList : public std::enable_shared_from_this<SnapshotList> {
 public:
  // An empty snapshot that leaves the list when it goes.
  std::shared_ptr<Snapshot> Make();
  // Lists it, once its timestamp is known.
  void Add(const Snapshot& snapshot);
  std::vector<HeldSnapshots> Held() const;  // by timestamp

 private:
  struct Taken {
    uint64_t timestamp = 0;
    double seconds = 0;  // when
  };
  mutable Mutex mutex_;
  std::map<const Snapshot*, Taken> taken_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
