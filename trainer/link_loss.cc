#include "link_loss.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernel.h"

namespace quarry {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// exp(x) for x <= 0 within 2.6e-7 of it, relatively; 0 below -87, where the exact value is subnormal, and for
// kMasked. x = n ln 2 + r with |r| <= ln 2 / 2, and exp(r) by its Taylor polynomial. Adding and taking
// away 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
QUARRY_INLINE float ExpNegative(float x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;  // the product with n is exact
  constexpr float kRound = 0x1.8p23F;
  const float clamped = x > -87.0F ? x : -87.0F;
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = clamped - n * kLn2High - n * kLn2Low;
  float p = 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const uint32_t scale = (std::bit_cast<uint32_t>(shifted) + 127) << 23;
  return x > -87.0F ? p * std::bit_cast<float>(scale) : 0.0F;
}

// Masks the row's scores and returns the largest.
QUARRY_INLINE float MaskRow(float* __restrict scores, const uint32_t* negatives, uint32_t truth,
                            uint32_t columns) {
  float largest[kLanes];
  for (float& lane : largest) lane = kMasked;
  const uint32_t whole = columns / kLanes * kLanes;
  for (uint32_t j = 0; j < whole; j += kLanes) {
    for (uint32_t k = 0; k < kLanes; k++) {
      const float score = negatives[j + k] == truth ? kMasked : scores[j + k];
      scores[j + k] = score;
      largest[k] = largest[k] > score ? largest[k] : score;
    }
  }
  for (uint32_t j = whole; j < columns; j++) {
    if (negatives[j] == truth) scores[j] = kMasked;
    largest[0] = std::max(largest[0], scores[j]);
  }
  for (uint32_t k = 1; k < kLanes; k++) largest[0] = std::max(largest[0], largest[k]);
  return largest[0];
}

// scores = exp(scores - shift); returns their sum.
QUARRY_INLINE float ExpRow(float* __restrict scores, uint32_t columns, float shift) {
  float sums[kLanes] = {};
  const uint32_t whole = columns / kLanes * kLanes;
  for (uint32_t j = 0; j < whole; j += kLanes) {
    for (uint32_t k = 0; k < kLanes; k++) {
      const float value = ExpNegative(scores[j + k] - shift);
      scores[j + k] = value;
      sums[k] += value;
    }
  }
  for (uint32_t j = whole; j < columns; j++) {
    scores[j] = ExpNegative(scores[j] - shift);
    sums[0] += scores[j];
  }
  for (uint32_t k = 1; k < kLanes; k++) sums[0] += sums[k];
  return sums[0];
}

QUARRY_KERNEL double SoftmaxRows(const ScoreTile& tile) {
  double loss = 0;
  for (uint32_t i = 0; i < tile.rows; i++) {
    float* __restrict row = tile.scores + size_t{i} * tile.columns;
    const float positive = tile.positives[i];
    // Above all scores, so that no exponential overflows.
    const float shift = std::max(positive, MaskRow(row, tile.negatives, tile.truths[i], tile.columns));
    const float negative_sum = ExpRow(row, tile.columns, shift);
    const float sum = negative_sum + ExpNegative(positive - shift);
    const float inverse = 1.0F / sum;
    for (uint32_t j = 0; j < tile.columns; j++) row[j] *= inverse;
    tile.positives[i] = -negative_sum * inverse;  // the softmax of the positive, less 1
    loss += std::log(double{sum}) - (double{positive} - double{shift});
  }
  return loss;
}

QUARRY_KERNEL double MarginRows(const ScoreTile& tile, float margin) {
  double loss = 0;
  const float share = 1.0F / static_cast<float>(tile.columns);
  for (uint32_t i = 0; i < tile.rows; i++) {
    float* __restrict row = tile.scores + size_t{i} * tile.columns;
    MaskRow(row, tile.negatives, tile.truths[i], tile.columns);
    const float offset = margin - tile.positives[i];
    float sums[kLanes] = {};
    uint32_t violations = 0;
    const uint32_t whole = tile.columns / kLanes * kLanes;
    for (uint32_t j = 0; j < whole; j += kLanes) {
      for (uint32_t k = 0; k < kLanes; k++) {
        const float excess = row[j + k] + offset;
        sums[k] += excess > 0 ? excess : 0.0F;
        violations += excess > 0 ? 1 : 0;
        row[j + k] = excess > 0 ? share : 0.0F;
      }
    }
    for (uint32_t j = whole; j < tile.columns; j++) {
      const float excess = row[j] + offset;
      sums[0] += excess > 0 ? excess : 0.0F;
      violations += excess > 0 ? 1 : 0;
      row[j] = excess > 0 ? share : 0.0F;
    }
    tile.positives[i] = -static_cast<float>(violations) * share;
    for (const float sum : sums) loss += double{sum} * double{share};
  }
  return loss;
}

}  // namespace

double SoftmaxLoss(const ScoreTile& tile) { return SoftmaxRows(tile); }

double MarginLoss(const ScoreTile& tile, float margin) { return MarginRows(tile, margin); }

}  // namespace quarry
