#include "live_sampling.h"

#include <utility>

#include "quarry/base/units.h"

namespace quarry {

DeviceSamplerNeed NeedOfLiveSampler(const LiveRoadOptions& options, const Topology& topology) {
  return NeedOfDeviceSampler(topology.node_count(), options.spec, options.spec.batch_size);
}

uint64_t SamplingDeviceBytes(const LiveRoadOptions& options, const Topology& topology) {
  if (!SamplesOnDevice(options)) return 0;
  return DeviceLists::DeviceBytes(topology.node_count(), topology.edge_count(), options.spec.direction) +
         options.sampler_threads * NeedOfLiveSampler(options, topology).device_bytes;
}

Status CheckSamplingFits(const LiveRoadOptions& options, const Topology& topology) {
  const uint64_t bytes = SamplingDeviceBytes(options, topology);
  if (bytes <= options.sampling.bytes) return Status::Ok();
  return MakeStatus(
      Code::kOutOfBudget,
      "sampling on the device takes {} of its memory, lists and {} samplers, more than the {} given: give at "
      "least {}MiB, or sample on the processor",
      FormatBytes(bytes), options.sampler_threads, FormatBytes(options.sampling.bytes), CeilDiv(bytes, kMiB));
}

Result<std::vector<std::unique_ptr<NeighborSampler>>> MakeLiveSamplers(const LiveRoadOptions& options,
                                                                       const NeighborSource& source,
                                                                       std::unique_ptr<DeviceLists>& lists) {
  lists.reset();
  if (SamplesOnDevice(options)) {
    QUARRY_TRY(lists, DeviceLists::Load(*options.sampling.device, *source.topology, options.spec.direction));
  }
  std::vector<std::unique_ptr<NeighborSampler>> samplers;
  for (unsigned i = 0; i < options.sampler_threads; ++i) {
    QUARRY_TRY(std::unique_ptr<NeighborSampler> sampler,
               lists == nullptr ? NeighborSampler::Make(source, options.spec)
                                : MakeDeviceSampler(*lists, options.spec, options.spec.batch_size));
    samplers.push_back(std::move(sampler));
  }
  return samplers;
}

}  // namespace quarry
