// Who may make runs of edges, fold them or merge them (Store::HoldRuns). Private to this room.
#pragma once

#include <array>
#include <memory>

#include "quarry/base/mutex.h"
#include "quarry/storage/store.h"

namespace quarry {

class RunsRights {
 public:
  std::shared_ptr<Store::RunsHold> Hold(Store::RunsRight right) QUARRY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    std::weak_ptr<Store::RunsHold>& holder = holders_[static_cast<size_t>(right)];
    if (!holder.expired()) return nullptr;
    auto held = std::make_shared<Store::RunsHold>();
    holder = held;
    return held;
  }
  uint64_t FoldedUntil() const QUARRY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto fold = holders_[static_cast<size_t>(Store::RunsRight::kFold)].lock();
    return fold == nullptr ? 0 : fold->folds_until.load();
  }

 private:
  mutable Mutex mutex_;
  std::array<std::weak_ptr<Store::RunsHold>, 3> holders_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
