// Kernels over feature rows. rows.h chooses among them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quarry/gpu/kernel.h"
#include "quarry/gpu/row_elements.h"
#include "quarry/gpu/words.h"

namespace quarry::gpu {

// The row of `i`: where rows have no names, i itself.
QUARRY_ON_DEVICE inline uint64_t NamedRow(const uint32_t* rows, uint64_t i) {
  return rows == nullptr ? i : rows[i];
}

// Rows to other places, as they are stored: a gather, a scatter, or both. An index copies a word, and the indices of a row
// are neighbors, so that a warp reads whole lines. REQUIRES: bases, strides and rows are whole words, and no row is both
// read and written.
template <typename Word>
struct CopyRowsBy {
  static constexpr KernelName kName{"quarry_copy", "_rows", sizeof(Word)};
  static constexpr unsigned kUnroll = 4;
  const std::byte* from;
  std::byte* to;
  const uint32_t* from_rows;  // by i: its row; null: i
  const uint32_t* to_rows;
  uint64_t rows;
  uint64_t from_stride_bytes, to_stride_bytes;
  Divisor words;  // of a row

  QUARRY_ON_DEVICE uint64_t count() const { return rows * words.value(); }
  QUARRY_ON_DEVICE void operator()(uint64_t index) const { Several<1>(index, 0); }
  template <unsigned kCount>
  QUARRY_ON_DEVICE void Several(uint64_t first, uint64_t step) const {
    uint64_t rows_read[kCount], rows_written[kCount];
    uint32_t word[kCount];
    words.Divide(first, step, rows_read, word);
    for (unsigned k = 0; k < kCount; ++k) rows_written[k] = NamedRow(to_rows, rows_read[k]);
    for (unsigned k = 0; k < kCount; ++k) rows_read[k] = NamedRow(from_rows, rows_read[k]);
    Word read[kCount];
    for (unsigned k = 0; k < kCount; ++k) {
      read[k] = LoadOnce(reinterpret_cast<const Word*>(from + rows_read[k] * from_stride_bytes) + word[k]);
    }
    for (unsigned k = 0; k < kCount; ++k) {
      StoreOnce(reinterpret_cast<Word*>(to + rows_written[k] * to_stride_bytes) + word[k], read[k]);
    }
  }
};

// Rows of float16, bfloat16 or int8 as float32, one behind the other. An index decodes kWidth elements, so that what is
// written is whole lines. REQUIRES: dim is a multiple of kWidth; rows begin at whole pieces, `to` at kWidth floats.
template <typename Code, unsigned kWidth>
struct DecodeRowsBy {
  static constexpr KernelName kName{"quarry_decode_", Code::kName, kWidth};
  static constexpr unsigned kUnroll = 4;
  const std::byte* from;
  float* to;
  const uint32_t* from_rows;  // by i: its row; null: i
  uint64_t rows;
  uint64_t stride_bytes;
  uint32_t dim;
  Divisor pieces;  // of a row

  QUARRY_ON_DEVICE uint64_t count() const { return rows * pieces.value(); }
  QUARRY_ON_DEVICE void operator()(uint64_t index) const { Several<1>(index, 0); }
  template <unsigned kCount>
  QUARRY_ON_DEVICE void Several(uint64_t first, uint64_t step) const {
    uint64_t rows_read[kCount];
    uint32_t piece[kCount];
    pieces.Divide(first, step, rows_read, piece);
    for (unsigned k = 0; k < kCount; ++k) rows_read[k] = NamedRow(from_rows, rows_read[k]);
    Piece<Code, kWidth> read[kCount];
    for (unsigned k = 0; k < kCount; ++k) {
      read[k] = Piece<Code, kWidth>::Load(from + rows_read[k] * stride_bytes, piece[k], dim);
    }
    for (unsigned k = 0; k < kCount; ++k) {
      float values[kWidth];
      for (unsigned j = 0; j < kWidth; ++j) values[j] = read[k].Decoded(j);
      StoreFloats(to + (first + k * step) * kWidth, values);
    }
  }
};

// What a layer's first step gathers (trainer/aggregate.h), read in place: of each target its own row and the sum or mean of
// its neighbors' rows, or with self_apart false one sum or mean of both, added in the same order. An index has kWidth
// elements of a target. REQUIRES: as DecodeRowsBy.
template <typename Code, unsigned kWidth>
struct AggregateRowsBy {
  static constexpr KernelName kName{"quarry_aggregate_", Code::kName, kWidth};
  static constexpr unsigned kAtOnce = 4;  // neighbors whose rows are asked for before the first is added
  const std::byte* from;
  const uint32_t* from_rows;  // by local id: its row; null: the id
  const uint32_t* indptr;     // [targets + 1]
  const uint32_t* indices;    // local ids
  float* to;                  // [targets x dim], x 2 dim where self is apart
  uint64_t targets;
  uint64_t stride_bytes;
  uint32_t dim;
  bool self_apart, mean;
  Divisor pieces;  // of a row

  QUARRY_ON_DEVICE uint64_t count() const { return targets * pieces.value(); }
  QUARRY_ON_DEVICE void operator()(uint64_t index) const {
    const auto [target, piece] = Divide(index, pieces);
    float* out = to + target * dim * (self_apart ? 2 : 1) + piece * kWidth;
    float sums[kWidth] = {};
    const auto self = Load(target, piece);
    for (unsigned j = 0; j < kWidth; ++j) sums[j] = self.AddTo(0, j);
    if (self_apart) {
      StoreFloats(out, sums);
      out += dim;
      for (float& sum : sums) sum = 0;
    }
    const uint32_t first = indptr[target], last = indptr[target + 1];
    for (uint64_t e = first; e < last; e += kAtOnce) {
      Piece<Code, kWidth> read[kAtOnce] = {};
      for (unsigned k = 0; k < kAtOnce; ++k) {
        if (e + k < last) read[k] = Load(indices[e + k], piece);
      }
      for (unsigned k = 0; k < kAtOnce; ++k) {
        if (e + k >= last) break;
        for (unsigned j = 0; j < kWidth; ++j) sums[j] = read[k].AddTo(sums[j], j);
      }
    }
    const uint32_t count = last - first + (self_apart ? 0 : 1);
    if (mean && count > 1) {
      const float inverse = 1.0F / static_cast<float>(count);
      for (float& sum : sums) sum *= inverse;
    }
    StoreFloats(out, sums);
  }

 private:
  QUARRY_ON_DEVICE Piece<Code, kWidth> Load(uint64_t node, uint64_t piece) const {
    return Piece<Code, kWidth>::Load(from + NamedRow(from_rows, node) * stride_bytes, piece, dim);
  }
};

}  // namespace quarry::gpu
