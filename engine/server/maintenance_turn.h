// MaintenanceTurn: a server does one maintenance task at a time, whoever asks, so that clients cannot pile
// them up, and no two of them meet at one table or layout.
//
// Thread-safe. Outlives its holds.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"

namespace quarry {

class MaintenanceTurn {
 public:
  // Ends with its last owner.
  using Hold = std::shared_ptr<const void>;

  // `task`: what it is for, in words. kBusy says what has it.
  Result<Hold> Take(std::string task) {
    MutexLock lock(mutex_);
    if (current_) {
      return MakeStatus(Code::kBusy, "{} is under way at this server, which does one at a time: wait for it",
                        *current_);
    }
    Hold hold(this, [](MaintenanceTurn* turn) { turn->End(); });
    current_ = std::move(task);
    return hold;
  }

 private:
  void End() {
    MutexLock lock(mutex_);
    current_.reset();
  }

  Mutex mutex_;
  std::optional<std::string> current_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
