// Who samples a live road's batches: processors, or the device that the road was given for it. Private to this room.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/sampling/device_sampler.h"
#include "quarry/sampling/sampler.h"
#include "quarry/sampling/seed_order.h"
#include "quarry/storage/times.h"

namespace quarry {

inline bool SamplesOnDevice(const LiveRoadOptions& options) {
  return options.sampling.device != nullptr && options.sampling.samples;
}
// kUsage and kUnsupported for options that no live road has, whatever the database.
Status CheckLiveOptions(const LiveRoadOptions& options);
// kUnsupported for what has not been taught that a block's nodes are at several times. `path` is the database's.
Status CheckTimes(const LiveRoadOptions& options, const Times& times, const std::string& path);
// What a pass holds of its seeds, and ordering them takes.
inline uint64_t SeedsBytes(uint64_t seeds, const Times& times) {
  return seeds * sizeof(NodeId) + ShuffleBytes(seeds, times.count);
}
// Why a batch that was probed found no room.
Status BatchTooLarge(const RoadSpec& spec, uint64_t left_bytes, uint64_t limit_bytes);
// What each sampler takes there.
DeviceSamplerNeed NeedOfLiveSampler(const LiveRoadOptions& options, const Topology& topology);
// How much of the device's memory lists and all samplers take; 0 where processors sample.
uint64_t SamplingDeviceBytes(const LiveRoadOptions& options, const Topology& topology);
// kOutOfBudget names the least that the device must give.
Status CheckSamplingFits(const LiveRoadOptions& options, const Topology& topology);
// One for each of the road's threads. `lists` gets those of the device, where that samples: they outlive the samplers.
// REQUIRES: the topology's indices are loaded then.
Result<std::vector<std::unique_ptr<NeighborSampler>>> MakeLiveSamplers(const LiveRoadOptions& options,
                                                                       const NeighborSource& source,
                                                                       std::unique_ptr<DeviceLists>& lists);

}  // namespace quarry
