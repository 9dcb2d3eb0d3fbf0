// Database: an open database with everything that serves it; what an embedding program starts from.
//
// The composition root: builds the I/O backend, the store and the memory budget and hands them to the roads.
// Roads that it opens are the caller's and must be gone before it. Neither copied nor moved; thread-safe,
// except that one road at a time should be opened (each plans with what the budget has left).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/storage/store.h"

namespace quarry {

struct DatabaseOptions {
  // The most that the engine may hold: caches, buffers, topology, batches in flight. 0 = 80 % of what the
  // memory cgroup or the machine allows.
  uint64_t memory_bytes = 0;
  // What transfers go through; empty = MakeDefaultBackend().
  std::unique_ptr<IoBackend> backend;
};

class Database {
 public:
  // As Store::Open: kNotFound, kBusy, kCorruption, kUnsupported.
  static Result<std::unique_ptr<Database>> Open(const std::string& path, DatabaseOptions options = {});
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // As LiveRoad::Open; the road draws on this database's budget.
  Result<std::unique_ptr<LiveRoad>> OpenLiveRoad(const LiveRoadOptions& options);

  Store& store() { return *store_; }
  const Manifest& manifest() const { return store_->manifest(); }
  MemoryBudget& budget() { return budget_; }
  IoBackend& backend() { return *backend_; }

 private:
  Database(std::unique_ptr<IoBackend> backend, std::unique_ptr<Store> store, uint64_t memory_bytes);

  // Destroyed last to first: the store uses the backend.
  const std::unique_ptr<IoBackend> backend_;
  const std::unique_ptr<Store> store_;
  MemoryBudget budget_;
};

}  // namespace quarry
