#include "quarry/layout/mend_price.h"

#include <algorithm>

#include "quarry/base/units.h"
#include "quarry/layout/topology_place.h"
#include "quarry/sampling/sampler.h"

namespace quarry {
namespace {

// Drawing an edge, and what planning does with its node. Both ways do it, so that its size decides little.
constexpr double kDrawSeconds = 100e-9;
// What a build writes of its plan and reads again, beside the trace: blocks as sampled, next uses, steps, misses.
constexpr double kPlanFiles = 5;

double AsDouble(uint64_t value) { return static_cast<double>(value); }

}  // namespace

MendCounts MendCountsOf(const Layout& layout, const Manifest& manifest, const ChangedSeeds& changed) {
  const LayoutDirectory& directory = layout.directory();
  const LayoutRecord& record = layout.record();
  const TableRecord& table = *manifest.FindTable(record.spec.feature_table);
  MendCounts counts = {
      .nodes = manifest.node_count,
      .batches_touched = changed.batches.size(),
      .rows_redrawn = changed.rows_redrawn,
      .row_bytes = directory.row_stride,
      .regions_bytes = directory.regions_bytes,
      .trace_bytes = record.trace_bytes,
      .lists_bytes =
          ListsOnDiskOf(*manifest.FindTopology(record.spec.topology), record.spec.direction).indices_bytes,
      .table_bytes = directory.packed ? table.row_count * directory.row_bytes : 0};
  auto touched = changed.batches.begin();
  for (uint64_t b = 0; b < directory.batches.size(); ++b) {
    const BatchEntry& batch = directory.batches[b];
    const uint64_t block_bytes = RoundUp(batch.block_bytes, kPageBytes);
    counts.edges += batch.edges;
    counts.blocks_bytes += block_bytes;
    if (touched == changed.batches.end() || *touched != b) continue;
    ++touched;
    counts.edges_touched += batch.edges;
    counts.nodes_touched += batch.nodes;
    counts.touched_bytes += block_bytes + directory.chunk_bytes(batch);
  }
  return counts;
}

MendPrice PriceMend(const MendCounts& counts, const DeviceRecord& device) {
  const double request = 1 / device.random_reads_per_second;
  const double read =  // of a byte
      1 / device.sequential_bytes_per_second + 1 / device.core.checksum_bytes_per_second;
  const double write = 1 / device.write_bytes_per_second + 1 / device.core.checksum_bytes_per_second;
  const double by_node = AsDouble(counts.nodes) * (sizeof(uint64_t) + sizeof(int64_t) + 1) * read;
  const double lists = AsDouble(counts.lists_bytes) * read;
  const double pages = AsDouble(counts.nodes_touched) * request;  // of their lists
  const bool packed = counts.table_bytes > 0;
  MendPrice price = {.lists_in_memory = lists <= pages};
  price.mend_seconds = by_node + std::min(lists, pages) + AsDouble(counts.edges_touched) * kDrawSeconds +
                       AsDouble(counts.blocks_bytes + counts.touched_bytes + counts.trace_bytes) * read +
                       AsDouble(counts.batches_touched) * request +
                       (packed ? AsDouble(counts.rows_redrawn) * request : 0) +
                       AsDouble(counts.touched_bytes + counts.trace_bytes +
                                (packed ? counts.rows_redrawn * counts.row_bytes : 0)) *
                           write;
  price.build_seconds = by_node + lists + AsDouble(counts.edges) * kDrawSeconds +
                        AsDouble(counts.table_bytes) * read + AsDouble(counts.regions_bytes) * write +
                        AsDouble(counts.trace_bytes) * (write + kPlanFiles * (read + write));
  price.epoch_seconds =
      AsDouble(counts.rows_redrawn) * (packed ? AsDouble(counts.row_bytes) * read : request);
  return price;
}

}  // namespace quarry
