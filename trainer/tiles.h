// How much of what the first layer is given is in memory at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quarry {

// The first layer's input is kept for the backward pass up to this size and gathered again beyond it: wide rows
// (thousands of columns) would otherwise need gigabytes.
inline constexpr uint64_t kKeptInputBytes = uint64_t{256} << 20;
// A tile of the first layer's input: gathered, then multiplied while it is in the last-level cache.
inline constexpr uint64_t kTileBytes = uint64_t{8} << 20;
inline constexpr uint32_t kTileRowsMin = 512;

// Rows of a block whose gradients of coefficients by kind of edge are summed by themselves (rgcn_layer.h).
inline constexpr uint32_t kKindPieceRows = 512;

inline uint32_t TileRows(uint64_t row_floats) {
  return static_cast<uint32_t>(std::max<uint64_t>(kTileRowsMin, kTileBytes / (sizeof(float) * row_floats)));
}

}  // namespace quarry
