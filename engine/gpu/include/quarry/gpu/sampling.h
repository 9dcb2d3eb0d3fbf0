// Sampling a block on a device: where its arrays lie, and its hops as work on a stream. Who starts it, and takes the block
// over, is quarry/sampling/device_sampler.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/gpu/device.h"
#include "quarry/gpu/sample_kernels.h"

namespace quarry::gpu {

// How blocks are drawn: uniformly, of each node by itself.
struct BlockDraws {
  std::span<const uint32_t> fanouts;
  bool replace = false;
  bool keeps_positions = false;  // of all edges, until the block is forgotten
};

// The most that a block of some seeds can become, whatever is drawn.
struct BlockBounds {
  BlockBounds(uint64_t node_count, std::span<const uint32_t> fanouts, uint64_t seeds);

  std::vector<uint64_t> frontiers, edges;  // by hop
  uint64_t nodes = 0, targets = 0, all_edges = 0, hop_edges = 0;
};

// A block's arrays, one after another in the device's memory; a block of fewer seeds than the bounds' may use them.
struct BlockArrays {
  // Puts them to `base`, and returns how many bytes they take; null to learn those.
  uint64_t Carve(std::byte* base, uint64_t node_count, const BlockBounds& bounds, const BlockDraws& draws);

  GrowingBlock block{};
  uint32_t* marks = nullptr;  // [2 * hops + 3]: node_marks, then edge_marks
  uint32_t* counts = nullptr;
  uint32_t* flags = nullptr;
  std::vector<uint32_t*> sums;  // of tiles, level upon level
};

// The whole block. `seeds` of them, unique, stand in block.nodes by then, and block.locals is kNotMet throughout.
Status EnqueueBlock(Device& device, StreamHandle stream, BlockArrays& arrays, const StrungAdjacency& lists,
                    const BlockBounds& bounds, const BlockDraws& draws, uint64_t seed);
// block.locals is kNotMet again.
Status EnqueueForgetting(Device& device, StreamHandle stream, BlockArrays& arrays, const BlockBounds& bounds);

}  // namespace quarry::gpu
