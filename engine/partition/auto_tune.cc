#include "quarry/partition/auto_tune.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr double kSortedLists = 2;  // by destination and by source

double RowsBytes(const PartitionedSizes& sizes) {
  return static_cast<double>(sizes.node_count) * static_cast<double>(sizes.row_bytes);
}
double EdgesBytes(const PartitionedSizes& sizes) {
  return static_cast<double>(sizes.edge_count) * static_cast<double>(sizes.edge_bytes);
}

// The most parts of which neither a part nor a bucket is smaller than a request.
uint32_t PartsOfRequests(const PartitionedSizes& sizes, uint64_t request_bytes) {
  const auto request = static_cast<double>(request_bytes);
  double parts = kPartsMax;
  if (sizes.row_bytes > 0) parts = std::min(parts, RowsBytes(sizes) / request);
  if (sizes.edge_count > 0) parts = std::min(parts, std::sqrt(EdgesBytes(sizes) / request));
  parts = std::min(parts, static_cast<double>(sizes.node_count));
  return static_cast<uint32_t>(std::max(parts, 2.0));
}

// The tuning of these numbers if it fits.
std::optional<PartitionTuning> Fit(const PartitionedSizes& sizes, const TuneOptions& options, uint32_t group,
                                   uint32_t logical) {
  const uint32_t parts = group * logical;
  const uint32_t buffer = 2 * group;
  const uint32_t incoming = options.prefetch && logical > 2 ? group : 0;
  const uint64_t held = PartitionBufferBytes(sizes, parts, buffer, incoming);
  if (options.working_bytes > options.memory_bytes || held > options.memory_bytes - options.working_bytes) {
    return std::nullopt;
  }
  return PartitionTuning{parts, buffer, logical, held + options.working_bytes};
}

// The tuning with the largest share of the parts in memory, of at most `parts_max` and more than half as
// many; of equal shares the one with more parts.
std::optional<PartitionTuning> LargestShare(const PartitionedSizes& sizes, const TuneOptions& options,
                                            uint32_t parts_max) {
  const bool odd = options.order == PartitionOrder::kEuler;
  for (uint32_t logical = odd ? 3 : 2; logical <= parts_max; logical += odd ? 2 : 1) {
    const uint32_t group_max = parts_max / logical;
    for (uint32_t group = group_max; group > 0 && 2 * group * logical > parts_max; --group) {
      if (const auto tuning = Fit(sizes, options, group, logical)) return tuning;
    }
  }
  return std::nullopt;
}

}  // namespace

uint64_t RequestBytesAt(const DeviceProfile& device, double share) {
  // A request of n bytes takes ReadSeconds(n, 1) = 1 / reads + (n - 4096) / bandwidth.
  const double gap = device.sequential_bytes_per_second / device.random_reads_per_second;
  const double bytes = std::max(share / (1 - share) * (gap - 4096), 4096.0);
  const auto below = std::bit_floor(static_cast<uint64_t>(bytes));
  return bytes - static_cast<double>(below) < static_cast<double>(2 * below) - bytes ? below : 2 * below;
}

uint64_t PartitionBufferBytes(const PartitionedSizes& sizes, uint32_t parts, uint32_t buffer,
                              uint32_t incoming) {
  const double p = parts;
  const double c = buffer;
  const double n = incoming;
  // The next step's buckets between two old parts are there already.
  const double buckets = c * c + (c * c - (c - n) * (c - n));
  const double bytes = (c + n) * RowsBytes(sizes) / p + kSortedLists * buckets * EdgesBytes(sizes) / (p * p);
  return bytes < 0x1p63 ? static_cast<uint64_t>(std::ceil(bytes)) : std::numeric_limits<uint64_t>::max();
}

Result<PartitionTuning> TunePartitions(const PartitionedSizes& sizes, const TuneOptions& options) {
  if (sizes.node_count < 2) {
    return MakeStatus(Code::kUsage, "{} nodes: a graph that is partitioned has at least 2", sizes.node_count);
  }
  if (options.request_bytes == 0) return Status(Code::kUsage, "reads of 0 bytes: give the size of a request");
  const uint32_t least = options.order == PartitionOrder::kEuler ? 3 : 2;
  const uint32_t most = static_cast<uint32_t>(std::min<uint64_t>(kPartsMax, sizes.node_count));
  uint32_t parts = std::clamp(PartsOfRequests(sizes, options.request_bytes), least, std::max(least, most));
  while (true) {
    if (const auto tuning = LargestShare(sizes, options, parts)) return *tuning;
    if (parts >= most) break;
    parts = std::min(2 * parts, most);
  }
  const uint32_t logical = options.order == PartitionOrder::kEuler && most % 2 == 0 ? most - 1 : most;
  const uint32_t incoming = options.prefetch && logical > 2 ? 1 : 0;
  return MakeStatus(
      Code::kOutOfBudget,
      "a partition buffer of {} nodes and {} edges: two of {} parts take {}, and {} is left of {}: give "
      "it {} or more",
      sizes.node_count, sizes.edge_count, logical,
      FormatBytes(PartitionBufferBytes(sizes, logical, 2, incoming)),
      FormatBytes(options.memory_bytes - std::min(options.memory_bytes, options.working_bytes)),
      FormatBytes(options.memory_bytes),
      FormatBytes(PartitionBufferBytes(sizes, logical, 2, incoming) + options.working_bytes));
}

}  // namespace quarry
