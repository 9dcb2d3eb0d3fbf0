#include "quarry/sampling/all_neighbors.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "quarry/sampling/sampler.h"

namespace quarry {
namespace {

// The most neighbors of a node: a pass over all of them.
uint64_t DegreeMax(const Topology& topology, Direction direction) {
  std::span<const uint64_t> sides[2];
  size_t count = 0;
  for (const Adjacency side : SidesOf(direction)) {
    if (topology.has(side)) sides[count++] = topology.indptr(side);
  }
  uint64_t most = 0;
  for (uint64_t node = 0; count > 0 && node < topology.node_count(); ++node) {
    uint64_t degree = sides[0][node + 1] - sides[0][node];
    if (count > 1) degree += sides[1][node + 1] - sides[1][node];
    most = std::max(most, degree);
  }
  return most;
}

uint64_t KnownDegreeMax(const Topology& topology, Direction direction, std::atomic<uint64_t>* known) {
  if (known == nullptr) return DegreeMax(topology, direction);
  if (const uint64_t found = known->load(std::memory_order_relaxed); found > 0) return found - 1;
  const uint64_t most = DegreeMax(topology, direction);
  known->store(most + 1, std::memory_order_relaxed);
  return most;
}

Status TakeAll(uint64_t degree_max, std::string_view what, uint32_t& fanout) {
  if (degree_max > NeighborSampler::kDegreeMax) {
    return MakeStatus(Code::kUnsupported,
                      "all neighbors {}: that is up to {} of a node, and {} are the most that are taken in a "
                      "hop: give a number",
                      what, degree_max, NeighborSampler::kDegreeMax);
  }
  fanout = static_cast<uint32_t>(degree_max);
  return Status();
}

Status CountByType(const TypedLists& types, std::span<const EdgeTypeRecord> edge_types, RoadSpec& spec) {
  const uint32_t relations = types.relation_count();
  for (size_t i = 0; i < spec.relation_fanouts.size(); ++i) {
    if (spec.relation_fanouts[i] != kAllNeighbors) continue;
    const auto relation = static_cast<uint32_t>(i % relations);
    QUARRY_RETURN_IF_ERROR(TakeAll(types.DegreeMax(relation),
                                   "by edges of type '" + edge_types[relation].name + "'",
                                   spec.relation_fanouts[i]));
  }
  // A spec of another number of fanouts than hops and types come to, the sampler refuses.
  for (size_t hop = 0; hop < spec.fanouts.size() && (hop + 1) * relations <= spec.relation_fanouts.size();
       ++hop) {
    if (spec.fanouts[hop] != kAllNeighbors) continue;
    uint64_t most = 1;
    for (uint32_t type = 0; type < types.type_count(); ++type) {
      uint64_t sum = 0;
      for (const uint32_t relation : types.RelationsInto(type))
        sum += spec.relation_fanouts[hop * relations + relation];
      most = std::max(most, sum);
    }
    QUARRY_RETURN_IF_ERROR(TakeAll(most, "by edges of all types", spec.fanouts[hop]));
  }
  return Status();
}

}  // namespace

Status CountAllNeighbors(const Topology& topology, const TypedLists* types,
                         std::span<const EdgeTypeRecord> edge_types, RoadSpec& spec,
                         std::atomic<uint64_t>* known) {
  // By type, `fanouts` are but the sums of what is asked for.
  if (spec.replace && TakesAll(types == nullptr ? spec.fanouts : spec.relation_fanouts)) {
    return Status(Code::kUsage, "all neighbors, with replacement: give numbers, or leave replacement out");
  }
  if (types != nullptr) return CountByType(*types, edge_types, spec);
  if (!TakesAll(spec.fanouts)) return Status();
  const uint64_t most = KnownDegreeMax(topology, spec.direction, known);
  for (uint32_t& fanout : spec.fanouts) {
    if (fanout != kAllNeighbors) continue;
    QUARRY_RETURN_IF_ERROR(TakeAll(most, "of nodes", fanout));
    fanout = std::max(fanout, 1U);
  }
  return Status();
}

}  // namespace quarry
