#include "buffer_fill.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <vector>

#include "quarry/base/trace.h"

namespace quarry {

uint64_t DistinctNodes(const BatchProbe& probe, uint64_t batches, uint64_t node_count) {
  const std::vector<uint64_t>& distinct = probe.distinct_nodes;
  if (batches == 0 || distinct.empty()) return 0;
  const auto one = static_cast<double>(distinct.front());
  auto drawn_from = static_cast<double>(node_count);
  if (distinct.size() > 1) {
    const double shared = 2 * one - static_cast<double>(distinct[1]);
    if (shared >= 1) drawn_from = std::min(drawn_from, one * one / shared);
  }
  const double missed = std::pow(1 - std::min(1.0, one / drawn_from), static_cast<double>(batches));
  return std::min(node_count, static_cast<uint64_t>(std::llround(drawn_from * (1 - missed))));
}

bool ScanPays(const DeviceProfile& device, uint64_t rows, uint64_t table_bytes) {
  return static_cast<double>(rows) / device.random_reads_per_second >
         static_cast<double>(table_bytes) / device.sequential_bytes_per_second;
}

Status FillBuffer(FeatureBuffer& buffer, const RowTarget& target, Extractor& extractor, uint64_t row_count,
                  uint64_t chunk_rows, const std::stop_token& stop, LoadStats& stats) {
  const ScopedSpan span("fill");
  std::atomic<bool> cancelled{false};
  const std::stop_callback on_stop(stop, [&cancelled] { cancelled = true; });
  std::vector<NodeId> nodes;
  std::vector<uint32_t> slots, misses, waits;
  for (uint64_t begin = 0; begin < row_count; begin += nodes.size()) {
    nodes.resize(std::min(chunk_rows, row_count - begin));
    std::iota(nodes.begin(), nodes.end(), static_cast<NodeId>(begin));
    slots.resize(nodes.size());
    QUARRY_RETURN_IF_ERROR(buffer.Acquire(nodes, slots, misses, waits));
    const Status loaded = extractor.Load(target, nodes, slots, misses, cancelled, stats);
    if (!loaded.ok()) {
      std::vector<uint32_t> missed;
      for (const uint32_t position : misses) missed.push_back(slots[position]);
      buffer.AbortLoad(missed);
    }
    buffer.Release(slots);
    QUARRY_RETURN_IF_ERROR(loaded);
  }
  return Status::Ok();
}

}  // namespace quarry
