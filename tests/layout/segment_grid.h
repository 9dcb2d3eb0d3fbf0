// The brute force that DiskGNN §7.3 (Table 4) holds its search against: every segment size s and every number
// m of rows in a segment's cache, on a grid, each built and measured. What SearchSegmentSize saves, and what
// it may lose, is told by this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "quarry/layout/segments.h"

namespace quarry {

// The misses of each batch that the cache of its segment holds when only the m most often missed of the
// nodes missed at least twice (the least ids among equals) go there.
class FrequentMisses {
 public:
  FrequentMisses(const MissReader& misses, uint64_t batches_per_segment, uint64_t rows_max,
                 const SegmentOptions& options)
      : misses_(misses),
        batches_per_segment_(batches_per_segment),
        rows_max_(rows_max),
        batch_count_(options.batch_count),
        cached_(options.node_count) {}

  Result<std::span<const NodeId>> Read(uint64_t batch) {
    if (segment_ != batch / batches_per_segment_) {
      segment_ = batch / batches_per_segment_;
      QUARRY_RETURN_IF_ERROR(ChooseNodes());
    }
    QUARRY_TRY(const std::span<const NodeId> nodes, misses_(batch));
    batch_.clear();
    std::ranges::copy_if(nodes, std::back_inserter(batch_), [&](NodeId node) { return cached_[node]; });
    return std::span<const NodeId>(batch_);
  }

  // The most of any segment chosen so far.
  uint64_t repeated_nodes_max() const { return repeated_nodes_max_; }

 private:
  Status ChooseNodes() {
    std::vector<uint32_t> counts(cached_.size());
    const uint64_t first = *segment_ * batches_per_segment_;
    for (uint64_t batch = first; batch < std::min(first + batches_per_segment_, batch_count_); ++batch) {
      QUARRY_TRY(const std::span<const NodeId> nodes, misses_(batch));
      for (const NodeId node : nodes) ++counts[node];
    }
    std::vector<NodeId> repeated;
    for (NodeId node = 0; node < counts.size(); ++node) {
      if (counts[node] > 1) repeated.push_back(node);
    }
    repeated_nodes_max_ = std::max<uint64_t>(repeated_nodes_max_, repeated.size());
    std::ranges::stable_sort(repeated, std::ranges::greater(), [&](NodeId node) { return counts[node]; });
    repeated.resize(std::min<uint64_t>(repeated.size(), rows_max_));
    cached_.assign(cached_.size(), false);
    for (const NodeId node : repeated) cached_[node] = true;
    return Status::Ok();
  }

  const MissReader& misses_;
  const uint64_t batches_per_segment_, rows_max_, batch_count_;
  std::optional<uint64_t> segment_;
  std::vector<bool> cached_;
  std::vector<NodeId> batch_;
  uint64_t repeated_nodes_max_ = 0;
};

// What the configuration (s, m) costs, exactly.
struct GridPoint {
  uint64_t batches_per_segment = 0;
  uint64_t cache_rows_max = 0;
  uint64_t repeated_nodes_max = 0;  // of a segment: more rows than these no cache takes
  SegmentCost cost;
};

inline Result<GridPoint> MeasureGridPoint(const MissReader& misses, uint64_t batches_per_segment,
                                          uint64_t cache_rows_max, const SegmentOptions& options) {
  FrequentMisses frequent(misses, batches_per_segment, cache_rows_max, options);
  const MissReader cached = [&](uint64_t batch) { return frequent.Read(batch); };
  QUARRY_TRY(SegmentCost cost, MeasureSegments(cached, batches_per_segment, options));
  for (uint64_t batch = 0; batch < options.batch_count; ++batch) {  // the rest are the batches' chunks
    QUARRY_TRY(const std::span<const NodeId> in_cache, cached(batch));
    QUARRY_TRY(const std::span<const NodeId> all, misses(batch));
    const uint64_t chunk_bytes = (all.size() - in_cache.size()) * options.row_bytes;
    cost.disk_bytes += RoundUp(chunk_bytes, options.page_bytes);
    cost.read_bytes += RoundUp(chunk_bytes, options.page_bytes);
    cost.useful_bytes += chunk_bytes;
  }
  return GridPoint{batches_per_segment, cache_rows_max, frequent.repeated_nodes_max(), cost};
}

struct GridSteps {
  uint64_t batches = 1;     // between segment sizes; the sizes start with 2
  uint64_t cache_rows = 1;  // between cache sizes; they start with 0 and end at or above all repeated nodes
};

// The configuration that reads least among those of the grid within `disk_bytes`; nothing when none is.
inline Result<std::optional<GridPoint>> SearchSegmentGrid(const MissReader& misses, uint64_t disk_bytes,
                                                          const SegmentOptions& options,
                                                          const GridSteps& steps) {
  std::optional<GridPoint> best;
  for (uint64_t size = 2; size <= options.batch_count; size += steps.batches) {
    for (uint64_t rows = 0;; rows += steps.cache_rows) {
      QUARRY_TRY(const GridPoint point, MeasureGridPoint(misses, size, rows, options));
      const bool fits = point.cost.disk_bytes <= disk_bytes;
      if (fits && (!best || point.cost.read_bytes < best->cost.read_bytes)) best = point;
      if (rows >= point.repeated_nodes_max) break;
    }
  }
  return best;
}

}  // namespace quarry
