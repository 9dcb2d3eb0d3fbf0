#include "memory_plan.h"

#include <algorithm>

#include "quarry/base/units.h"

namespace quarry {
namespace {

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
  const uint64_t metadata = FeatureBuffer::MemoryBytes(slots) - plan.cache_bytes - plan.flight_bytes;
  plan.fixed_bytes = d.resident_bytes + metadata + plan.frame_count * d.frame_bytes +
                     d.sampler_threads * (choice.in_memory ? d.memory_sampler_bytes : d.disk_sampler_bytes) +
                     d.extractor_threads * (d.extractor_bytes + choice.staging_bytes);
  return plan;
}

// The most rows whose cache fits, beside what the neighbor cache is to have; none where not even that does.
uint64_t RowsThatFit(const MemoryDemand& d, Choice choice) {
  const auto bytes_of = [&](uint64_t rows) { return PlanOf(d, choice, rows).total_bytes() + d.beside_bytes; };
  const uint64_t least_bytes = bytes_of(0);
  if (least_bytes >= d.available_bytes) return 0;
  uint64_t most_bytes = d.available_bytes;
  if (!choice.in_memory) most_bytes -= std::min(d.indices_bytes, (most_bytes - least_bytes) / 2);
  uint64_t fits = 0, beyond = d.node_count + 1;
  while (beyond - fits > 1) {
    const uint64_t rows = fits + (beyond - fits) / 2;
    (bytes_of(rows) <= most_bytes ? fits : beyond) = rows;
  }
  return fits;
}

}  // namespace

uint32_t FrameCount(unsigned sampler_threads, unsigned extractor_threads, uint32_t batches_in_flight) {
  return sampler_threads + std::max(extractor_threads, batches_in_flight) + 1;
}

uint64_t LeastBytes(const MemoryDemand& demand) {
  const uint64_t rows = demand.cache_takes_what_is_left
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
    const uint64_t rows = demand.cache_takes_what_is_left
                              ? RowsThatFit(demand, choice)
                              : std::min(demand.cache_bytes / demand.slot_bytes, demand.node_count);
    LiveRoadPlan plan = PlanOf(demand, choice, rows);
    const uint64_t bytes = plan.total_bytes() + demand.beside_bytes;
    if (bytes <= demand.available_bytes) {
      if (!plan.topology_in_memory) plan.neighbor_cache_bytes = demand.available_bytes - bytes;
      return plan;
    }
  }
  // Rounded up to whole MiB, so that the figure can be typed as it stands.
  const uint64_t least_mib = CeilDiv(demand.other_bytes + LeastBytes(demand), kMiB);
  return MakeStatus(
      Code::kOutOfBudget,
      "one batch of up to {} input nodes ({} of rows) with a cache of {} needs a memory budget of {}MiB, "
      "the budget is {}: raise it, or lower the cache, the batch size or the fanouts",
      demand.rows_of_batches.front(), FormatBytes(demand.rows_of_batches.front() * demand.slot_bytes),
      FormatBytes(demand.cache_bytes), least_mib, FormatBytes(demand.available_bytes + demand.other_bytes));
}

}  // namespace quarry
