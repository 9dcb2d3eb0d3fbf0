// Export: what a database holds, as files that others read and `quarry import` takes back.
//
// The rows are those that a snapshot has when the export begins: changed rows are in it, whether they have
// been compacted or not. Bulk data is read and written front to back, past the page cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_maintenance.h"
#include "quarry/storage/store.h"

namespace quarry {

struct ExportReport {
  uint64_t timestamp = 0;  // all rows that were committed up to here are in it, and none later
  uint64_t files = 0;
  uint64_t bytes = 0;
  std::vector<std::string> import_options;  // options with which `quarry import` makes an equal database
  double seconds = 0;
};

// Writes the folder `what.path`, which must not exist. Built in `<path>.exporting`, synced, then renamed, so that
// it appears whole or not at all. Draws on `budget`: indptr and checksums of the topology, the
// checksums of a table, some 30 MiB of buffers, and for triples the names of all nodes. Other threads may
// read and write meanwhile.
//
// kNotFound (the table), kAlreadyExists, kInvalidArgument (a path inside of the database, nothing to export),
// kUnsupported (what the format has no form for), kBusy (another export, or embeddings that are being
// trained), kOutOfBudget, kCorruption, kNoSpace, kIoError; kCancelled when `progress` says so.
Result<ExportReport> ExportDatabase(Store& store, MemoryBudget& budget, const wire::ExportDatabase& what,
                                    const ProgressFunction& progress = {});

}  // namespace quarry
