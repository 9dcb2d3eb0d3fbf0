// Kernels that turn a hop's drawn positions (sample_kernels.h) into neighbors, and those into places in the block: a node
// that was not met before gets the next place in the order of the edges that found it. The first such edge wins a minimum,
// whatever order the device takes them in.
#pragma once

#include <cstdint>

#include "quarry/gpu/atomic.h"
#include "quarry/gpu/kernel.h"
#include "quarry/gpu/sample_kernels.h"

namespace quarry::gpu {

// The neighbors at the positions; who is new is met at the smallest of its edges.
struct ResolvePositions {
  static constexpr char kName[] = "quarry_resolve_positions";
  GrowingBlock block;
  StrungAdjacency lists;
  const uint32_t* edges;  // how many the hop has
  uint64_t edges_max;

  QUARRY_ON_DEVICE uint64_t count() const { return edges_max; }
  QUARRY_ON_DEVICE void operator()(uint64_t e) const {
    if (e >= *edges) return;
    const uint64_t position = block.hop_positions()[e];
    const bool second = (position & DrawPositions::kSecondSide) != 0;
    const uint32_t node = lists.sides[second ? 1 : 0].indices[position & ~DrawPositions::kSecondSide];
    block.indices[block.first_edge() + e] = node;
    AtomicMin(block.locals + node, GrowingBlock::kMetAt | static_cast<uint32_t>(e));
  }
};

// 1 for each edge that found a node; 0 for the others, and beyond the hop's edges.
struct FlagFinders {
  static constexpr char kName[] = "quarry_flag_finders";
  GrowingBlock block;
  const uint32_t* edges;
  uint32_t* flags;
  uint64_t edges_max;

  QUARRY_ON_DEVICE uint64_t count() const { return edges_max; }
  QUARRY_ON_DEVICE void operator()(uint64_t e) const {
    flags[e] = e < *edges && block.locals[block.indices[block.first_edge() + e]] ==
                                 (GrowingBlock::kMetAt | static_cast<uint32_t>(e))
                   ? 1
                   : 0;
  }
};

// `ranks`: the flags, summed up.
struct PlaceFound {
  static constexpr char kName[] = "quarry_place_found";
  GrowingBlock block;
  const uint32_t* ranks;
  uint64_t edges_max;

  QUARRY_ON_DEVICE uint64_t count() const { return edges_max; }
  QUARRY_ON_DEVICE void operator()(uint64_t e) const {
    if (ranks[e + 1] == ranks[e]) return;
    const uint32_t node = block.indices[block.first_edge() + e], place = block.known() + ranks[e];
    block.nodes[place] = node;
    block.locals[node] = place;
  }
};

struct RenumberEdges {
  static constexpr char kName[] = "quarry_renumber_edges";
  GrowingBlock block;
  const uint32_t* edges;
  uint64_t edges_max;

  QUARRY_ON_DEVICE uint64_t count() const { return edges_max; }
  QUARRY_ON_DEVICE void operator()(uint64_t e) const {
    if (e >= *edges) return;
    uint32_t* const neighbor = block.indices + block.first_edge() + e;
    *neighbor = block.locals[*neighbor];
  }
};

// The hop is through: the next one's frontier is what it found.
struct EndHop {
  static constexpr char kName[] = "quarry_end_hop";
  GrowingBlock block;
  const uint32_t* edges;
  const uint32_t* found;

  QUARRY_ON_DEVICE uint64_t count() const { return 1; }
  QUARRY_ON_DEVICE void operator()(uint64_t /*index*/) const {
    block.node_marks[block.hop + 2] = block.known() + *found;
    block.edge_marks[block.hop + 1] = block.first_edge() + *edges;
  }
};

// The block is through: its nodes are met by nobody. `hop` counts them all.
struct ForgetNodes {
  static constexpr char kName[] = "quarry_forget_nodes";
  GrowingBlock block;
  uint64_t nodes_max;

  QUARRY_ON_DEVICE uint64_t count() const { return nodes_max; }
  QUARRY_ON_DEVICE void operator()(uint64_t i) const {
    if (i < block.known()) block.locals[block.nodes[i]] = GrowingBlock::kNotMet;
  }
};

}  // namespace quarry::gpu
