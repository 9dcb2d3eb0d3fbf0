// Sorts the edges of a topology into buckets, outside of memory, and writes these. Private to this room.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/partition/partition_directory.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/store.h"

namespace quarry {

// Appends the section of buckets and fills in the directory's. `new_ids`, by old id, are given back to the
// budget (`ids_reservation`) once the edges are sorted. Holds at most what the budget has left: the topology's
// indptr while it is read, then the largest bucket. kOutOfBudget with the least that would do; kUnsupported for
// more than 2^32 edges between two parts.
Status WriteBuckets(Store& store, MemoryBudget& budget, const TopologyRecord& topology,
                    const std::string& scratch_directory, std::vector<NodeId> new_ids,
                    MemoryBudget::Reservation ids_reservation, const ProgressFunction& progress,
                    PartitionDirectory& directory, DataFileWriter& writer);

}  // namespace quarry
