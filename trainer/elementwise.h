// What the kernels compute elementwise, inlined into each of their clones: which elements dropout drops, and exp.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "kernel.h"
#include "quarry/base/random.h"
#include "quarry/trainer/aggregate.h"

namespace quarry {

// A 32-bit mixer with low bias (Wellons 2018): two multiplications, so eight or sixteen lanes at a time.
QUARRY_INLINE uint32_t Mix32(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352d;
  x ^= x >> 15;
  x *= 0x846ca68b;
  return x ^ (x >> 16);
}

QUARRY_INLINE uint32_t RowKey(const DropoutMask& mask, uint32_t row) {
  return static_cast<uint32_t>(MixSeed(mask.seed, row));
}

// Elements whose 31-bit hash is below this are dropped; 0 drops none.
inline uint32_t DropThreshold(const DropoutMask& mask) {
  assert(mask.probability >= 0 && mask.probability < 1);
  return static_cast<uint32_t>(std::lround(mask.probability * 0x1p31));
}

QUARRY_INLINE bool Drops(uint32_t row_key, uint32_t column, uint32_t threshold) {
  return static_cast<int32_t>(Mix32(row_key ^ column * 0x9e3779b9) >> 1) < static_cast<int32_t>(threshold);
}

// e^x to two units in the last place, for x up to 88; 0 from -87 down. Without a call, so that loops are vectorized:
// x = n ln 2 + r, and e^r by its Taylor polynomial for |r| <= ln 2 / 2.
QUARRY_INLINE float Exp(float x) {
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  const float bounded = std::min(std::max(x, -87.0F), 88.0F);
  const float whole = bounded * 1.44269504F + kShift;
  const float n = whole - kShift;
  const float r = (bounded - n * 0.693145752F) - n * 1.42860677e-6F;
  float e = 1.98412698e-4F;
  e = e * r + 1.38888889e-3F;
  e = e * r + 8.33333333e-3F;
  e = e * r + 4.16666667e-2F;
  e = e * r + 1.66666667e-1F;
  e = e * r + 0.5F;
  e = e * r + 1.0F;
  e = e * r + 1.0F;
  const float scaled = std::bit_cast<float>(std::bit_cast<int32_t>(e) + (static_cast<int32_t>(n) << 23));
  return x < -87.0F ? 0.0F : scaled;
}

inline constexpr float kLeakySlope = 0.2F;  // of attention's leaky ReLU below zero

QUARRY_INLINE float Dot(const float* __restrict a, const float* __restrict b, uint32_t n) {
  float partial[kLanes] = {};
  const uint32_t whole = n / kLanes * kLanes;
  for (uint32_t c = 0; c < whole; c += kLanes) {
    for (uint32_t k = 0; k < kLanes; k++) partial[k] += a[c + k] * b[c + k];
  }
  for (uint32_t c = whole; c < n; c++) partial[c - whole] += a[c] * b[c];
  float sum = 0;
  for (const float p : partial) sum += p;
  return sum;
}

QUARRY_INLINE void AddScaled(const float* __restrict row, float scale, uint32_t n, float* __restrict sum) {
  for (uint32_t c = 0; c < n; c++) sum[c] += scale * row[c];
}

}  // namespace quarry
