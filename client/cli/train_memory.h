// The least budget of memory that a road needs, known before anything is built: what `quarry train --dry-run` says, what
// roads are offered by, and below which training is refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/layout/layout.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/pipeline/road_choice.h"

namespace quarry::cli {

// What the machine or cgroup has, and what the trainer takes of it.
struct MachineMemory {
  uint64_t machine_bytes = 0;
  uint64_t trainer_bytes = 0;
  // What the trainer needs of such a budget, since the machine has no more beside it.
  uint64_t TrainerOf(uint64_t budget_bytes) const {
    const uint64_t spare = machine_bytes - std::min(machine_bytes, budget_bytes);
    return trainer_bytes - std::min(trainer_bytes, spare);
  }
  // Whether a road that needs so much, without the trainer, has a budget at all; then that is its least, since a lower
  // one leaves the trainer more.
  bool Holds(uint64_t least_bytes) const { return least_bytes + trainer_bytes <= machine_bytes; }
};

// "needs a memory budget of 12MiB, and has 9.00 MiB": why a road that needs so much, without the trainer, is not on offer
// within `budget_bytes`.
std::string WhyTooLittle(const MachineMemory& memory, uint64_t least_bytes, uint64_t budget_bytes);

// What is known of a run before its road is open.
struct RoadDemand {
  LiveRoadNeed live;           // of a road without a cache
  uint64_t others_bytes = 0;   // of the budget, held by others
  uint64_t trainer_bytes = 0;  // of the budget, for the trainer
  uint64_t train_nodes = 0;
};

// The least budget of the planned road of such a layout, or of the one that builds one for every epoch, beside the passes
// that are sampled live.
// REQUIRES: not the live road.
uint64_t LeastBudget(RoadKind road, const Manifest& manifest, const LayoutSpec& spec,
                     const RoadDemand& demand);

// As it is written, so that it may be given again.
uint64_t WholeMib(uint64_t bytes);

}  // namespace quarry::cli
