// How often a compaction makes its work outlive a crash. Private to this room; tests go at another pace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "quarry/base/progress.h"
#include "quarry/base/units.h"
#include "quarry/storage/compaction.h"
#include "quarry/storage/topology_compaction.h"

namespace quarry {

struct CompactionPace {
  uint64_t piece_bytes = 8 * kMiB;  // rows or edges at a time
  // A tenth of the file, within these: less is not worth the syncs, and no more is ever lost.
  // What a mark every 64 MiB costs is lost in the noise: 516 MB take 1.2 to 2.1 s on a busy machine, with and
  // without.
  uint64_t sync_bytes_min = 64 * kMiB;
  uint64_t sync_bytes_max = 1 * kGiB;
  uint64_t SyncBytes(uint64_t file_bytes) const {
    return std::clamp(file_bytes / 10, sync_bytes_min, sync_bytes_max);
  }
};

Result<CompactionReport> CompactTable(Store& store, MemoryBudget& budget, const std::string& table,
                                      bool dry_run, const ProgressFunction& progress,
                                      const CompactionPace& pace);
// In pieces of at most EdgeColumnScanner's.
Result<TopologyCompactionReport> CompactTopology(Store& store, MemoryBudget& budget,
                                                 const std::string& topology, bool dry_run,
                                                 const ProgressFunction& progress,
                                                 const CompactionPace& pace);

}  // namespace quarry
