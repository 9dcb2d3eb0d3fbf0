#include "quarry/gpu/sampling.h"

#include <algorithm>
#include <utility>

#include "quarry/base/units.h"
#include "quarry/gpu/renumber_kernels.h"

namespace quarry::gpu {
namespace {

constexpr uint64_t kAlignment = 256;

// Where arrays lie, one after another.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <typename T>
  T* Take(uint64_t count) {
    T* const taken = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += RoundUp(count * sizeof(T), kAlignment);
    return taken;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* const base_;
  uint64_t bytes_ = 0;
};

// A hop's work, kernel by kernel.
class Hop {
 public:
  Hop(Device& device, StreamHandle stream, const BlockArrays& arrays)
      : device_(device), stream_(stream), arrays_(arrays) {}

  Status Enqueue(const StrungAdjacency& lists, const BlockBounds& bounds, const BlockDraws& draws,
                 uint64_t seed) const {
    const GrowingBlock& block = arrays_.block;
    const uint32_t fanout = draws.fanouts[block.hop];
    const uint64_t frontier_max = bounds.frontiers[block.hop], edges_max = bounds.edges[block.hop];
    uint32_t* const offsets = arrays_.counts;
    uint32_t* const ranks = arrays_.flags;
    const uint32_t* const edges = offsets + frontier_max;  // behind the offsets, their sum
    QUARRY_RETURN_IF_ERROR(Kernel(CountDraws{.block = block,
                                             .lists = lists,
                                             .fanout = fanout,
                                             .replace = draws.replace,
                                             .counts = offsets,
                                             .frontier_max = frontier_max}));
    QUARRY_RETURN_IF_ERROR(SumUp(offsets, frontier_max));
    QUARRY_RETURN_IF_ERROR(Kernel(DrawPositions{.block = block,
                                                .lists = lists,
                                                .seed = seed,
                                                .fanout = fanout,
                                                .replace = draws.replace,
                                                .offsets = offsets,
                                                .frontier_max = frontier_max}));
    QUARRY_RETURN_IF_ERROR(
        Kernel(ResolvePositions{.block = block, .lists = lists, .edges = edges, .edges_max = edges_max}));
    QUARRY_RETURN_IF_ERROR(
        Kernel(FlagFinders{.block = block, .edges = edges, .flags = ranks, .edges_max = edges_max}));
    QUARRY_RETURN_IF_ERROR(SumUp(ranks, edges_max));
    QUARRY_RETURN_IF_ERROR(Kernel(PlaceFound{.block = block, .ranks = ranks, .edges_max = edges_max}));
    QUARRY_RETURN_IF_ERROR(Kernel(RenumberEdges{.block = block, .edges = edges, .edges_max = edges_max}));
    return Kernel(EndHop{.block = block, .edges = edges, .found = ranks + edges_max});
  }

 private:
  template <typename Body>
  Status Kernel(const Body& body) const {
    return Run(device_, body, stream_);
  }
  // Each value becomes the sum of those before it; values[size] that of all.
  Status SumUp(uint32_t* values, uint64_t size) const {
    std::vector<std::pair<uint32_t*, uint64_t>> levels = {{values, size}};
    while (levels.back().second > SumTiles::kTile) {
      const auto [below, below_size] = levels.back();
      uint32_t* const sums = arrays_.sums[levels.size() - 1];
      QUARRY_RETURN_IF_ERROR(Kernel(SumTiles{.values = below, .sums = sums, .size = below_size}));
      levels.emplace_back(sums, CeilDiv(below_size, SumTiles::kTile));
    }
    const uint32_t* before = nullptr;
    for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
      QUARRY_RETURN_IF_ERROR(
          Kernel(ScanTiles{.values = level->first, .before = before, .size = level->second}));
      before = level->first;
    }
    return Status::Ok();
  }

  Device& device_;
  const StreamHandle stream_;
  const BlockArrays& arrays_;
};

}  // namespace

BlockBounds::BlockBounds(uint64_t node_count, std::span<const uint32_t> fanouts, uint64_t seeds)
    : nodes(std::min(node_count, seeds)) {
  uint64_t frontier = nodes;
  for (const uint32_t fanout : fanouts) {
    targets = nodes;
    frontiers.push_back(frontier);
    const uint64_t drawn = edges.emplace_back(frontier * fanout);
    all_edges += drawn;
    hop_edges = std::max(hop_edges, drawn);
    nodes = std::min(node_count, nodes + drawn);
    frontier = std::min(node_count, drawn);
  }
}

uint64_t BlockArrays::Carve(std::byte* base, uint64_t node_count, const BlockBounds& bounds,
                            const BlockDraws& draws) {
  const size_t hops = bounds.edges.size();
  Carver carver(base);
  block = {.nodes = carver.Take<uint32_t>(bounds.nodes),
           .indptr = carver.Take<uint32_t>(bounds.targets + 1),
           .indices = carver.Take<uint32_t>(bounds.all_edges),
           .positions = carver.Take<uint64_t>(draws.keeps_positions ? bounds.all_edges : bounds.hop_edges),
           .locals = carver.Take<uint32_t>(node_count),
           .keeps_positions = draws.keeps_positions};
  marks = carver.Take<uint32_t>(2 * hops + 3);
  block.node_marks = marks;
  block.edge_marks = marks == nullptr ? nullptr : marks + hops + 2;
  counts = carver.Take<uint32_t>(*std::ranges::max_element(bounds.frontiers) + 1);
  flags = carver.Take<uint32_t>(bounds.hop_edges + 1);
  sums.clear();
  for (uint64_t size = bounds.hop_edges; size > SumTiles::kTile;) {
    size = CeilDiv(size, SumTiles::kTile);
    sums.push_back(carver.Take<uint32_t>(size + 1));
  }
  return carver.bytes();
}

Status EnqueueBlock(Device& device, StreamHandle stream, BlockArrays& arrays, const StrungAdjacency& lists,
                    const BlockBounds& bounds, const BlockDraws& draws, uint64_t seed) {
  arrays.block.hop = 0;
  QUARRY_RETURN_IF_ERROR(
      Run(device, PlaceSeeds{.block = arrays.block, .seeds = static_cast<uint32_t>(bounds.frontiers.front())},
          stream));
  const Hop hop(device, stream, arrays);
  for (; arrays.block.hop < draws.fanouts.size(); ++arrays.block.hop) {
    QUARRY_RETURN_IF_ERROR(hop.Enqueue(lists, bounds, draws, seed));
  }
  return Status::Ok();
}

Status EnqueueForgetting(Device& device, StreamHandle stream, BlockArrays& arrays,
                         const BlockBounds& bounds) {
  arrays.block.hop = static_cast<uint32_t>(bounds.edges.size());
  return Run(device, ForgetNodes{.block = arrays.block, .nodes_max = bounds.nodes}, stream);
}

}  // namespace quarry::gpu
