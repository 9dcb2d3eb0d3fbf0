// Renewing a partitioning of which edges alone came and went: its nodes, rows, labels and splits are as they were, so that
// parts.qpp is linked, and the buckets that changed are written to buckets.qpp, whole. Private to this room.
//
//   merged   runs of edges tell which lists changed, and these are few: each bucket that has some of them is read, and
//            written where its edges are others now
//   sorted   a compaction has folded the runs, or most edges are in lists that changed: all edges are sorted into buckets
#pragma once

#include <optional>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/partition/partitioner.h"
#include "quarry/partition/stored_partitioning.h"

namespace quarry {

// Renews the partitioning of spec.name and names it in the catalog as a build does. Nothing where it has to be built: there
// is none, it is of other parts, another table or topology, nodes came, or rows, labels or splits were written; where the
// file system links no files, memory has no room, or the buckets of before are damaged. Errors as BuildPartitioning's.
Result<std::optional<PartitioningRecord>> RenewBuckets(Store& store, MemoryBudget& budget,
                                                       const PartitioningSpec& spec,
                                                       const PartitionOptions& options,
                                                       const ProgressFunction& progress,
                                                       double start_seconds);

}  // namespace quarry
