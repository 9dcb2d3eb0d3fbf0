// Compaction: folds the versions of a table's rows into a new generation of its file, written front to back
// beside the old one, and switches in the catalog. Readers go on meanwhile, and so do writers: what they
// commit after the compaction began stays a version over the new file.
//
//   write features/NAME-<gen + 1>.qft, sync
//   -> the catalog names it, in the same write with the set of folded rows
//   -> the old file goes with the last snapshot that names it, its versions with the next compaction at the latest
//
// A crash before the catalog's write leaves the old table, and the file as far as it was synced: every tenth
// of it, 64 MiB at least and 1 GiB at most. The next compaction goes on from there, with the rows of the same
// instant; what was committed since stays a version over the new file. The next open removes a file that
// cannot be continued.
#pragma once

#include <cstdint>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/storage/store.h"

namespace quarry {

struct CompactionReport {
  uint64_t rows_changed = 0;
  uint64_t row_count = 0;
  uint64_t bytes = 0;        // size of the new file; about as many are read
  uint64_t timestamp = 0;    // newest commit that is folded in
  uint64_t generation = 0;   // generation of the new file
  uint64_t resumed_row = 0;  // where an interrupted compaction was continued; 0 = from the first row
  double seconds = 0;
};

// Does nothing when nobody wrote to the table. With `dry_run`, only says what would be done. Holds about 45
// MiB of the budget, and the table's checksums. Any thread may call it, one compaction of a table at a time.
// kNotFound, kNoSpace, kCancelled when `progress` says so: then the table is as before, and what was written
// stays for the next compaction if it is more than a tenth, which the message says.
Result<CompactionReport> CompactTable(Store& store, MemoryBudget& budget, const std::string& table,
                                      bool dry_run, const ProgressFunction& progress);

}  // namespace quarry
