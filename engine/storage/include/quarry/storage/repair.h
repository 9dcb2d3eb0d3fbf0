// Repair: what can be done about what VerifyStore finds, short of restoring a checkpoint (checkpoint.h).
//
//   RepairCatalog   a catalog that does not open is made anew of what can be read of it
//   RepairStore     what no record names is removed, and derived data that are damaged are dropped; base data
//                   stay as they are, and it is said exactly what of them is lost
//
// Nothing is invented: a row that is lost stays unreadable until it is put again. Then, as when a newer
// version was there all along, the next compaction writes its table anew without reading it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/io/backend.h"
#include "quarry/storage/store.h"

namespace quarry {

struct CatalogRepair {
  Status fault;                          // why it did not open
  std::vector<std::string> lost_tables;  // of its files, of which nothing could be read
  uint64_t timestamp = 0;                // of the newest commit that is in it now
  bool proven = false;                   // all commits are; else VerifyStore tells which rows may be old
  std::string damaged_path;              // where the old one lies, for whoever wants to look at it
};

// Nothing when the catalog of the database at `path` opens. Otherwise another one takes its place, whole or
// not at all; what it names may be older than the files that are there, which VerifyStore tells. With
// `dry_run` only the fault is told. kCorruption when there is no manifest in what can be read: then all is as
// before. kAlreadyExists while the catalog of an earlier repair is there; kBusy, kIoError, kNoSpace.
Result<std::optional<CatalogRepair>> RepairCatalog(IoBackend& backend, const std::string& path, bool dry_run);

struct RepairOptions {
  bool dry_run = false;  // report what would be done
  // Checkpoints of training runs and of embeddings, which nothing brings back; and takes rows that may be old
  // for what they are.
  bool drop_damaged = false;
};

struct DamagedRows {
  std::string table;
  uint64_t first_row = 0;
  uint64_t row_count = 0;
  bool replaced = false;  // by newer versions, which readers get: not lost
};

struct RepairReport {
  std::vector<std::string> removed;       // strays and leftovers, by their paths in the database
  std::vector<std::string> folders;       // were missing, and have been made
  std::vector<LayoutRecord> layouts;      // dropped; they can be built again
  std::vector<TrainingRecord> trainings;  // dropped
  std::vector<std::string> embeddings;    // tables for the caller to drop (DropEmbeddings, a room above)
  std::vector<DamagedRows> accepted;      // may be old, and count as the newest from now on
  std::vector<DamagedRows> rows;          // stay as they are; in a table that is lost as a whole, all
  std::vector<Damage> lost;               // and so does this

  bool sound() const { return rows.empty() && lost.empty(); }
};

// `found` is what VerifyStore, and VerifyEmbeddings, have found in the store just now. Nobody may use the
// store meanwhile.
Result<RepairReport> RepairStore(Store& store, const VerifyReport& found, const RepairOptions& options);

}  // namespace quarry
