// What may stand in the place of a fanout, and what a road's fanouts ask for. Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "quarry/format/road_spec.h"

namespace quarry {

// In the place of a fanout: all neighbors of a node, for batches that are sampled as they come. Refused where a node has more
// than 2^20 (quarry/sampling/all_neighbors.h).
inline constexpr uint32_t kAllNeighbors = 0xffffffff;

// "10", or "all".
inline std::string FanoutName(uint32_t fanout) {
  return fanout == kAllNeighbors ? "all" : std::to_string(fanout);
}

inline bool TakesAll(std::span<const uint32_t> fanouts) {
  return std::ranges::find(fanouts, kAllNeighbors) != fanouts.end();
}
// Whether some hop does, by edges of some type or by all.
inline bool TakesAll(const RoadSpec& spec) {
  return TakesAll(spec.fanouts) || TakesAll(spec.relation_fanouts);
}

// How many types of edges the fanouts are by; 0: they are not by type.
inline size_t RelationCount(std::span<const uint32_t> fanouts, std::span<const uint32_t> relation_fanouts) {
  return fanouts.empty() ? 0 : relation_fanouts.size() / fanouts.size();
}

}  // namespace quarry
