// Kernels that sample a block (quarry/sampling/block.h), hop after hop, on the device: for each node of the frontier how many
// neighbors it gets, which positions of its list, who stands there, and who of them is new. Nothing comes back to the host
// in between: how far a block is grown stands in device memory, and a launch has as many indices as there can be at most.
//
// The block is the processor's, bit for bit (engine/sampling): the same draws of the same numbers, and new nodes in the order
// in which they are first met.
#pragma once

#include <cstdint>

#include "quarry/base/random.h"
#include "quarry/gpu/kernel.h"

namespace quarry::gpu {

// Lists of neighbors, of one side or of two that are strung together: node v's are indices[indptr[v], indptr[v + 1]).
struct DeviceAdjacency {
  const uint64_t* indptr;
  const uint32_t* indices;

  QUARRY_ON_DEVICE uint64_t Degree(uint32_t node) const { return indptr[node + 1] - indptr[node]; }
};
struct StrungAdjacency {
  DeviceAdjacency sides[2];
  uint32_t side_count;

  QUARRY_ON_DEVICE uint64_t Degree(uint32_t node) const {
    return sides[0].Degree(node) + (side_count == 2 ? sides[1].Degree(node) : 0);
  }
};

// A block as it grows. The nodes of hop h's frontier are nodes[node_marks[h], node_marks[h + 1]); its edges lie from
// edge_marks[h] on.
struct GrowingBlock {
  uint32_t* nodes;
  uint32_t* indptr;     // behind node i's neighbors
  uint32_t* indices;    // ids of nodes, until they are renumbered
  uint64_t* positions;  // of the hop's edges, in their lists; of one side, among all indices
  uint32_t* locals;  // by node of the graph: its place in the block, or kNotMet, or kMetAt and the hop's edge
  uint32_t* node_marks;  // [hops + 2]; the first two are 0 and the seeds
  uint32_t* edge_marks;  // [hops + 1]
  uint32_t hop;
  bool keeps_positions;

  static constexpr uint32_t kNotMet = 0xffffffff, kMetAt = 0x80000000;

  QUARRY_ON_DEVICE uint32_t frontier_begin() const { return node_marks[hop]; }
  QUARRY_ON_DEVICE uint32_t frontier_count() const { return node_marks[hop + 1] - node_marks[hop]; }
  QUARRY_ON_DEVICE uint32_t known() const { return node_marks[hop + 1]; }
  QUARRY_ON_DEVICE uint32_t first_edge() const { return edge_marks[hop]; }
  QUARRY_ON_DEVICE uint64_t* hop_positions() const {
    return positions + (keeps_positions ? first_edge() : 0);
  }
};

struct PlaceSeeds {
  static constexpr char kName[] = "quarry_place_seeds";
  GrowingBlock block;
  uint32_t seeds;

  QUARRY_ON_DEVICE uint64_t count() const { return seeds; }
  QUARRY_ON_DEVICE void operator()(uint64_t i) const {
    block.locals[block.nodes[i]] = static_cast<uint32_t>(i);
    if (i != 0) return;
    block.node_marks[0] = block.edge_marks[0] = 0;
    block.node_marks[1] = seeds;
    block.indptr[0] = 0;
  }
};

// How many neighbors each node of the frontier gets; 0 beyond it.
struct CountDraws {
  static constexpr char kName[] = "quarry_count_draws";
  GrowingBlock block;
  StrungAdjacency lists;
  uint32_t fanout;
  bool replace;
  uint32_t* counts;
  uint64_t frontier_max;

  QUARRY_ON_DEVICE static uint32_t Taken(uint64_t degree, uint32_t fanout, bool replace) {
    return degree >= fanout || (replace && degree > 0) ? fanout : static_cast<uint32_t>(degree);
  }
  QUARRY_ON_DEVICE uint64_t count() const { return frontier_max; }
  QUARRY_ON_DEVICE void operator()(uint64_t i) const {
    counts[i] = i < block.frontier_count()
                    ? Taken(lists.Degree(block.nodes[block.frontier_begin() + i]), fanout, replace)
                    : 0;
  }
};

// ---- sums of all before: tiles of kTile values, level upon level. The first value of the level above is 0 when it is the last

struct SumTiles {
  static constexpr char kName[] = "quarry_sum_tiles";
  static constexpr uint64_t kTile = 64;
  const uint32_t* values;
  uint32_t* sums;  // by tile
  uint64_t size;

