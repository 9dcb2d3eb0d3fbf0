#include "live_sampling.h"

#include <utility>

#include "quarry/base/units.h"

namespace quarry {

Status CheckLiveOptions(const LiveRoadOptions& options) {
  if (options.spec.batch_size == 0)
    return Status(Code::kUsage, "batch size 0: a batch needs at least one seed");
  if (options.spec.seed_order != SeedOrder::kRandom) {
    return Status(Code::kUsage, "a live road takes its seeds in random order; others are planned: layouts");
  }
  if (options.sampler_threads == 0 || options.extractor_threads == 0) {
    return Status(Code::kUsage,
                  "0 threads for a stage: the live road needs a sampler and an extractor at least");
  }
  if (!options.spec.relation_fanouts.empty() && (options.gpu.device != nullptr || SamplesOnDevice(options))) {
    return Status(Code::kUnsupported,
                  "fanouts by type of edges: batches are sampled by the processor, to memory");
  }
  if (options.spec.feature_table.empty() && options.gpu.device != nullptr) {
    return Status(Code::kUnsupported, "batches without rows are made in memory: leave the device out");
  }
  if (options.io_depth == 0) return Status(Code::kUsage, "an I/O depth of 0: at least 1 is needed");
  if (SamplesOnDevice(options) && options.topology_placement == LiveRoadOptions::TopologyPlacement::kDisk) {
    return Status(Code::kUsage,
                  "lists that stay on disk are not sampled on a device: leave one of the two out");
  }
  return Status::Ok();
}

Status CheckTimes(const LiveRoadOptions& options, const Times& times, const std::string& path) {
  if (!times.any()) return Status::Ok();
  if (!options.spec.relation_fanouts.empty()) {
    return MakeStatus(Code::kUnsupported, "{}: fanouts by type of edges are of graphs without times", path);
  }
  if (options.gpu.device == nullptr && !SamplesOnDevice(options)) return Status::Ok();
  return MakeStatus(Code::kUnsupported,
                    "{}: batches of nodes at {} times are made in memory: leave the device out", path,
                    times.count);
}

Status BatchTooLarge(const RoadSpec& spec, uint64_t left_bytes, uint64_t limit_bytes) {
  return MakeStatus(Code::kOutOfBudget,
                    "one batch of {} seeds with fanouts {} is larger than the {} that are left of the memory "
                    "budget of {} can hold: raise it, or lower the batch size or the fanouts",
                    spec.batch_size, fmt::join(spec.fanouts, ","), FormatBytes(left_bytes),
                    FormatBytes(limit_bytes));
}

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
