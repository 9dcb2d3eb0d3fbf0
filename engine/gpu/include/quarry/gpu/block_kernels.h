// Kernels over the arrays of a block (quarry/sampling/block.h), which become what frameworks take.
#pragma once

#include <cstdint>

#include "quarry/gpu/kernel.h"
#include "quarry/gpu/words.h"

namespace quarry::gpu {

// Edges as pairs of local ids: out[0, edges) the neighbors, out[edges, 2 * edges) the nodes that they were drawn for. An
// index is an edge and looks its target up by halving, for whose steps the first cache has nearly all of indptr: whole lines
// are written, and no thread waits for another's many neighbors.
struct WriteEdges {
  static constexpr char kName[] = "quarry_write_edges";
  static constexpr unsigned kUnroll = 4;
  const uint32_t* indptr;  // [targets + 1]; its last is `edges`
  const uint32_t* indices;
  int64_t* out;
  uint64_t targets, edges;

  QUARRY_ON_DEVICE uint64_t count() const { return edges; }
  QUARRY_ON_DEVICE void operator()(uint64_t edge) const { Several<1>(edge, 0); }
  template <unsigned kCount>
  QUARRY_ON_DEVICE void Several(uint64_t first, uint64_t step) const {
    // The last target that begins at the edge or before it: one without edges begins where the next does, and is passed by.
    uint64_t low[kCount] = {};
    for (uint64_t length = targets; length > 1;) {
      const uint64_t half = length / 2;
      for (unsigned k = 0; k < kCount; ++k) {
        if (indptr[low[k] + half] <= first + k * step) low[k] += half;
      }
      length -= half;
    }
    for (unsigned k = 0; k < kCount; ++k) {
      const uint64_t edge = first + k * step;
      StoreOnce<int64_t>(out + edge, LoadOnce(indices + edge));
      StoreOnce<int64_t>(out + edges + edge, static_cast<int64_t>(low[k]));
    }
  }
};

// Ids as frameworks have them.
struct WidenIds {
  static constexpr char kName[] = "quarry_widen_ids";
  static constexpr unsigned kUnroll = 4;
  const uint32_t* ids;
  int64_t* out;
  uint64_t size;

  QUARRY_ON_DEVICE uint64_t count() const { return size; }
  QUARRY_ON_DEVICE void operator()(uint64_t i) const { Several<1>(i, 0); }
  template <unsigned kCount>
  QUARRY_ON_DEVICE void Several(uint64_t first, uint64_t step) const {
    uint32_t read[kCount];
    for (unsigned k = 0; k < kCount; ++k) read[k] = LoadOnce(ids + first + k * step);
    for (unsigned k = 0; k < kCount; ++k) StoreOnce<int64_t>(out + first + k * step, read[k]);
  }
};

}  // namespace quarry::gpu
