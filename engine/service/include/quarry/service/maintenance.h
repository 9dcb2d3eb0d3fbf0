// Maintenance: what keeps an open database in order (docs/protocol.md, "Maintenance"): a check of every byte,
// compactions, checkpoints, exports, layouts, the device's rates, what is removed. Done by the process that has the
// database, for itself or for a server's client.
//
// Thread-safe as what it calls is: others read and write meanwhile; what two tasks would do to one table or
// layout at a time is the caller's to prevent (a server has one task at a time).
#pragma once

#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_maintenance.h"
#include "quarry/layout/layout.h"
#include "quarry/service/embedding_service.h"
#include "quarry/service/stored_tables.h"
#include "quarry/storage/store.h"

namespace quarry {

class Maintenance {
 public:
  // All outlive it. `tables`: what lookups of this process keep open.
  Maintenance(Store& store, EmbeddingService& embeddings, StoredTables& tables)
      : store_(store), embeddings_(embeddings), tables_(tables) {}

  // Does the task, within `budget`. Faults that VerifyDatabase finds are no error. Errors are those of
  // VerifyStore, CompactTable, CheckpointStore, ExportDatabase, BuildLayout, RebuildLayout, DropLayout,
  // MeasureDevice, DropTraining, Store::DropTable and EmbeddingService; after one the database is as it was, but for what the next such task goes on from.
  // kCancelled when `progress` says so; what takes moments, and CalibrateDevice, does not ask it.
  Result<wire::MaintenanceReport> Run(const wire::MaintenanceTask& task, MemoryBudget& budget,
                                      const ProgressFunction& progress);

 private:
  struct Runner;

  Store& store_;
  EmbeddingService& embeddings_;
  StoredTables& tables_;
};

// "a compaction of table \"feature\"".
std::string NameOf(const wire::MaintenanceTask& task);
// The folder that the task makes; null for one that makes none.
const std::string* PathOf(const wire::MaintenanceTask& task);
// True when the task changes nothing, neither the database nor anything else.
bool OnlyReads(const wire::MaintenanceTask& task);

// What BuildLayout would be asked for the layout that the specification describes (of the layouts of all trainers, where
// its share says how many there are): everything committed so
// far, to be repeated, and packed.
wire::BuildLayout RequestOf(const LayoutSpec& spec, bool resume);

}  // namespace quarry
