// How a live road divides its memory: pure arithmetic over what was measured at open.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "live_device.h"
#include "quarry/base/status.h"
#include "quarry/cache/feature_buffer.h"
#include "quarry/format/feature_table.h"
#include "quarry/pipeline/live_road.h"

namespace quarry {

// A device that has the rows. Counts of frames and slots are the plan's.
struct DeviceDemand {
  LiveDeviceOptions options;
  uint64_t bytes = 0;           // that it may give
  uint64_t cache_bytes = 0;     // part of these for rows that stay, at most
  uint64_t sampling_bytes = 0;  // that sampling there has taken before
};

// From row to row, where such a road has them.
uint64_t SlotBytes(const LiveRoadOptions& options, const FeatureGeometry& geometry);
// For a road whose batches have up to so many nodes and edges; nothing without a device.
std::optional<DeviceDemand> DeviceDemandOf(const LiveRoadOptions& options, const FeatureGeometry& geometry,
                                           uint64_t nodes_max, uint64_t edges_max, uint64_t sampling_bytes);

// What there is to divide and who asks for how much.
struct MemoryDemand {
  uint64_t available_bytes = 0;  // what the budget has
  uint64_t other_bytes = 0;      // part of the budget that others hold already
  uint64_t beside_bytes = 0;     // part of what is available that others need
  uint64_t resident_bytes = 0;   // indptr, checksums, labels, splits, seeds
  uint64_t indices_bytes = 0;    // topology, if it is to be in memory
  uint64_t node_count = 0;
  uint64_t slot_bytes = 0;
  uint64_t cache_bytes = 0;  // asked for
  // Instead: as many rows as there is room for. With the topology on disk half of the rest goes to its neighbor cache.
  bool cache_takes_what_is_left = false;
  // rows_of_batches[k - 1]: distinct input nodes of k batches in flight together, margins included;
  // ascending.
  std::vector<uint64_t> rows_of_batches;
  uint64_t frame_bytes = 0;           // a batch in flight without its rows: block, slots, labels
  uint64_t memory_sampler_bytes = 0;  // scratch of one that samples from memory
  uint64_t disk_sampler_bytes = 0;    // and of one that samples from disk
  uint64_t extractor_bytes = 0;       // scratch of one, without staging
  uint64_t staging_bytes = 0;         // for each extractor
  uint64_t staging_bytes_min = 0;
  unsigned sampler_threads = 1;
  unsigned extractor_threads = 1;
  LiveRoadOptions::TopologyPlacement placement = LiveRoadOptions::TopologyPlacement::kAuto;
  // As many rows stay as it has room for, and the cache that is asked for does not count.
  std::optional<DeviceDemand> device;
};

// With a device, rows are divided there and all else here, and both must fit.
// Prefers, in this order: topology in memory with as many batches in flight as rows_of_batches tells of, down to two (one training, one being extracted); topology on disk with two; then the same with one, and with one
// and the least staging. What is left over when the topology is on disk becomes its neighbor cache.
// kOutOfBudget names the least budget that would do.
Result<LiveRoadPlan> DivideMemory(const MemoryDemand& demand);

// The least of `available_bytes` in which DivideMemory finds a division.
uint64_t LeastBytes(const MemoryDemand& demand);

// Frames that a pass uses: one for each sampler, each batch in flight, and one sampled ahead.
uint32_t FrameCount(unsigned sampler_threads, unsigned extractor_threads, uint32_t batches_in_flight);

// What such a plan has on the device.
LiveDeviceOptions DeviceOptionsOf(const MemoryDemand& demand, const LiveRoadPlan& plan);

}  // namespace quarry
