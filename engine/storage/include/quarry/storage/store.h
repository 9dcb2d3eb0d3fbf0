// Store: an open database directory: the LOCK, the catalog, and access to its tables and topologies.
//
// One process holds a database at a time: the LOCK is exclusive, also among readers (kBusy names the process
// that holds it), and falls with the process. A Store owns its catalog; tables and topologies that it opens
// are owned by the caller and must not outlive it. Opening tables and topologies, writing, and reading
// versions are thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/catalog/catalog.h"
#include "quarry/format/manifest.h"
#include "quarry/io/backend.h"
#include "quarry/storage/deltas.h"
#include "quarry/storage/feature_table.h"
#include "quarry/storage/topology.h"

namespace quarry {

class GrowthTally;
class RunMerger;

// Makes the folder `path` (which must not exist) with everything that a database has besides its catalog:
// features/, topology/, LOCK and VERSION, synced.
Status CreateStoreDirectory(IoBackend& backend, const std::string& path);

// Version 2: the catalog has a ledger and an anchor; 3: the ledger has a step for each commit instead of tallies. An
// older database is read as it is, and the first change of its catalog makes it one of today.
inline constexpr uint32_t kStoreVersion = 3;
inline constexpr uint32_t kAnchoredVersion = 2;

// In a thin database: the files that stay in an object store (quarry/objects/thin_database.h).
inline constexpr const char* kObjectsFile = "OBJECTS";

class Store {
 public:
  // kNotFound when `path` is no database (and says what it looks like), kBusy, kCorruption, kUnsupported
  // (VERSION).
  static Result<std::unique_ptr<Store>> Open(IoBackend& backend, const std::string& path);
  virtual ~Store() = default;

  virtual const std::string& path() const = 0;
  virtual uint32_t version() = 0;  // version of the database's folder: kStoreVersion, or older
  // The newest manifest. It stays as it is for as long as somebody holds it, also beyond the next commit and the
  // store: hold it in a variable while records of it are read.
  virtual std::shared_ptr<const Manifest> manifest() const = 0;
  // Removes what interrupted commands left over. Whoever is going to make files in the database calls it
  // before the first of them; Write and its like call it themselves. Opening a database, and reading in it,
  // changes no byte. The second call does nothing.
  virtual Status PrepareToWrite() = 0;
  // What was left over when the store was opened and still is there, by paths in the database.
  virtual std::vector<std::string> leftovers() const = 0;
  // Replaces the manifest by what `change` makes of it, synced; one change at a time. `folded` as in
  // Catalog::CommitManifest. A manifest that a reader would refuse is not written; after an error of the disk
  // the old one or the new one stands, whole.
  virtual Status UpdateManifest(const std::function<Status(Manifest&)>& change,
                                const Catalog::FoldedRows* folded = nullptr) = 0;
  // Removes a table, with the versions of its rows, and its file. kNotFound; kInvalidArgument names the
  // layout or partitioning that needs it; kBusy while a snapshot has it. REQUIRES: nobody writes to it meanwhile.
  virtual Status DropTable(std::string_view name) = 0;
  // The catalog that is open now: for reading only, until the first write opens another in its place. Whoever
  // holds this one reads on in it, and sees nothing that is committed after that. Writes are what the functions
  // of this class are for. It must not outlive the store.
  virtual std::shared_ptr<Catalog> catalog() = 0;
  virtual IoBackend& backend() = 0;
  // What was written to graphs since the store was opened (growth_cost.h).
  virtual GrowthTally& growth() = 0;
  // Merges runs of edges (run_merger.h): on a thread of its own once somebody has started it.
  virtual RunMerger& merger() = 0;
  virtual Result<std::unique_ptr<FeatureTable>> OpenTable(
      std::string_view name) = 0;  // kNotFound lists what there is
  // The table as the snapshot has it.
  virtual Result<std::unique_ptr<FeatureTable>> OpenTable(const Snapshot& snapshot,
                                                          std::string_view name) = 0;
  virtual Result<std::unique_ptr<Topology>> OpenTopology(std::string_view name) = 0;  // the same
  virtual Result<std::unique_ptr<Topology>> OpenTopology(const Snapshot& snapshot, std::string_view name) = 0;

