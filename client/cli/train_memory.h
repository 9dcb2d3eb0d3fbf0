// The least budget of memory that a road needs, known before anything is built: what `quarry train --dry-run` says, what
// roads are offered by, and below which training is refused.
#pragma once

#include <cstdint>

#include "quarry/base/budget.h"
#include "quarry/layout/layout.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/pipeline/road_choice.h"

namespace quarry::cli {

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
