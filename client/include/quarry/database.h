// Database: an open database with everything that serves it; what an embedding program starts from.
//
// The composition root: builds the I/O backend, the store and the memory budget and hands them to the roads.
// Roads that it opens are the caller's and must be gone before it. Neither copied nor moved; thread-safe,
// except that one road at a time should be opened (each plans with what the budget has left).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/layout/layout.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/pipeline/superbatch_road.h"
#include "quarry/service/calibration.h"
#include "quarry/sql/connection.h"
#include "quarry/storage/compaction.h"
#include "quarry/storage/store.h"

namespace quarry {

struct DatabaseOptions {
  // The most memory that the engine may hold: caches, buffers, topology, batches in flight. 0 = 80 % of what
  // the memory cgroup or the machine allows.
  uint64_t memory_bytes = 0;
  // What transfers go through; empty = MakeDefaultBackend().
  std::unique_ptr<IoBackend> backend = {};
  // Where blocks that are read from an object store stay (quarry/objects/block_cache.h), and up to how many bytes. An empty
  // folder: what QUARRY_CACHE_DIR and QUARRY_CACHE_SIZE in the environment say, if they are set.
  std::string cache_folder = {};
  uint64_t cache_bytes = 0;
};

class Database {
 public:
  // As Store::Open: kNotFound, kBusy, kCorruption, kUnsupported. `path` may be a thin database
  // (quarry/objects/thin_database.h), or an address in an object store, s3://BUCKET/PREFIX: then the small files come into
  // a folder of the system's temporary ones, which goes with the database, and nothing is written (kUnsupported). Both
  // give a quarter of the memory to reading from the store.
  static Result<std::unique_ptr<Database>> Open(const std::string& path, DatabaseOptions options = {});
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // As LiveRoad::Open; the road draws on this database's budget.
  Result<std::unique_ptr<LiveRoad>> OpenLiveRoad(const LiveRoadOptions& options);

  // Returns the rates of the device and the memory of this machine: those stored in the database, or, where
  // there are none or with `force`, those that Recalibrate measures.
  Result<DeviceRecord> Calibrate(bool force);
  // As MeasureDevice (calibration.h). Not while a road is open.
  Result<Calibration> Recalibrate();

  // As quarry::BuildLayout (layout.h), within this database's budget. Not while a road is open.
  Result<LayoutRecord> BuildLayout(const LayoutSpec& spec, bool resume = false,
                                   const ProgressFunction& progress = {}, BuildReport* report = nullptr);
  // As PlannedRoad::Open; the road draws on this database's budget.
  Result<std::unique_ptr<PlannedRoad>> OpenLayout(const PlannedRoadOptions& options);

  // As SuperbatchRoad::Open; the road draws on this database's budget.
  Result<std::unique_ptr<SuperbatchRoad>> OpenSuperbatches(const SuperbatchRoadOptions& options);

  // SQL over this database (quarry/sql/connection.h), within its budget. Connections must be gone before it.
  Result<std::unique_ptr<sql::Connection>> Connect(const sql::ConnectionOptions& options = {});
  // As Connection::Query, on a connection of this database's own, which only reads: for one thread at a time;
  // others Connect. The rows must be gone before the database.
  Result<sql::Rows> Query(std::string_view sql, std::span<const sql::Value> parameters = {});
  Result<sql::Rows> Query(std::string_view sql, std::initializer_list<sql::Value> parameters);

  Store& store() { return *store_; }
  std::shared_ptr<const Manifest> manifest() const { return store_->manifest(); }
  MemoryBudget& budget() { return budget_; }
  IoBackend& backend() { return *backend_; }

 private:
  struct View;  // the folder of a database that was opened at an address
  Database(std::unique_ptr<View> view, std::unique_ptr<IoBackend> backend, std::unique_ptr<Store> store,
           uint64_t memory_bytes);

  // Destroyed last to first: the store uses the backend, and both the folder.
  const std::unique_ptr<View> view_;
  const std::unique_ptr<IoBackend> backend_;
  const std::unique_ptr<Store> store_;
  MemoryBudget budget_;
  std::unique_ptr<sql::Connection> connection_;  // for Query; none before the first
};

}  // namespace quarry
