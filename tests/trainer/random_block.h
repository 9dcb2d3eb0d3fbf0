// Blocks and graphs that the trainer's tests make up.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/sampling/block.h"

namespace quarry {

// A block of the given nodes per hop prefix (seeds first), with 0 to degree_max neighbors a node, drawn with
// replacement from the prefix that the node's hop may reach.
inline Block RandomBlock(Rng& rng, std::vector<uint32_t> hop_offsets, uint32_t degree_max) {
  Block block;
  block.hop_offsets = std::move(hop_offsets);
  block.nodes.resize(block.hop_offsets.back());
  std::iota(block.nodes.begin(), block.nodes.end(), 0);
  block.indptr.push_back(0);
  for (uint32_t hop = 0; hop + 1 < block.hop_offsets.size(); hop++) {
    for (uint32_t v = hop == 0 ? 0 : block.hop_offsets[hop - 1]; v < block.hop_offsets[hop]; v++) {
      const uint64_t degree = rng.Below(degree_max + 1);
      for (uint64_t k = 0; k < degree; k++) {
        block.indices.push_back(static_cast<uint32_t>(rng.Below(block.hop_offsets[hop + 1])));
      }
      block.indptr.push_back(static_cast<uint32_t>(block.indices.size()));
    }
  }
  return block;
}

inline std::vector<float> RandomMatrix(Rng& rng, size_t elements) {
  std::vector<float> values(elements);
  for (float& value : values) value = static_cast<float>(2 * rng.Unit() - 1);
  return values;
}

}  // namespace quarry
