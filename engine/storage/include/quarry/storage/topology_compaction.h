// Making one of a topology's file and runs: a new file of the same edges. Beside readers, which keep what their snapshot
// names, beside commits, which stay behind what is folded, and beside merges of these (run_merger.h). A fold that was
// interrupted goes on with the graph of its beginning, from its last mark (compaction_progress.h).
#pragma once

#include <cstdint>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/storage/store.h"

namespace quarry {

struct TopologyCompactionReport {
  uint64_t runs = 0;         // folded, or to be
  uint64_t edges_added = 0;  // by them
  uint64_t edges_removed = 0;
  uint64_t nodes_added = 0;  // since the file was written
  uint64_t edge_count = 0;   // afterwards
  uint64_t bytes = 0;        // of the new file; of the old one where it is not written
  uint64_t timestamp = 0;    // of the last commit that the file has
  uint64_t generation = 1;
  uint64_t resumed_edges =
      0;  // that an interrupted compaction had written; each counts once in each of its columns
  double seconds = 0;
};

// Folds the runs of a topology into its next generation, whose sections are byte for byte those of an import of the same
// edges, by sequential reads. Holds what an open topology does and 16 MiB. kNotFound; kBusy beside another one;
// kOutOfBudget; kNoSpace; kCancelled when `progress` says so.
Result<TopologyCompactionReport> CompactTopology(Store& store, MemoryBudget& budget,
                                                 const std::string& topology, bool dry_run,
                                                 const ProgressFunction& progress);

// Removes what is left of a file that is going to be made. It may be named on disk by a commit that failed: behind
// another one it is not.
Status ClearTopologyFile(Store& store, const std::string& file);

}  // namespace quarry
