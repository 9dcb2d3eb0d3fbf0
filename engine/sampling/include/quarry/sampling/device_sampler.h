// DeviceSampler: sampling on a GPU whose memory holds the lists (Waleffe §3.3, Table 3.6). Blocks are those of
// NeighborSampler, bit for bit, and come back to host memory, where the road that reads their rows needs them.
//
// A sampler enqueues a whole block on a stream of its own, without looking at what comes out in between, waits for how large
// it has become, and takes it over by copies of that size. It is told when that is through by the driver (CallHost), not by
// waiting for the device.
#pragma once

#include <cstdint>
#include <memory>

#include "quarry/base/status.h"
#include "quarry/format/road_spec.h"
#include "quarry/gpu/device.h"
#include "quarry/gpu/handles.h"
#include "quarry/gpu/sample_kernels.h"
#include "quarry/sampling/sampler.h"
#include "quarry/storage/topology.h"

namespace quarry {

// The lists of a direction in a device's memory. Immutable: samplers of any threads read it.
class DeviceLists {
 public:
  static uint64_t DeviceBytes(uint64_t node_count, uint64_t edge_count, Direction direction);
  // Copies them, which may wait for the device. kOutOfBudget where they do not fit, kInvalidArgument when a side is missing.
  // REQUIRES: the indices of the direction's sides are loaded. `device` outlives it; the topology need not.
  static Result<std::unique_ptr<DeviceLists>> Load(gpu::Device& device, const Topology& topology,
                                                   Direction direction);

  gpu::Device& device() const { return *device_; }
  uint64_t node_count() const { return node_count_; }
  Direction direction() const { return direction_; }
  const gpu::StrungAdjacency& lists() const { return lists_; }

 private:
  DeviceLists() = default;

  gpu::Device* device_ = nullptr;
  uint64_t node_count_ = 0;
  Direction direction_ = Direction::kIn;
  gpu::StrungAdjacency lists_{};
  gpu::Memory indptr_[2], indices_[2];
};

struct DeviceSamplerNeed {
  uint64_t device_bytes = 0;
  uint64_t pinned_bytes = 0;  // of host memory
};

// What a sampler takes for blocks of at most so many seeds, whatever is drawn for them.
DeviceSamplerNeed NeedOfDeviceSampler(uint64_t node_count, const RoadSpec& spec, uint64_t seeds_max);

// One thread. kUnsupported for draws by weight and LABOR's, and for edge ids of other directions than kIn; kUsage as
// NeighborSampler::Make; kOutOfBudget. Sample refuses more seeds than seeds_max with kInvalidArgument; after an error of the
// device it refuses everything with that. `lists` outlives it.
Result<std::unique_ptr<NeighborSampler>> MakeDeviceSampler(const DeviceLists& lists, const RoadSpec& spec,
                                                           uint64_t seeds_max);

}  // namespace quarry
