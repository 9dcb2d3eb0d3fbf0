// Checkpoints: a copy of a database as of one instant, which is itself a whole database. Restoring is the
// same in the other direction: open the checkpoint, and make a checkpoint of it where the database shall be.
//
//   DEST.copying/db: catalog -> the files that its manifest names -> all synced -> one rename to DEST
//
// Files that nobody changes once they are written (tables, topology, layouts, states of training runs, page
// maps, the catalog's own tables) are shared by hard link where both databases lie on one file system. That
// costs neither time nor space, and neither database notices what becomes of the other; but a file that the
// disk damages is damaged in both. Across file systems they are copied. Page files of embeddings are written
// in place, so they are never shared: they are cloned where the file system can, else written anew with only
// the pages that the last embedding checkpoint names.
#pragma once

#include <cstdint>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/storage/store.h"

namespace quarry {

struct CheckpointReport {
  uint64_t timestamp = 0;  // all rows that were committed up to here are in it, and none later
  uint64_t files_linked = 0;
  uint64_t files_reflinked = 0;  // share their blocks with the original until one of them changes
  uint64_t files_copied = 0;
  uint64_t bytes = 0;         // all files together
  uint64_t bytes_copied = 0;  // part of them that was read and written
  double seconds = 0;
};

// kInvalidArgument when `path` lies in the database: a file made there would go with it, or be taken for a
// stray.
Status CheckOutside(const std::string& database_path, const std::string& path);

// Makes `path`, which must not exist, whole or not at all; leftovers of a killed checkpoint are removed. Any
// thread may call it, and others may read, write and compact meanwhile. Manifests are not committed before
// files are linked and page files copied, so that the switch of a compaction, and checkpoints of embeddings,
// wait for that; `progress` must not wait for one. Holds up to 8 MiB of the budget, and where a page file is
// copied its maps, 160 bytes a page.
//
// kAlreadyExists, kNotFound (no folder to put it in), kInvalidArgument (inside of the database), kBusy
// (another checkpoint is being made there), kCorruption when a file is missing or a page does not verify;
// files that are linked or copied whole are not read for that. kNoSpace, kIoError; kCancelled when `progress`
// says so.
Result<CheckpointReport> CheckpointStore(Store& store, MemoryBudget& budget, const std::string& path,
                                         const ProgressFunction& progress);

}  // namespace quarry
