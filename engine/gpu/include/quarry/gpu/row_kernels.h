// Kernels over feature rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quarry/gpu/kernel.h"

namespace quarry::gpu {

// 16 bytes at once, as a device's memory gives them.
struct alignas(16) Chunk {
  uint32_t words[4];
};

// Rows of an arena, made dense as they are stored: out row i is arena row slots[i]. An index copies a chunk, and the
// indices of a row are neighbors, so that a warp reads whole lines. REQUIRES: rows and strides are whole chunks.
struct GatherRows {
  static constexpr char kName[] = "quarry_gather_rows";
  const std::byte* arena;
  const uint32_t* slots;  // null: row i
  std::byte* out;
  uint64_t rows;
  uint64_t stride_bytes, out_stride_bytes;
  uint32_t chunks;  // of a row that are copied

  QUARRY_ON_DEVICE uint64_t count() const { return rows * chunks; }
  QUARRY_ON_DEVICE void operator()(uint64_t index) const {
    const uint64_t row = index / chunks, chunk = index % chunks;
    const uint64_t from = slots == nullptr ? row : slots[row];
    reinterpret_cast<Chunk*>(out + row * out_stride_bytes)[chunk] =
        reinterpret_cast<const Chunk*>(arena + from * stride_bytes)[chunk];
  }
};

struct CopyRows {
  static constexpr char kName[] = "quarry_copy_rows";
  const std::byte* from;
  std::byte* to;
  const uint32_t* from_rows;
  const uint32_t* to_rows;
  uint64_t rows, stride_bytes;
  QUARRY_ON_DEVICE uint64_t count() const { return rows; }
  QUARRY_ON_DEVICE void operator()(uint64_t i) const {
    for (uint64_t at = 0; at < stride_bytes; at += 4) {
      *reinterpret_cast<uint32_t*>(to + to_rows[i] * stride_bytes + at) =
          *reinterpret_cast<const uint32_t*>(from + from_rows[i] * stride_bytes + at);
    }
  }
};

}  // namespace quarry::gpu
