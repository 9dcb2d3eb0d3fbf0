// Session: what the tables of a connection share: the snapshot, open files, the reader, and the last fault.
// Private to this room; one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "column_cache.h"
#include "page_cache.h"
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
  // next cursor that is opened, or transaction that writes, while no cursor is open.
  Status Commit();
  void BeginWrites() { LeaveOldSnapshot(); }
  // Tables are about to be made or removed: who keeps a snapshot keeps its tables, and does not see new ones. Statements
  // behind this one have another.
  void BeginUpkeep() {
    snapshot_is_old_ = true;
    LeaveOldSnapshot();
  }
  void BeginCursor();
  void EndCursor() { --cursors_; }

  // The commit that wrote this row last; 0: the row is as the table's file has it.
  Result<uint64_t> TimestampOf(const TableView& table, uint64_t row);

  Result<const Topology*> OpenTopology();  // "graph"; kNotFound when there is none
  // By node, counted in a pass over all edges where the topology has no lists of out-neighbors.
  Result<std::span<const uint32_t>> OutDegrees();
  // The relations and the weights of the topology's edges; null with only one relation, and without weights.
  Result<const EdgeValues*> OpenRelations(Adjacency side);
  // Whether edges of the same ends are numbered relation by relation: where lists are by relation, so that they stand apart,
  // and where edges can be deleted, by their numbers.
  Result<bool> TellsRelationsApart();
  Result<const EdgeValues*> OpenWeights(Adjacency side);
  MergedReader& reader() { return reader_; }

  // What lookups are served from stays in memory from statement to statement, within a share of the budget.
  // Whether so many bytes of a table stay there whole once they have been read: what lookups are priced by.
  bool Keeps(uint64_t bytes) const { return bytes <= cache_bytes_max_; }
  // A table of one number a row, for lookups; null where it cannot be kept. Errors as OpenTable's.
  Result<ColumnCache*> OpenColumn(std::string_view name);
  // The node's rows will soon be asked for, by a join on what leads to it. Inline: a function that only fetches
  // ahead has no effect that GCC knows of, and it leaves out calls of such.
  [[gnu::always_inline]] void ExpectNode(uint64_t node) const {
    for (const ColumnCache* column : open_columns_) {
      if (node < column->row_count()) column->Prefetch(node);
    }
  }
  // A section of the topology's file, for lookups; null where the budget has no room. `id` is the caller's
  // name for it.
  Result<PageCache*> OpenPages(int id, const PageSection& section);
  // The node's name, if it has one; valid until the next call. kCorruption, kIoError.
  Result<const std::string*> NameOf(uint64_t node);

  // For what may take long between two rows: now and then.
  Status Look() const { return look_(); }

  // SQLite carries numbers and texts; the fault itself waits here.
  void SetFault(Status fault) { fault_ = std::move(fault); }
  Status TakeFault() { return std::exchange(fault_, Status::Ok()); }

 private:
  struct NamedNode {
    uint64_t node = UINT64_MAX;
    std::optional<std::string> name;
  };
  void LeaveOldSnapshot();
  Status CheckRemoved();
  Status KeepWeights();
  uint64_t CacheBytes(uint64_t wanted) const;  // what a new cache may hold of so many
  void CloseTopology();

  Store& store_;
  MemoryBudget& budget_;
  const uint64_t cache_bytes_max_;
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
  uint64_t topology_timestamp_ = 0;                        // of the last commit of edges that it has
  std::unique_ptr<EdgeValues> relations_[2], weights_[2];  // by Adjacency
  MemoryBudget::Reservation out_degrees_reservation_;
  std::vector<uint32_t> out_degrees_;  // empty until somebody asks
  uint64_t cached_bytes_ = 0;          // of cache_bytes_max_: what the next two may hold
  uint64_t pages_bytes_ = 0;           // of those, what the second may
  std::map<std::string, std::unique_ptr<ColumnCache>, std::less<>> columns_;
  std::vector<const ColumnCache*> open_columns_;  // those of them that the snapshot's statements use
  std::map<int, std::unique_ptr<PageCache>> pages_;
  MemoryBudget::Reservation names_reservation_;
  std::vector<NamedNode> names_;  // each node's last one has a place by its number
  MergedReader reader_;
  Status fault_;
};

}  // namespace quarry::sql
