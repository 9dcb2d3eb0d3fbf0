// An epoch from a layout, beside what the same bytes take at the sequential rate of the device: for benchmarks.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/cache/gather.h"
#include "quarry/database.h"
#include "quarry/format/node_types.h"
#include "quarry/io/device.h"

namespace quarry::bench {

struct Epoch {
  double seconds = 0;
  double limit_seconds = 0;                   // the same bytes at the sequential rate
  double least_share = 0, largest_share = 0;  // of the limit, of the epochs that were run
  StreamStats stats;
  uint64_t bytes() const { return stats.feature_bytes_read + stats.topology_bytes_read; }
  double share() const { return limit_seconds / seconds; }
  double amplification() const {
    return static_cast<double>(stats.feature_bytes_read) / static_cast<double>(stats.bytes_useful);
  }
};

// Bytes a second of 1 MiB reads in order, into `memory_bytes` of huge pages in turn: the limit.
inline Result<double> SequentialRate(Database& database, const File& file, uint64_t memory_bytes,
                                     double seconds) {
  QUARRY_TRY(const IoBuffer memory, IoBuffer::Allocate(std::max<uint64_t>(memory_bytes, 16 * kMiB)));
  QUARRY_TRY(const double reads, MeasureReads(database.backend(), file,
                                              {.request_bytes = kMiB,
                                               .depth = 16,
                                               .random = false,
                                               .seconds_max = seconds,
                                               .buffer = memory.span()}));
  return reads * kMiB;
}

// Takes every batch; rows in the cache, which has the first places, are gathered beside the chunk's, which are used where
// they landed.
inline Result<StreamStats> GatherEpoch(Road& road, const std::vector<NodeId>& seeds, uint64_t cache_places,
                                       const NodeTypes& types, IoBuffer& dense) {
  QUARRY_TRY(const std::unique_ptr<BatchStream> stream, road.StartPass({.seeds = seeds, .ordered = true}));
  std::vector<std::vector<uint32_t>> cached(std::max(1U, types.size()));
  for (;;) {
    QUARRY_TRY(const std::unique_ptr<Batch> batch, stream->Next());
    if (!batch) return stream->stats();
    const BatchView& view = batch->view();
    for (auto& of_type : cached) of_type.clear();
    for (size_t i = 0; i < view.nodes.size(); ++i) {
      if (view.features.slots[i] >= cache_places) continue;
      cached[types.empty() ? 0 : types.TypeOf(view.nodes[i])].push_back(view.features.slots[i]);
    }
    for (size_t type = 0; type < cached.size(); ++type) {
      const TypeRows form =
          types.empty() ? TypeRows{view.features.element_type, view.features.dim} : view.type_rows[type];
      if (form.dim == 0) continue;
      const uint64_t row_bytes = RowBytes(form.element_type, form.dim);
      const uint64_t bytes = cached[type].size() * row_bytes;
      if (dense.size() < bytes) {
        QUARRY_TRY(dense, IoBuffer::Allocate(bytes + bytes / 4));
      }
      GatherRows({view.features.rows.data(), view.features.stride_bytes, row_bytes}, cached[type],
                 dense.span().first(bytes));
    }
  }
}

// One epoch of a cycle after its first, which also reads the cache image. The device's rate changes by a
// tenth from minute to minute: it is measured before and after each epoch, and of several epochs the one with
// the median share of it counts.
inline Result<Epoch> RunLayout(Database& database, const std::string& name, unsigned epoch_count,
                               unsigned io_depth = PlannedRoadOptions{}.io_depth) {
  QUARRY_TRY(const std::unique_ptr<PlannedRoad> road,
             database.OpenLayout({.layout = name, .io_depth = io_depth}));
  const Layout& layout = road->layout();
  const std::vector<NodeId> seeds = road->TrainNodes();
  const NodeTypes types =
      layout.directory().tables.empty() ? NodeTypes() : NodeTypes(database.manifest()->node_types);
  IoBuffer dense;
  const uint64_t places = layout.directory().places().cache_places();
  const uint64_t memory_bytes =
      road->plan().frame_bytes * road->plan().frame_count;  // where the road's reads go
  QUARRY_RETURN_IF_ERROR(GatherEpoch(*road, seeds, places, types, dense).status());
  QUARRY_TRY(double before, SequentialRate(database, layout.file(), memory_bytes, 1));
  std::vector<Epoch> epochs(epoch_count);
  for (Epoch& epoch : epochs) {
    const double start = MonotonicSeconds();
    QUARRY_TRY(epoch.stats, GatherEpoch(*road, seeds, places, types, dense));
    epoch.seconds = MonotonicSeconds() - start;
    QUARRY_TRY(const double after, SequentialRate(database, layout.file(), memory_bytes, 1));
    epoch.limit_seconds = static_cast<double>(epoch.bytes()) / ((before + after) / 2);
    before = after;
  }
  std::ranges::sort(epochs, {}, &Epoch::share);
  Epoch& median = epochs[epoch_count / 2];
  median.least_share = epochs.front().share();
  median.largest_share = epochs.back().share();
  return median;
}

}  // namespace quarry::bench
