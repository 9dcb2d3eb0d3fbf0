// What building a layout takes, before anything is known of it but its spec and the largest batch.
#include <algorithm>

#include "cache_plan.h"
#include "layout_encoder.h"
#include "layout_file.h"
#include "packer.h"
#include "quarry/base/units.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/times.h"

namespace quarry {

uint64_t BatchEdgesMax(const RoadSpec& spec, uint64_t batch_nodes_max, uint64_t edge_count) {
  uint64_t known = std::min<uint64_t>(spec.batch_size, batch_nodes_max), edges = 0;
  for (const uint64_t fanout : spec.fanouts) {
    edges += known * fanout;
    known = std::min(known * (1 + fanout), batch_nodes_max);
  }
  return std::min(edges, spec.EdgesMax(edge_count));
}

// The stages one after the other, each with what it reserves.
uint64_t BuildBytesMax(const Manifest& manifest, const LayoutSpec& spec, uint64_t batches,
                       uint64_t batch_nodes_max) {
  const Result<RowLengths> found = RowLengthsOf(manifest, spec.road);
  if (!found.ok()) return 0;  // for the build to refuse
  const RowLengths& rows = *found;
  const TopologyRecord& topology = *manifest.FindTopology(spec.road.topology);
  const uint64_t cache_bytes = CacheBytesOf(spec, rows);
  uint64_t planning = 0, cells = 0;
  for (size_t table = 0; table < rows.row_counts.size(); ++table) {
    const uint64_t count = rows.row_counts[table], stride = rows.StrideOf(table);
    planning += CachePlanBytes({.policy = spec.policy,
                                .node_count = count,
                                .capacity = std::min(cache_bytes / stride, count),
                                .cyclic = spec.cyclic,
                                .row_bytes = stride},
                               batch_nodes_max);
    cells += count * CeilDiv(stride, kPageBytes);  // a checksum each, at most
  }
  const uint64_t edges_max = BatchEdgesMax(
      spec.road, batch_nodes_max, topology.edge_count * Times::Of(topology, manifest.node_count).count);
  const auto in_32_bits = [](uint64_t count) {
    return static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX));
  };
  const TraceSummary trace{.batch_nodes_max = in_32_bits(batch_nodes_max),
                           .batch_edges_max = in_32_bits(edges_max)};
  constexpr uint64_t kBatchBytes = 2 * sizeof(uint64_t);  // its place in the trace
  planning += batches * kBatchBytes + LayoutEncoder::MemoryBytes(rows.node_count, trace, spec.road);
  const uint64_t stride = rows.StrideMax();
  const uint64_t pages = batches * CeilDiv(batch_nodes_max * stride, kPageBytes);
  const uint64_t packing = (cells + pages) * sizeof(uint32_t) + batches * sizeof(PackStream) +
                           PackBytesMin(stride, batches, spec.threads);
  return std::max(planning, packing);
}

}  // namespace quarry
