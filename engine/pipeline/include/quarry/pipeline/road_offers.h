// What an open live road tells of the ways in which its memory could be divided, for the choice of a road.
#pragma once

#include <cstdint>

#include "quarry/format/feature_table.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/pipeline/road_choice.h"

namespace quarry {

// Sets how many rows could stay, and what they would leave to the lists (RoadFacts::Offer): in memory or on disk, as
// `placement` allows. As the road is open, where its cache was given or has only room for one batch at a time.
void OfferDivisions(const LiveRoad& road, LiveRoadOptions::TopologyPlacement placement,
                    const FeatureGeometry& geometry, RoadFacts::Offer& offer);

}  // namespace quarry
