#include "attention.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "elementwise.h"
#include "kernel.h"
#include "quarry/trainer/model_spec.h"

namespace quarry {
namespace {

constexpr uint32_t kAhead = 8;  // edges whose row is asked for before it is needed
constexpr uint32_t kLineFloats = 16;
constexpr uint32_t kPrefetchFloatsMax = 256;

QUARRY_INLINE void Prefetch(const float* row, uint32_t width) {
  const uint32_t floats = std::min(width, kPrefetchFloatsMax);
  for (uint32_t c = 0; c < floats; c += kLineFloats) __builtin_prefetch(row + c);
}

// The members of v's list one after the other: member(u, where its coefficients are), v itself the last.
template <typename Member>
QUARRY_INLINE void ForMembers(const AttentionBlock& block, const float* z, uint32_t v, const Member& member) {
  const uint32_t end = block.indptr[v + 1];
  for (uint32_t e = block.indptr[v]; e < end; e++) {
    if (z != nullptr) {
      const uint32_t ahead = std::min(e + kAhead, block.edge_count - 1);
      Prefetch(z + size_t{block.indices[ahead]} * block.width(), block.width());
    }
    member(block.indices[e], size_t{e});
  }
  member(v, size_t{block.edge_count} + v);
}

QUARRY_KERNEL void ScoreRange(uint32_t heads, uint32_t head_dim, const float* weights, uint32_t begin,
                              uint32_t end, const float* z, float* scores) {
  for (uint32_t v = 0; v < end - begin; v++) {
    for (uint32_t h = 0; h < heads; h++) {
      scores[size_t{v} * heads + h] =
          Dot(z + (size_t{v} * heads + h) * head_dim, weights + size_t{h} * head_dim, head_dim);
    }
  }
}

// Leaves the softmax of v's list in the coefficients.
QUARRY_INLINE void FillCoefficients(const AttentionBlock& block, uint32_t v) {
  const uint32_t heads = block.heads;
  const float* left = block.left + size_t{v} * heads;
  float largest[ModelSpec::kHeadsMax], sum[ModelSpec::kHeadsMax];
  std::fill_n(largest, heads, -3.4e38F);
  std::fill_n(sum, heads, 0.0F);
  const auto score = [&](uint32_t u, size_t at) __attribute__((always_inline)) {
    const float* right = block.right + size_t{u} * heads;
    float* to = block.coefficients + at * heads;
    for (uint32_t h = 0; h < heads; h++) {
      const float s = left[h] + right[h];
      to[h] = s > 0 ? s : kLeakySlope * s;
      largest[h] = std::max(largest[h], to[h]);
    }
  };
  ForMembers(block, nullptr, v, score);
  const auto exponential = [&](uint32_t, size_t at) __attribute__((always_inline)) {
    float* to = block.coefficients + at * heads;
    for (uint32_t h = 0; h < heads; h++) sum[h] += to[h] = Exp(to[h] - largest[h]);
  };
  ForMembers(block, nullptr, v, exponential);
  for (uint32_t h = 0; h < heads; h++) sum[h] = 1.0F / sum[h];
  const auto divide = [&](uint32_t, size_t at) __attribute__((always_inline)) {
    float* to = block.coefficients + at * heads;
    for (uint32_t h = 0; h < heads; h++) to[h] *= sum[h];
  };
  ForMembers(block, nullptr, v, divide);
}

// What dropout leaves of a coefficient is this many times it.
struct Kept {
  const DropoutMask& mask;
  const uint32_t threshold = DropThreshold(mask);
  const float scale = mask.keep_scale();
  QUARRY_INLINE uint32_t Key(size_t at) const {
    return threshold == 0 ? 0 : RowKey(mask, static_cast<uint32_t>(at));
  }
  QUARRY_INLINE float Share(uint32_t key, uint32_t head) const {
    return Drops(key, head, threshold) ? 0.0F : scale;
  }
};

QUARRY_KERNEL void AttendRange(const AttentionBlock& block, const Kept& kept, const float* z, uint32_t begin,
                               uint32_t end, float* out, float* sum) {
  const uint32_t heads = block.heads, dim = block.head_dim;
  for (uint32_t v = begin; v < end; v++) {
    FillCoefficients(block, v);
    float* to = block.averages ? sum : out + size_t{v - begin} * block.width();
    std::memset(to, 0, block.width() * sizeof(float));
    const auto add = [&](uint32_t u, size_t at) __attribute__((always_inline)) {
      const float* row = z + size_t{u} * block.width();
      const float* a = block.coefficients + at * heads;
      const uint32_t key = kept.Key(at);
      for (uint32_t h = 0; h < heads; h++) {
        AddScaled(row + size_t{h} * dim, a[h] * kept.Share(key, h), dim, to + size_t{h} * dim);
      }
    };
    ForMembers(block, z, v, add);
    if (!block.averages) continue;
    float* mean = out + size_t{v - begin} * dim;
    std::memset(mean, 0, dim * sizeof(float));
    for (uint32_t h = 0; h < heads; h++) {
      AddScaled(sum + size_t{h} * dim, 1.0F / static_cast<float>(heads), dim, mean);
    }
  }
}

// The part of head h of a row's gradient, and how often it counts.
QUARRY_INLINE const float* HeadGradient(const AttentionBlock& block, const float* gradients, uint32_t v,
                                        uint32_t h) {
  return gradients + size_t{v} * block.out_width() + (block.averages ? 0 : size_t{h} * block.head_dim);
}
float HeadShare(const AttentionBlock& block) {
  return block.averages ? 1.0F / static_cast<float>(block.heads) : 1.0F;
}

QUARRY_KERNEL void BackwardAttendRange(const AttentionBlock& block, const Kept& kept, float share,
                                       const float* z, const float* gradients, uint32_t begin, uint32_t end,
                                       float* scores, float* left_gradients) {
  const uint32_t heads = block.heads, dim = block.head_dim;
  float mean[ModelSpec::kHeadsMax];  // of the coefficients' gradients, by coefficient
  for (uint32_t v = begin; v < end; v++) {
    std::fill_n(mean, heads, 0.0F);
    const auto gradient = [&](uint32_t u, size_t at) __attribute__((always_inline)) {
      const float* row = z + size_t{u} * block.width();
      const uint32_t key = kept.Key(at);
      for (uint32_t h = 0; h < heads; h++) {
        const float d = share * kept.Share(key, h) *
                        Dot(row + size_t{h} * dim, HeadGradient(block, gradients, v, h), dim);
        scores[at * heads + h] = d;
        mean[h] += block.coefficients[at * heads + h] * d;
      }
    };
    ForMembers(block, z, v, gradient);
    const float* left = block.left + size_t{v} * heads;
    float* to_left = left_gradients + size_t{v} * heads;
    std::fill_n(to_left, heads, 0.0F);
    const auto score = [&](uint32_t u, size_t at) __attribute__((always_inline)) {
      const float* right = block.right + size_t{u} * heads;
      for (uint32_t h = 0; h < heads; h++) {
        const float slope = left[h] + right[h] > 0 ? 1.0F : kLeakySlope;
        const float d = slope * block.coefficients[at * heads + h] * (scores[at * heads + h] - mean[h]);
        scores[at * heads + h] = d;
        to_left[h] += d;
      }
    };
    ForMembers(block, nullptr, v, score);
  }
}

QUARRY_KERNEL void BackwardSourcesRange(const AttentionBlock& block, const TransposedBlock& transposed,
                                        const Kept& kept, float share, const AttentionWeights& weights,
                                        const float* gradients, const float* scores, const float* left,
                                        uint32_t begin, uint32_t end, float* z, float* weight_gradients,
                                        float* sum) {
  const uint32_t heads = block.heads, dim = block.head_dim, width = block.width();
  float right[ModelSpec::kHeadsMax];
  for (uint32_t u = begin; u < end; u++) {
    std::memset(sum, 0, width * sizeof(float));
    std::fill_n(right, heads, 0.0F);
    const auto add = [&](uint32_t v, size_t at) __attribute__((always_inline)) {
      const uint32_t key = kept.Key(at);
      for (uint32_t h = 0; h < heads; h++) {
        const float a = share * kept.Share(key, h) * block.coefficients[at * heads + h];
        AddScaled(HeadGradient(block, gradients, v, h), a, dim, sum + size_t{h} * dim);
        right[h] += scores[at * heads + h];
      }
    };
    for (uint32_t i = transposed.offsets[u]; i < transposed.offsets[u + 1]; i++) {
      add(transposed.destinations[i], transposed.edges[i]);
    }
    if (u < block.rows) add(u, size_t{block.edge_count} + u);
    float* row = z + size_t{u} * width;
    for (uint32_t h = 0; h < heads; h++) {
      const size_t at = size_t{h} * dim;
      AddScaled(row + at, right[h], dim, weight_gradients + width + at);
      AddScaled(weights.right + at, right[h], dim, sum + at);
      if (u >= block.rows) continue;
      const float of_left = left[size_t{u} * heads + h];
      AddScaled(row + at, of_left, dim, weight_gradients + at);
      AddScaled(weights.left + at, of_left, dim, sum + at);
    }
    std::memcpy(row, sum, width * sizeof(float));
  }
}

}  // namespace

void ScoreHeads(uint32_t heads, uint32_t head_dim, const float* weights, uint32_t begin, uint32_t end,
                const float* z, float* scores) {
  ScoreRange(heads, head_dim, weights, begin, end, z, scores);
}

void Attend(const AttentionBlock& block, const float* z, uint32_t begin, uint32_t end, float* out) {
  std::vector<float> sum(block.averages ? block.width() : 0);
  AttendRange(block, Kept{block.mask}, z, begin, end, out, sum.data());
}

void BackwardAttend(const AttentionBlock& block, const float* z, const float* gradients, uint32_t begin,
                    uint32_t end, float* scores, float* left) {
  BackwardAttendRange(block, Kept{block.mask}, HeadShare(block), z, gradients, begin, end, scores, left);
}

void BackwardSources(const AttentionBlock& block, const TransposedBlock& transposed,
                     const AttentionWeights& weights, const float* gradients, const float* scores,
                     const float* left, uint32_t begin, uint32_t end, float* z, float* weight_gradients) {
  std::vector<float> sum(block.width());
  BackwardSourcesRange(block, transposed, Kept{block.mask}, HeadShare(block), weights, gradients, scores,
                       left, begin, end, z, weight_gradients, sum.data());
}

}  // namespace quarry