  // Commits the batch under the next timestamp, which it returns: afterwards every new snapshot sees all of
  // it, and (with sync) so does every process after a crash. Concurrent writers share a sync.
  // kInvalidArgument names the entry that does not fit its table; then nothing is written. After an error of
  // the disk the batch may be there or not, and the next write finds out; only after a failed sync, which is
  // not tried again, are further writes refused.
  virtual Result<uint64_t> Write(const WriteBatch& batch, const WriteOptions& options = {}) = 0;
  // One at a time, kBusy for the next; others go on to write meanwhile.
  virtual Result<std::unique_ptr<LargeWrite>> BeginLargeWrite() = 0;
  // Everything committed so far.
  virtual Result<std::shared_ptr<const Snapshot>> TakeSnapshot() = 0;
  // The snapshots that live in this process, by timestamp.
  virtual std::vector<HeldSnapshots> Held() const = 0;
  // Opens what the snapshot has newer than `base`, by default the table's file in the snapshot; the overlay
  // keeps the snapshot. kUnsupported when the base is newer than the snapshot, or so old that what changed
  // since is not known.
  virtual Result<std::unique_ptr<RowOverlay>> OpenOverlay(std::string_view table,
                                                          std::shared_ptr<const Snapshot> snapshot,
                                                          std::optional<TableVersion> base = {}) = 0;

  // For RepairStore (repair.h): Catalog::AcceptDoubts.
  virtual Status AcceptDoubts() = 0;

  // For CheckpointStore (checkpoint.h): makes a copy of the catalog in the folder `path` (Catalog::CopyTo)
  // and calls `copy_files`, during which no other manifest is committed: until it returns, the files that the
  // copy names are there, and nothing that the maps of page files name is overwritten. Rows may be written
  // meanwhile.
  virtual Status CopyCatalog(const std::string& path, const std::function<Status()>& copy_files) = 0;

  // For CompactTable (compaction.h): makes `record`, whose file is whole, the base of its table, in which
  // `changed` differs from the generation before. The file before it goes with the last snapshot that names
  // it.
  virtual Status SwitchTable(const TableRecord& record, std::vector<Catalog::FoldedRows::Change> changed) = 0;

  // For GraphChange (quarry/import/graph_change.h), which has the right to make runs. A commit of structure: a run,
  // whose file is whole, nodes behind the last one, and rows that go with them.
  struct GraphCommit {
    std::string_view topology;
    std::optional<TopologyRun> run;   // its timestamp: that of the lists that it is about
    uint64_t first_node = 0;          // of those that are added: the node count so far
    uint64_t node_count = 0;          // added
    uint32_t node_type = 0;           // of those that are added, where nodes have types: its place
    uint64_t class_count = 0;         // of labels in `rows`
    uint64_t added_class_count = 0;   // of those of added nodes
    std::vector<int64_t> type_edges;  // by type of edges, how many more there are; empty: there are no types
    LargeWrite* rows = nullptr;       // BeginGrowth's; its Commit is not called
  };
  // Rows of such a commit: of nodes that are there, and of so many that are added, of the type. As BeginLargeWrite.
  virtual Result<std::unique_ptr<LargeWrite>> BeginGrowth(uint64_t nodes, uint32_t node_type) = 0;
  // Stores names of nodes that are going to be added; nobody sees them. DropNames forgets all that no commit followed.
  virtual Status PutNames(uint64_t first, std::span<const std::string> names) = 0;
  virtual Status DropNames() = 0;
  // Commits all of it under one timestamp, which it returns: the order is one with that of rows. kBusy when other edges
  // or nodes came meanwhile. After another error it may be committed, and the run's file stays.
  virtual Result<uint64_t> CommitGraph(GraphCommit commit) = 0;
  // For CompactTopology (topology_compaction.h): the runs of `before` become what `after` says of file and runs; what was
  // committed since stays behind it, and the lists that changed are remembered (folded_lists.h). Files that nothing names go with
  // the last snapshot that does.
  virtual Status SwitchTopology(const TopologyRecord& before, const TopologyRecord& after,
                                const Catalog::FoldedRows& folded) = 0;
  // For MergeRuns (run_merger.h): `run` comes in the place of runs that follow each other, and their files go in the same way. kBusy
  // when they are not all there any more, or are being folded.
  virtual Status SwitchRuns(std::string_view topology, std::span<const TopologyRun> merged,
                            const TopologyRun& run) = 0;
  // The right to make runs, to fold them into their topology's file, and to make fewer of them, while it lives; null while somebody
  // else has it. A fold and a merge go side by side: what is being folded is not merged.
  enum class RunsRight : uint8_t { kMake, kFold, kMerge };
  struct RunsHold {
    std::atomic<uint64_t> folds_until = UINT64_MAX;  // of a fold: the last commit of the runs that it takes
  };
  virtual std::shared_ptr<RunsHold> HoldRuns(RunsRight right) = 0;
  // Up to which commit runs are being folded; 0: none are.
  virtual uint64_t FoldedUntil() const = 0;
};

}  // namespace quarry
