#include "link_kernels.h"

#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>

#include "kernel.h"

namespace quarry {
namespace {

// Squared distances come from a product of float32: below this share of the squared lengths they are noise.
constexpr float kDistanceNoise = 1e-6F;

// What queries multiply a node's complex number by: of ComplEx the relation's number as it is.
struct Number {
  float real, imaginary;
  static QUARRY_INLINE Number Of(float real, float imaginary) { return {real, imaginary}; }
  // The gradient of the relation's number, by that of what is multiplied by.
  QUARRY_INLINE Number Back(float to_real, float to_imaginary) const { return {to_real, to_imaginary}; }
};
// The turn of RotatE, by its direction: (1, 0), and no gradient, for a number whose square is too small for a float.
struct Turn {
  float real, imaginary;
  float inverse;  // 1 / |number|
  static QUARRY_INLINE Turn Of(float real, float imaginary) {
    constexpr float kLeastSquare = 1e-30F;
    const float square = real * real + imaginary * imaginary;
    const bool turns = square > kLeastSquare;
    const float length = std::sqrt(turns ? square : 1.0F);
    return {turns ? real / length : 1.0F, turns ? imaginary / length : 0.0F, turns ? 1.0F / length : 0.0F};
  }
  // A turn u = r / |r| takes what is said of it, less the part along u itself, over |r|.
  QUARRY_INLINE Number Back(float to_real, float to_imaginary) const {
    const float along = to_real * real + to_imaginary * imaginary;
    return {(to_real - along * real) * inverse, (to_imaginary - along * imaginary) * inverse};
  }
};

// Queries of complex numbers, which are products with a Factor of the relation's, and the gradients that come back.
template <typename Factor>
QUARRY_INLINE void MultiplyComplex(const RowsRef& nodes, const RowsRef& relations, uint32_t rows,
                                   uint32_t dim, float* __restrict queries) {
  const uint32_t half = dim / 2;
  for (uint32_t i = 0; i < rows; i++, queries += dim) {
    const float* e = nodes[i];
    const float* r = relations[i];
    for (uint32_t c = 0; c < half; c++) {
      const Factor by = Factor::Of(r[c], r[half + c]);
      queries[c] = e[c] * by.real - e[half + c] * by.imaginary;
      queries[half + c] = e[c] * by.imaginary + e[half + c] * by.real;
    }
  }
}

template <typename Factor>
QUARRY_INLINE void BackwardComplex(const RowsRef& nodes, const RowsRef& relations, uint32_t rows,
                                   uint32_t dim, const float* query_gradients,
                                   float* __restrict node_gradients, float* __restrict relation_gradients) {
  const uint32_t half = dim / 2;
  for (uint32_t i = 0; i < rows; i++) {
    const float* e = nodes[i];
    const float* r = relations[i];
    const float* q = query_gradients + size_t{i} * dim;
    float* __restrict to_e = node_gradients + size_t{i} * dim;
    float* __restrict to_r = relation_gradients + size_t{i} * dim;
    for (uint32_t c = 0; c < half; c++) {
      const Factor by = Factor::Of(r[c], r[half + c]);
      to_e[c] = q[c] * by.real + q[half + c] * by.imaginary;
      to_e[half + c] = q[half + c] * by.real - q[c] * by.imaginary;
      const Number to =
          by.Back(q[c] * e[c] + q[half + c] * e[half + c], q[half + c] * e[c] - q[c] * e[half + c]);
      to_r[c] = to.real;
      to_r[half + c] = to.imaginary;
    }
  }
}

// Calls add(c, lane) for the floats of a row, [0, count), whose sums are kept by lane.
template <typename Add>
QUARRY_INLINE void ForLanes(uint32_t count, const Add& add) {
  const uint32_t whole = count / kLanes * kLanes;
  for (uint32_t c = 0; c < whole; c += kLanes) {
    for (uint32_t k = 0; k < kLanes; k++) add(c + k, k);
  }
  for (uint32_t c = whole; c < count; c++) add(c, 0);
}

QUARRY_INLINE double SumOf(const float (&lanes)[kLanes]) {
  return std::accumulate(std::begin(lanes), std::end(lanes), 0.0);
}

}  // namespace

void GatherRows(const RowsRef& from, uint32_t rows, uint32_t dim, float* out) {
  for (uint32_t i = 0; i < rows; i++) std::memcpy(out + size_t{i} * dim, from[i], dim * sizeof(float));
}

QUARRY_KERNEL void DistMultQueries(const RowsRef& nodes, const RowsRef& relations, uint32_t rows,
                                   uint32_t dim, float* __restrict queries) {
  for (uint32_t i = 0; i < rows; i++, queries += dim) {
    const float* e = nodes[i];
    const float* r = relations[i];
    for (uint32_t c = 0; c < dim; c++) queries[c] = e[c] * r[c];
  }
}

QUARRY_KERNEL void ComplExQueries(const RowsRef& nodes, const RowsRef& relations, uint32_t rows, uint32_t dim,
                                  float* queries) {
  MultiplyComplex<Number>(nodes, relations, rows, dim, queries);
}

QUARRY_KERNEL void RotatEQueries(const RowsRef& nodes, const RowsRef& relations, uint32_t rows, uint32_t dim,
                                 float* queries) {
  MultiplyComplex<Turn>(nodes, relations, rows, dim, queries);
}

QUARRY_KERNEL void TransEQueries(const RowsRef& nodes, const RowsRef& relations, uint32_t rows, uint32_t dim,
                                 float* __restrict queries) {
  for (uint32_t i = 0; i < rows; i++, queries += dim) {
    const float* e = nodes[i];
    const float* r = relations[i];
    for (uint32_t c = 0; c < dim; c++) queries[c] = e[c] + r[c];
  }
}

QUARRY_KERNEL void DistMultBackward(const RowsRef& nodes, const RowsRef& relations, uint32_t rows,
                                    uint32_t dim, const float* query_gradients,
                                    float* __restrict node_gradients, float* __restrict relation_gradients) {
  for (uint32_t i = 0; i < rows; i++) {
    const float* e = nodes[i];
    const float* r = relations[i];
    const size_t row = size_t{i} * dim;
    for (uint32_t c = 0; c < dim; c++) {
      node_gradients[row + c] = query_gradients[row + c] * r[c];
      relation_gradients[row + c] = query_gradients[row + c] * e[c];
    }
  }
}

QUARRY_KERNEL void ComplExBackward(const RowsRef& nodes, const RowsRef& relations, uint32_t rows,
                                   uint32_t dim, const float* query_gradients, float* node_gradients,
                                   float* relation_gradients) {
  BackwardComplex<Number>(nodes, relations, rows, dim, query_gradients, node_gradients, relation_gradients);
}

QUARRY_KERNEL void RotatEBackward(const RowsRef& nodes, const RowsRef& relations, uint32_t rows, uint32_t dim,
                                  const float* query_gradients, float* node_gradients,
                                  float* relation_gradients) {
  BackwardComplex<Turn>(nodes, relations, rows, dim, query_gradients, node_gradients, relation_gradients);
}

QUARRY_KERNEL double AddSquares(float weight, const RowsRef& values, uint32_t rows, uint32_t dim,
                                float* __restrict gradients) {
  double sum = 0;
  for (uint32_t i = 0; i < rows; i++, gradients += dim) {
    const float* x = values[i];
    float sums[kLanes] = {};
    ForLanes(
        dim, [&](uint32_t c, uint32_t lane) __attribute__((always_inline)) {
          sums[lane] += x[c] * x[c];
          gradients[c] += 2 * weight * x[c];
        });
    sum += SumOf(sums);
  }
  return double{weight} * sum;
}

QUARRY_KERNEL double AddCubes(float weight, const RowsRef& values, uint32_t rows, uint32_t dim,
                              float* __restrict gradients) {
  double sum = 0;
  for (uint32_t i = 0; i < rows; i++, gradients += dim) {
    const float* x = values[i];
    float sums[kLanes] = {};
    ForLanes(
        dim, [&](uint32_t c, uint32_t lane) __attribute__((always_inline)) {
          const float magnitude = std::abs(x[c]);
          sums[lane] += magnitude * magnitude * magnitude;
          gradients[c] += 3 * weight * magnitude * x[c];
        });
    sum += SumOf(sums);
  }
  return double{weight} * sum;
}

QUARRY_KERNEL double AddComplexCubes(float weight, const RowsRef& values, uint32_t rows, uint32_t dim,
                                     float* __restrict gradients) {
  const uint32_t half = dim / 2;
  double sum = 0;
  for (uint32_t i = 0; i < rows; i++, gradients += dim) {
    const float* x = values[i];
    float sums[kLanes] = {};
    ForLanes(
        half, [&](uint32_t c, uint32_t lane) __attribute__((always_inline)) {
          const float square = x[c] * x[c] + x[half + c] * x[half + c];
          const float magnitude = std::sqrt(square);
          sums[lane] += square * magnitude;
          gradients[c] += 3 * weight * magnitude * x[c];
          gradients[half + c] += 3 * weight * magnitude * x[half + c];
        });
    sum += SumOf(sums);
  }
  return double{weight} * sum;
}

QUARRY_KERNEL void SquaredLengths(const float* values, uint32_t rows, uint32_t dim,
                                  float* __restrict lengths) {
  for (uint32_t i = 0; i < rows; i++, values += dim) {
    float sum = 0;
    for (uint32_t c = 0; c < dim; c++) sum += values[c] * values[c];
    lengths[i] = sum;
  }
}

QUARRY_KERNEL void PositiveScores(bool is_distance, const float* queries, const RowsRef& truths,
                                  uint32_t rows, uint32_t dim, float* __restrict scores) {
  for (uint32_t i = 0; i < rows; i++, queries += dim) {
    const float* t = truths[i];
    float sum = 0;
    if (is_distance) {
      for (uint32_t c = 0; c < dim; c++) sum += (queries[c] - t[c]) * (queries[c] - t[c]);
      scores[i] = -std::sqrt(sum);
    } else {
      for (uint32_t c = 0; c < dim; c++) sum += queries[c] * t[c];
      scores[i] = sum;
    }
  }
}

QUARRY_KERNEL void ProductsToDistances(const float* query_lengths, const float* negative_lengths,
                                       uint32_t rows, uint32_t columns, float* __restrict scores,
                                       float* __restrict inverse) {
  for (uint32_t i = 0; i < rows; i++, scores += columns, inverse += columns) {
    const float q = query_lengths[i];
    for (uint32_t j = 0; j < columns; j++) {
      const float lengths = q + negative_lengths[j];
      const float squared = lengths - 2 * scores[j];
      const float floor = kDistanceNoise * lengths + 1e-30F;
      const float distance = std::sqrt(squared > floor ? squared : floor);
      scores[j] = -distance;
      inverse[j] = 1.0F / distance;
    }
  }
}

QUARRY_KERNEL void DistanceWeights(const float* __restrict inverse, uint32_t rows, uint32_t columns,
                                   float* __restrict weights, float* __restrict row_sums,
                                   float* __restrict column_sums) {
  const uint32_t whole = columns / kLanes * kLanes;
  for (uint32_t i = 0; i < rows; i++, weights += columns, inverse += columns) {
    float sums[kLanes] = {};
    const auto weigh = [&](uint32_t j, uint32_t lane) __attribute__((always_inline)) {
      const float weight = weights[j] * inverse[j];
      weights[j] = weight;
      column_sums[j] += weight;
      sums[lane] += weight;
    };
    for (uint32_t j = 0; j < whole; j += kLanes) {
      for (uint32_t k = 0; k < kLanes; k++) weigh(j + k, k);
    }
    for (uint32_t j = whole; j < columns; j++) weigh(j, 0);
    row_sums[i] = std::accumulate(sums, sums + kLanes, 0.0F);
  }
}

QUARRY_KERNEL void SubtractScaled(const float* scales, const float* values, uint32_t rows, uint32_t dim,
                                  float* __restrict out) {
  for (uint32_t i = 0; i < rows; i++, values += dim, out += dim) {
    for (uint32_t c = 0; c < dim; c++) out[c] -= scales[i] * values[c];
  }
}

QUARRY_KERNEL void PositiveGradients(bool is_distance, const float* weights, const float* queries,
                                     const RowsRef& truths, uint32_t rows, uint32_t dim,
                                     float* __restrict query_gradients, float* __restrict truth_gradients) {
  for (uint32_t i = 0; i < rows; i++, queries += dim, query_gradients += dim, truth_gradients += dim) {
    const float* t = truths[i];
    const float w = weights[i];
    const float own = is_distance ? w : 0.0F;
    for (uint32_t c = 0; c < dim; c++) {
      query_gradients[c] += w * t[c] - own * queries[c];
      truth_gradients[c] = w * queries[c] - own * t[c];
    }
  }
}

QUARRY_KERNEL void ScatterAdd(const float* staged, std::span<const uint32_t> targets, uint32_t dim,
                              uint64_t stride, uint32_t first, uint32_t last, float* __restrict gradients) {
  for (size_t i = 0; i < targets.size(); i++, staged += dim) {
    if (targets[i] < first || targets[i] >= last) continue;
    float* __restrict row = gradients + targets[i] * stride;
    for (uint32_t c = 0; c < dim; c++) row[c] += staged[c];
  }
}

}  // namespace quarry
