#include "quarry/storage/runs_price.h"

#include <algorithm>
#include <cmath>

#include "quarry/format/feature_table.h"
#include "quarry/format/types.h"

namespace quarry {
namespace {

// Measured on a core that others used, of 4 thousand to 20 million edits over 60 million edges: composing took 12 to 45 ns
// an edit, merging 30 ns an edit, a search .16 us among 4 thousand, .24 among 40, .48 among 400 and 2 us among 10 million.
constexpr double kComposeSeconds = 25e-9;  // of each edit that is in the two that are composed
constexpr double kMergeSeconds = 35e-9;    // of each edit
constexpr double kProbeSeconds = 8e-9;     // of a step of a search in a processor's cache
constexpr double kFarProbeSeconds = 60e-9;
constexpr double kNearProbes = 15;      // the first of which stay in the cache, search after search
constexpr double kDrawSeconds = 20e-9;  // of a neighbor from lists in memory
constexpr double kRunRequests = 8;      // for superblock, footer and sections of a run
constexpr double kEpochSeconds = 5e-3;  // of threads and buffers of whoever opens a graph, however small

double Number(uint64_t value) { return static_cast<double>(value); }

double SearchSeconds(uint64_t among) {
  const double probes = std::log2(Number(among) + 1);
  return kProbeSeconds * std::min(probes, kNearProbes) +
         kFarProbeSeconds * std::max(0.0, probes - kNearProbes);
}

}  // namespace

RunsPrice PriceRuns(const TopologyRecord& topology, const DeviceRecord& device) {
  RunsPrice price;
  uint64_t added = 0, removed = 0, run_bytes = 0, composed = 0;
  for (const TopologyRun& run : topology.runs) {
    added += run.added;
    removed += run.removed;
    run_bytes += run.file_bytes;
    if (&run != topology.runs.data()) composed += added + removed;
  }
  const uint64_t edits = added + removed;
  if (edits == 0) return price;
  const double sides = topology.has_csr ? 2 : 1;
  const double read_seconds =
      1 / device.sequential_bytes_per_second + 1 / device.core.checksum_bytes_per_second;  // of a byte
  const double edges = Number(std::max<uint64_t>(topology.edge_count, 1));
  price.open_disk_seconds = Number(run_bytes) / device.sequential_bytes_per_second +
                            Number(topology.runs.size()) * kRunRequests / device.random_reads_per_second;
  price.merge_seconds = sides * kMergeSeconds * Number(edits);
  price.open_seconds = price.open_disk_seconds + Number(run_bytes) / device.core.checksum_bytes_per_second +
                       sides * kComposeSeconds * Number(composed) + price.merge_seconds;
  price.draw_seconds = SearchSeconds(added) + SearchSeconds(removed);
  const double indptr = sides * Number(topology.node_count + 1) * sizeof(uint64_t) * read_seconds;
  const double lists = sides * edges * sizeof(NodeId) * read_seconds;
  const double loaded = kEpochSeconds + indptr + lists + edges * kDrawSeconds;
  price.loaded_slowdown = 1 + price.open_seconds / loaded;
  const double disk = kEpochSeconds + indptr + edges * Number(kPageBytes) * read_seconds;
  price.disk_slowdown = 1 + (price.open_seconds + edges * price.draw_seconds) / disk;
  price.edited_share = Number(edits) / edges;
  const double whole =
      Number(topology.file_bytes) * edges / Number(std::max<uint64_t>(topology.base_edge_count(), 1));
  price.read_amplification = Number(topology.file_bytes + run_bytes) / std::max(whole, 1.0);
  price.fold_seconds =
      price.open_seconds + Number(topology.file_bytes) * read_seconds +
      whole * (1 / device.write_bytes_per_second + 1 / device.core.checksum_bytes_per_second);
  price.bytes_per_edited_edge = Number(run_bytes) / Number(edits);
  return price;
}

bool PaysToFold(const TopologyRecord& topology, const DeviceRecord& device, double slowdown_max) {
  return !topology.runs.empty() && PriceRuns(topology, device).slowdown() > slowdown_max;
}

}  // namespace quarry
