// Repair: what can be done about what VerifyStore finds, short of restoring a checkpoint (checkpoint.h).
//
//   RepairCatalog   a catalog that does not open is made anew of what can be read of it
//   RepairStore     what no record names is removed, and derived data that are damaged are dropped; base data
//                   stay as they are, and it is said exactly what of them is lost
//
// Nothing is invented: a lost row stays unreadable until it is put again. Then, or when a newer version was
// there all along, the next compaction writes its table anew without reading that row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/io/backend.h"
#include "quarry/storage/store.h"
#include "quarry/verify/verify.h"

namespace quarry {

struct CatalogRepair {
  Status fault;                          // why it did not open
  std::vector<std::string> lost_tables;  // files of the catalog of which nothing could be read
  uint64_t timestamp = 0;                // newest commit that is in it now
  bool proven = false;                   // no commit is missing; else VerifyStore tells which rows may be old
  std::string damaged_path;              // where the old one lies, for whoever wants to look at it
};

// Returns nothing when the catalog of the database at `path` opens. Otherwise another one takes its place,
// whole or not at all; the files that it names may be older than those that are there, which VerifyStore
// reports. With `dry_run`, only reports the fault. kCorruption when what can be read holds no manifest: then
// everything is as before. kAlreadyExists while the catalog of an earlier repair is there; kBusy, kIoError,
// kNoSpace.
Result<std::optional<CatalogRepair>> RepairCatalog(IoBackend& backend, const std::string& path, bool dry_run);

struct RepairOptions {
  bool dry_run = false;  // report what would be done
  // Also drop damaged checkpoints of training runs and of embeddings, which nothing brings back, and accept
  // rows that may be old as they are.
  bool drop_damaged = false;
};

struct DamagedRows {
  std::string table;
  uint64_t first_row = 0;
  uint64_t row_count = 0;
  bool replaced = false;  // readers get newer versions: not lost
};

struct RepairReport {
  std::vector<std::string> removed;               // strays and leftovers, by their paths in the database
  std::vector<std::string> folders;               // were missing, and have been made
  std::vector<LayoutRecord> layouts;              // dropped; they can be built again
  std::vector<PartitioningRecord> partitionings;  // the same
  std::vector<TrainingRecord> trainings;          // dropped
  std::vector<std::string> embeddings;  // tables for the caller to drop (DropEmbeddings, a room above)
  std::vector<DamagedRows> accepted;    // may be old, and count as the newest from now on
  std::vector<DamagedRows> rows;        // stay as they are; all rows, in a table that is lost as a whole
  std::vector<Damage> lost;             // other damage that stays

  bool sound() const { return rows.empty() && lost.empty(); }
};

// `found` is what VerifyStore and VerifyEmbeddings have just found in the store. Nobody may use the store
// meanwhile.
Result<RepairReport> RepairStore(Store& store, const VerifyReport& found, const RepairOptions& options);

}  // namespace quarry
