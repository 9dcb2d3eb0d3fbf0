#include "train_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "quarry/base/units.h"
#include "quarry/format/batch_view.h"
#include "quarry/layout/topology_place.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/storage/node_properties.h"

namespace quarry::cli {

std::string WhyTooLittle(const MachineMemory& memory, uint64_t least_bytes, uint64_t budget_bytes) {
  const std::string needs = fmt::format("needs a memory budget of {}MiB", WholeMib(least_bytes));
  if (!memory.Holds(least_bytes)) {
    return fmt::format("{} and {} for training, and the machine or cgroup has {}", needs,
                       FormatBytes(memory.trainer_bytes), FormatBytes(memory.machine_bytes));
  }
  if (least_bytes > budget_bytes) return fmt::format("{}, and has {}", needs, FormatBytes(budget_bytes));
  return fmt::format("{}, and {} leaves too little of the machine's {} for training, which takes {}", needs,
                     FormatBytes(budget_bytes), FormatBytes(memory.machine_bytes),
                     FormatBytes(memory.trainer_bytes));
}

uint64_t LeastBudget(RoadKind road, const Manifest& manifest, const LayoutSpec& spec,
                     const RoadDemand& demand) {
  const uint64_t nodes = demand.live.batch_nodes_max;
  LayoutSpec planned = spec;
  if (road == RoadKind::kFresh) planned.epochs = 1;
  const uint64_t batches = planned.BatchCount(demand.train_nodes);
  // An epoch that is built anew is read by a road that knows no other passes.
  const uint64_t own_properties = road == RoadKind::kFresh ? NodePropertiesBytes(manifest) : 0;
  const uint64_t training = demand.trainer_bytes + demand.live.least_bytes + own_properties +
                            PlannedRoad::LeastBytes(manifest, planned, demand.train_nodes, nodes);
  const uint64_t sampling = TraceSourceBytes(manifest, *manifest.FindTopology(spec.road.topology), spec.road);
  const uint64_t building = std::max(sampling, BuildBytesMax(manifest, spec, batches, nodes));
  // Building comes first and has all of the memory; or, where it goes on beside training, half of it.
  const uint64_t both =
      road == RoadKind::kFresh ? 2 * std::max(building, training) : std::max(building, training);
  return demand.others_bytes + both;
}

uint64_t WholeMib(uint64_t bytes) { return CeilDiv(bytes, kMiB); }

}  // namespace quarry::cli
