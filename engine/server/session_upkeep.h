// Session::Upkeep: what keeps the database in order, on a thread of its own since it may take hours, and its manifest.
#pragma once

#include <atomic>
#include <cstdint>

#include "quarry/base/progress.h"
#include "session_bulk.h"

namespace quarry {

class Session::Upkeep final : Part {
 public:
  explicit Upkeep(Session& session) : Part(session) {}
  void On(uint64_t id, const wire::Maintain& request);
  void On(uint64_t id, const wire::ReadManifest& request);

 private:
  Status MayMaintain(const wire::MaintenanceTask& task) const;
  ProgressFunction ProgressOf(uint64_t id, const std::atomic<bool>& cancelled);
};

}  // namespace quarry
