// Session: what the tables of a connection share: the snapshot, open files, the reader, and the last fault.
// Private to this room; one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pending_writes.h"
#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/topology.h"
#include "quarry/io/coalesce.h"
#include "quarry/storage/edge_values.h"
#include "quarry/storage/merged_reader.h"
#include "quarry/storage/store.h"
#include "quarry/storage/table_files.h"
#include "quarry/storage/table_view.h"

namespace quarry::sql {

class Session {
 public:
  // `look` returns other than OK when the statement that runs shall end.
  Session(Store& store, MemoryBudget& budget, bool writable, std::function<Status()> look);

  Store& store() { return store_; }
  MemoryBudget& budget() { return budget_; }
  bool writable() const { return writable_; }
  // What the transaction has written: its statements see it.
  PendingWrites& pending() { return pending_; }
  std::shared_ptr<const Manifest> manifest() const { return store_.manifest(); }
  // What reads cost here: as `quarry calibrate` has measured it, or the default.
  DeviceProfile profile() const;

  // The same until EndSnapshot.
  Result<std::shared_ptr<const Snapshot>> snapshot();
  Result<std::shared_ptr<const TableView>> OpenTable(std::string_view name);
  void EndSnapshot();
  // What the transaction has written becomes a commit. After it, the next statement has another snapshot: the
  // next cursor that is opened while none is.
  Status Commit();
  void BeginCursor();
  void EndCursor() { --cursors_; }

  // The commit that wrote this row last; 0: the row is as the table's file has it.
  Result<uint64_t> TimestampOf(const TableView& table, uint64_t row);

  Result<const Topology*> OpenTopology();  // "graph"; kNotFound when there is none
  // By node, counted in a pass over all edges where the topology has no lists of out-neighbors.
  Result<std::span<const uint32_t>> OutDegrees();
  // The relations and the weights of the topology's edges; null with only one relation, and without weights.
  Result<const EdgeValues*> OpenRelations(Adjacency side);
  Result<const EdgeValues*> OpenWeights(Adjacency side);
  MergedReader& reader() { return reader_; }

  // For what may take long between two rows: now and then.
  Status Look() const { return look_(); }

  // SQLite carries numbers and texts; the fault itself waits here.
  void SetFault(Status fault) { fault_ = std::move(fault); }
  Status TakeFault() { return std::exchange(fault_, Status::Ok()); }

 private:
  Store& store_;
  MemoryBudget& budget_;
  const bool writable_;
  const std::function<Status()> look_;
  PendingWrites pending_;
  std::shared_ptr<const Snapshot> snapshot_;
  uint64_t cursors_ = 0;
  bool snapshot_is_old_ = false;
  std::map<std::string, std::shared_ptr<const TableView>, std::less<>> tables_;  // the snapshot's
  TableFiles files_;
  MemoryBudget::Reservation topology_reservation_;
  std::unique_ptr<Topology> topology_;
  std::unique_ptr<EdgeValues> relations_[2], weights_[2];  // by Adjacency
  MemoryBudget::Reservation out_degrees_reservation_;
  std::vector<uint32_t> out_degrees_;  // empty until somebody asks
  MergedReader reader_;
  Status fault_;
};

}  // namespace quarry::sql
