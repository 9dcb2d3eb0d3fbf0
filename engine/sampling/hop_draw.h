// HopDraw: how the nodes of a frontier choose their neighbors. One class for each way to choose; a sampler has one, and
// does the rest: hops, resolving, renumbering.
//
//   UniformDraw   uniformly, of each node by itself, without replacement or with it
//   WeightedDraw  by the weights of edges, of each node by itself, without replacement or with it
//   TypedDraw     uniformly, of each node and each type of edges into it by themselves
//   LaborDraw     by numbers that the nodes of a hop share, uniformly or by weight
//
// Private to this room. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/status.h"
#include "quarry/format/road_spec.h"
#include "quarry/format/types.h"
#include "quarry/sampling/sampler.h"
#include "resolver.h"

namespace quarry {

// Nodes ahead of the one drawn for whose indptr is fetched.
inline constexpr size_t kNodesAhead = 16;

// The numbers that a node's draws take: of the block's seed and the node alone, so that whoever draws, and in whatever order
// (a device, all nodes at once; the owner of a part), draws the same.
inline Rng RngOfNode(uint64_t block_seed, NodeId node) { return Rng(MixSeed(block_seed, node)); }

// What was drawn for some nodes of the frontier, their edges one after another.
struct Drawn {
  std::vector<uint64_t> positions;  // as PositionTile has them; only [0, count) mean something
  size_t count = 0;
  std::vector<NodeId>
      neighbors;  // at the positions, where the draw had to read them: `count` of them, or none
  std::vector<uint16_t> relations;  // of the edges at the positions, where fanouts are by type; else none

  // Makes room for so many positions of a tile, which are more than it has where one node's are.
  void Grow(size_t wanted, uint64_t tile_max) {
    if (wanted <= positions.size()) return;
    const size_t doubled = std::max(2 * positions.size(), size_t{kMemoryTilePositions});
    const size_t size = std::max(wanted, std::min(size_t{tile_max}, doubled));
    positions.reserve(size);  // no more than that, which resize may take
    positions.resize(size);
  }
  uint64_t memory_bytes() const {
    return positions.capacity() * sizeof(uint64_t) + neighbors.capacity() * sizeof(NodeId) +
           relations.capacity() * sizeof(uint16_t);
  }
};

class HopDraw {
 public:
  virtual ~HopDraw() = default;
  // A block begins.
  virtual void Begin(const DrawSeed& seed) = 0;
  // Draws for the first of `nodes`, as many as it takes at a time, and at least one: appends to `indptr` where the
  // neighbors of each end, and returns for how many nodes. A node whose draws no tile holds has one of its own. `hop` counts
  // from 0. REQUIRES: nodes is not empty.
  virtual Result<uint32_t> Draw(std::span<const NodeId> nodes, uint32_t hop, uint32_t fanout,
                                std::vector<uint32_t>& indptr, Drawn& drawn, SamplerStats& stats) = 0;
  virtual uint64_t memory_bytes() const = 0;
};

// The resolver outlives the draw.
std::unique_ptr<HopDraw> MakeUniformDraw(const NeighborSource& source, const RoadSpec& spec,
                                         const Resolver& resolver);
// REQUIRES: CheckTypedFanouts, of fanouts that are by type.
std::unique_ptr<HopDraw> MakeTypedDraw(const NeighborSource& source, const RoadSpec& spec,
                                       const Resolver& resolver);
std::unique_ptr<HopDraw> MakeWeightedDraw(const NeighborSource& source, const RoadSpec& spec,
                                          const Resolver& resolver);
std::unique_ptr<HopDraw> MakeLaborDraw(const NeighborSource& source, const RoadSpec& spec,
                                       Resolver& resolver);

// kUsage for fanouts that no sampler takes, kUnsupported for kAllNeighbors, which CountAllNeighbors has made a number of. By type, the sum of those into one node is bounded apart.
Status CheckFanouts(std::span<const uint32_t> fanouts, uint32_t fanout_max = NeighborSampler::kFanoutMax);
// kUnsupported for draws by type that this source cannot give, kUsage for fanouts that do not fit its types. Nothing of
// fanouts that are not by type.
Status CheckTypedFanouts(const NeighborSource& source, const RoadSpec& spec);

// The most that a node draws in a hop, where more than kFanoutMax are those of the node that has most.
inline uint32_t LargestFanout(const RoadSpec& spec) {
  const uint32_t largest = spec.fanouts.empty() ? 0 : *std::ranges::max_element(spec.fanouts);
  return std::min(largest, NeighborSampler::kDegreeMax);
}
// A node's draws as they fill a tile: no more than it has neighbors, unless they repeat.
inline uint64_t DrawsOf(uint64_t degree, uint32_t fanout, bool replace) {
  return replace && degree > 0 ? fanout : std::min<uint64_t>(degree, fanout);
}

// The positions of a tile, at most, where `drawn` are drawn and the resolver takes so many.
uint64_t HopDrawTile(const RoadSpec& spec, uint64_t drawn, uint64_t tile_max);
// What any of them holds at most, in tiles of so many positions, besides the positions in `Drawn`.
uint64_t HopDrawBytesMax(const RoadSpec& spec, uint64_t tile_positions);

}  // namespace quarry
