#include "memory_plan.h"

#include <algorithm>

#include "quarry/base/units.h"

namespace quarry {
namespace {

// Frames of a device do not grow with the batches. They are a few hundredths of the rows.
constexpr uint64_t kFrameMarginPercent = 50;
constexpr uint64_t kDeviceRowAlignment = 16;  // what a device reads at once

struct Choice {
  uint32_t batches_in_flight;
  bool in_memory;
  uint64_t staging_bytes;
};

std::vector<Choice> ChoicesByPreference(const MemoryDemand& d) {
  using Placement = LiveRoadOptions::TopologyPlacement;
  const bool memory = d.placement != Placement::kDisk;
  const bool disk = d.placement != Placement::kMemory;
  std::vector<Choice> choices;
  const auto batches_max = static_cast<uint32_t>(d.rows_of_batches.size());
  for (uint32_t k = batches_max; memory && k >= 2; --k) choices.push_back({k, true, d.staging_bytes});
  if (disk && batches_max >= 2) choices.push_back({2, false, d.staging_bytes});
  for (const uint64_t staging_bytes : {d.staging_bytes, d.staging_bytes_min}) {
    if (memory) choices.push_back({1, true, staging_bytes});
    if (disk) choices.push_back({1, false, staging_bytes});
  }
  return choices;
}

LiveRoadPlan PlanOf(const MemoryDemand& d, Choice choice, uint64_t retained_max) {
  FeatureBufferOptions slots{.node_count = d.node_count, .slot_bytes = d.slot_bytes};
  slots.retained_max = retained_max;
  slots.rows_elsewhere = d.device.has_value();
  // Retained rows make way for batches in flight: those that a batch evicts on admission are the oldest,
  // which the release of the batch before it would have evicted anyway. So the cache needs room beside one
  // batch, not beside all.
  slots.slot_count = std::min(d.node_count, std::max(d.rows_of_batches[choice.batches_in_flight - 1],
                                                     slots.retained_max + d.rows_of_batches.front()));

  LiveRoadPlan plan;
  plan.staging_bytes = choice.staging_bytes;
  plan.batches_in_flight = choice.batches_in_flight;
  plan.frame_count = FrameCount(d.sampler_threads, d.extractor_threads, choice.batches_in_flight);
  plan.slot_count = slots.slot_count;
  plan.retained_max = slots.retained_max;
  plan.batch_nodes_max = d.rows_of_batches.front();
  plan.cache_bytes = slots.retained_max * d.slot_bytes;
  plan.flight_bytes = (slots.slot_count - slots.retained_max) * d.slot_bytes;
  plan.topology_in_memory = choice.in_memory;
  plan.topology_bytes = choice.in_memory ? d.indices_bytes : 0;
  uint64_t metadata = FeatureBuffer::MemoryBytes(slots);
  if (d.device) {
    const LiveDeviceOptions device = DeviceOptionsOf(d, plan);
    plan.device_bytes = LiveDevice::DeviceBytes(device);
    metadata += LiveDevice::PinnedBytes(device);
  } else {
    metadata -= plan.cache_bytes + plan.flight_bytes;
  }
  plan.fixed_bytes = d.resident_bytes + metadata + plan.frame_count * d.frame_bytes +
                     d.sampler_threads * (choice.in_memory ? d.memory_sampler_bytes : d.disk_sampler_bytes) +
                     d.extractor_threads * (d.extractor_bytes + choice.staging_bytes);
  return plan;
}

// The most rows up to `rows_max` with which bytes_of, which grows with them, is at most `bytes_max`.
template <typename BytesOf>
uint64_t MostRows(uint64_t rows_max, uint64_t bytes_max, const BytesOf& bytes_of) {
  uint64_t fits = 0, beyond = rows_max + 1;
  while (beyond - fits > 1) {
    const uint64_t rows = fits + (beyond - fits) / 2;
    (bytes_of(rows) <= bytes_max ? fits : beyond) = rows;
  }
  return fits;
}

// The most rows whose cache fits, beside what the neighbor cache is to have; none where not even that does.
uint64_t RowsThatFit(const MemoryDemand& d, Choice choice) {
  const auto bytes_of = [&](uint64_t rows) { return PlanOf(d, choice, rows).total_bytes() + d.beside_bytes; };
  const uint64_t least_bytes = bytes_of(0);
  if (least_bytes >= d.available_bytes) return 0;
  uint64_t most_bytes = d.available_bytes;
  if (!choice.in_memory) most_bytes -= std::min(d.indices_bytes, (most_bytes - least_bytes) / 2);
  return MostRows(d.node_count, most_bytes, bytes_of);
}

// The rows that stay, with such a choice.
uint64_t RetainedRows(const MemoryDemand& d, Choice choice) {
  if (d.device) {
    const uint64_t most = std::min(d.device->cache_bytes / d.slot_bytes, d.node_count);
    return MostRows(most, d.device->bytes,
                    [&](uint64_t rows) { return PlanOf(d, choice, rows).device_bytes; });
  }
  if (d.cache_takes_what_is_left) return RowsThatFit(d, choice);
  return std::min(d.cache_bytes / d.slot_bytes, d.node_count);
}

// The device has no room for the rows and arrays of one batch.
Status DeviceTooSmall(const MemoryDemand& d) {
  uint64_t least_bytes = ~uint64_t{0};
  for (const Choice choice : ChoicesByPreference(d)) {
    least_bytes = std::min(least_bytes, PlanOf(d, choice, 0).device_bytes);
  }
  if (least_bytes <= d.device->bytes) return Status::Ok();
  return MakeStatus(
      Code::kOutOfBudget,
      "one batch of up to {} input nodes ({} of rows) takes {} of the device's memory, more than the {} "
      "given: give at least {}MiB, or lower the batch size or the fanouts",
      d.rows_of_batches.front(), FormatBytes(d.rows_of_batches.front() * d.slot_bytes),
      FormatBytes(least_bytes + d.device->sampling_bytes),
      FormatBytes(d.device->bytes + d.device->sampling_bytes),
      CeilDiv(least_bytes + d.device->sampling_bytes, kMiB));
}

}  // namespace

uint32_t FrameCount(unsigned sampler_threads, unsigned extractor_threads, uint32_t batches_in_flight) {
  return sampler_threads + std::max(extractor_threads, batches_in_flight) + 1;
}

uint64_t SlotBytes(const LiveRoadOptions& options, const FeatureGeometry& geometry) {
  return options.gpu.device == nullptr ? RowStride(geometry.element_type, geometry.dim)
                                       : RoundUp(geometry.row_bytes, kDeviceRowAlignment);
}

std::optional<DeviceDemand> DeviceDemandOf(const LiveRoadOptions& options, const FeatureGeometry& geometry,
                                           uint64_t nodes_max, uint64_t edges_max, uint64_t sampling_bytes) {
  if (options.gpu.device == nullptr) return std::nullopt;
  const auto with_margin = [](uint64_t count) { return count + count * kFrameMarginPercent / 100; };
  const uint64_t stride = SlotBytes(options, geometry);
  return DeviceDemand{.options = {.frames = {.device = options.gpu.device,
                                             .stride = stride,
                                             .element_type = geometry.element_type,
                                             .dim = static_cast<uint32_t>(geometry.dim),
                                             .piece_bytes = PieceForm::BytesMax(
                                                 0, stride, with_margin(nodes_max), with_margin(edges_max), 0,
                                                 options.spec.edge_ids)},
                                  .row_pieces = options.extractor_threads + 2},
                      .bytes = options.gpu.bytes - std::min(options.gpu.bytes, sampling_bytes),
                      .cache_bytes = options.gpu.cache_bytes,
                      .sampling_bytes = sampling_bytes};
}

LiveDeviceOptions DeviceOptionsOf(const MemoryDemand& demand, const LiveRoadPlan& plan) {
  LiveDeviceOptions options = demand.device->options;
  options.frames.cached_rows = plan.slot_count;
  options.frames.count = plan.frame_count - demand.sampler_threads;  // what is being sampled needs none
  return options;
}

uint64_t LeastBytes(const MemoryDemand& demand) {
  const uint64_t rows = demand.cache_takes_what_is_left || demand.device
                            ? 0
                            : std::min(demand.cache_bytes / demand.slot_bytes, demand.node_count);
  uint64_t least_bytes = ~uint64_t{0};
  for (const Choice choice : ChoicesByPreference(demand)) {
    least_bytes = std::min(least_bytes, PlanOf(demand, choice, rows).total_bytes());
  }
  return least_bytes + demand.beside_bytes;
}

Result<LiveRoadPlan> DivideMemory(const MemoryDemand& demand) {
  for (const Choice choice : ChoicesByPreference(demand)) {
    LiveRoadPlan plan = PlanOf(demand, choice, RetainedRows(demand, choice));
    const uint64_t bytes = plan.total_bytes() + demand.beside_bytes;
    if (bytes <= demand.available_bytes && (!demand.device || plan.device_bytes <= demand.device->bytes)) {
      if (!plan.topology_in_memory) plan.neighbor_cache_bytes = demand.available_bytes - bytes;
      return plan;
    }
  }
  if (demand.device) QUARRY_RETURN_IF_ERROR(DeviceTooSmall(demand));
  // Rounded up to whole MiB, so that the figure can be typed as it stands.
  const uint64_t least_mib = CeilDiv(demand.other_bytes + LeastBytes(demand), kMiB);
  return MakeStatus(
      Code::kOutOfBudget,
      "one batch of up to {} input nodes ({} of rows) with a cache of {} needs a memory budget of {}MiB, "
      "the budget is {}: raise it, or lower the cache, the batch size or the fanouts",
      demand.rows_of_batches.front(), FormatBytes(demand.rows_of_batches.front() * demand.slot_bytes),
      FormatBytes(demand.cache_bytes), least_mib, FormatBytes(demand.available_bytes + demand.other_bytes));
}

std::string LiveRoadPlan::ToString() const {
  const std::string rows =
      fmt::format("{} cache + {} in flight ({} batches of up to {} nodes)", FormatBytes(cache_bytes),
                  FormatBytes(flight_bytes), batches_in_flight, batch_nodes_max);
  const std::string topology =
      fmt::format("{} topology ({})", FormatBytes(topology_in_memory ? topology_bytes : neighbor_cache_bytes),
                  topology_in_memory ? "indices in memory" : "neighbor cache, indices on disk");
  const std::string sampling = sampling_device_bytes == 0 ? std::string()
                                                          : fmt::format("; {} of the device for sampling",
                                                                        FormatBytes(sampling_device_bytes));
  if (device_bytes == 0) {
    return fmt::format("memory plan: {} = {} fixed + {} + {}{}", FormatBytes(total_bytes()),
                       FormatBytes(fixed_bytes), rows, topology, sampling);
  }
  return fmt::format("memory plan: {} = {} fixed + {}; of the device {} = {} + {} of frames{}",
                     FormatBytes(total_bytes()), FormatBytes(fixed_bytes), topology,
                     FormatBytes(device_bytes), rows, FormatBytes(device_bytes - cache_bytes - flight_bytes),
                     sampling);
}

}  // namespace quarry