  QUARRY_ON_DEVICE uint64_t count() const { return (size + kTile - 1) / kTile; }
  QUARRY_ON_DEVICE void operator()(uint64_t tile) const {
    const uint64_t begin = tile * kTile, end = begin + kTile < size ? begin + kTile : size;
    uint32_t sum = 0;
    for (uint64_t i = begin; i < end; ++i) sum += values[i];
    sums[tile] = sum;
  }
};

// Each value becomes the sum of all before it; values[size] that of all.
struct ScanTiles {
  static constexpr char kName[] = "quarry_scan_tiles";
  uint32_t* values;
  const uint32_t* before;  // by tile; null: there is one
  uint64_t size;

  QUARRY_ON_DEVICE uint64_t count() const { return (size + SumTiles::kTile - 1) / SumTiles::kTile; }
  QUARRY_ON_DEVICE void operator()(uint64_t tile) const {
    const uint64_t begin = tile * SumTiles::kTile;
    const uint64_t end = begin + SumTiles::kTile < size ? begin + SumTiles::kTile : size;
    uint32_t sum = before == nullptr ? 0 : before[tile];
    for (uint64_t i = begin; i < end; ++i) {
      const uint32_t value = values[i];
      values[i] = sum;
      sum += value;
    }
    if (end == size) values[size] = sum;
  }
};

// Draws the positions of each node's neighbors: distinct by Floyd's algorithm, as engine/sampling/draw.h does, or with
// replacement. Short lists are taken whole.
struct DrawPositions {
  static constexpr char kName[] = "quarry_draw_positions";
  // With two sides a position is one of the strung list, and this tells the second.
  static constexpr uint64_t kSecondSide = uint64_t{1} << 63;
  GrowingBlock block;
  StrungAdjacency lists;
  uint64_t seed;  // of the block
  uint32_t fanout;
  bool replace;
  const uint32_t* offsets;  // of the frontier's nodes, among the hop's edges
  uint64_t frontier_max;

  QUARRY_ON_DEVICE uint64_t count() const { return frontier_max; }
  QUARRY_ON_DEVICE void operator()(uint64_t i) const {
    if (i >= block.frontier_count()) return;
    const uint32_t at = block.frontier_begin() + static_cast<uint32_t>(i), node = block.nodes[at];
    const uint64_t first = lists.sides[0].Degree(node), degree = lists.Degree(node);
    uint64_t* const out = block.hop_positions() + offsets[i];
    const uint32_t taken = offsets[i + 1] - offsets[i];
    Draw(node, degree, taken, out);
    for (uint32_t k = 0; k < taken; ++k) {
      out[k] = out[k] < first ? lists.sides[0].indptr[node] + out[k]
                              : (lists.sides[1].indptr[node] + out[k] - first) | kSecondSide;
    }
    block.indptr[at + 1] = block.first_edge() + offsets[i + 1];
  }

 private:
  QUARRY_ON_DEVICE void Draw(uint32_t node, uint64_t degree, uint32_t taken, uint64_t* out) const {
    if (!replace && degree <= fanout) {
      for (uint32_t k = 0; k < taken; ++k) out[k] = k;
      return;
    }
    Rng numbers(MixSeed(seed, node));
    for (uint32_t k = 0; k < taken; ++k) {
      const uint64_t last = degree - taken + k;
      uint64_t drawn = numbers.Below(replace ? degree : last + 1);
      for (uint32_t j = 0; !replace && j < k; ++j) {
        if (out[j] == drawn) {
          drawn = last;  // no earlier draw could give it
          break;
        }
      }
      out[k] = drawn;
    }
  }
};

}  // namespace quarry::gpu
