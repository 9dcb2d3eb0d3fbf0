// The kernels of the trainer: pure functions over a range of rows, so that the caller shares rows out between
// threads as it likes and the result is the same to the last bit for any number of them. No atomics.
//
// Layer inputs are concatenated, [self | mean of neighbors], so that a layer is one GEMM. Matrices are
// row-major float32, and a pointer to one that a kernel writes points at its row `begin`, so that a tile
// needs no more memory than its rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/format/batch_view.h"
#include "quarry/trainer/train.h"

namespace quarry {

// Rows [begin, end) of `out` ([rows, 2 * view.dim]): row v becomes the decoded row v of the view, then the
// mean of the rows indices[indptr[v]..indptr[v + 1]) (zeros without neighbors). Gathered straight from the
// feature buffer: nothing is copied first.
void AggregateMean(const FeatureView& view, RowNorm norm, std::span<const uint32_t> indptr,
                   std::span<const uint32_t> indices, uint32_t begin, uint32_t end, float* out);

// The same over a whole graph, whose offsets take 64 bits: `rows` is [nodes, dim], and indices are its row
// numbers.
void AggregateGraph(const float* rows, uint32_t dim, std::span<const uint64_t> indptr,
                    std::span<const NodeId> indices, uint32_t begin, uint32_t end, float* out);

// A block's edges by source: the destinations of local node u are destinations[offsets[u]..offsets[u + 1]),
// ascending.
struct TransposedBlock {
  std::vector<uint32_t> offsets;
  std::vector<uint32_t> destinations;
  std::vector<float> inverse_degree;  // by destination: 1 / its sampled neighbors
};

// Transposes the edges of destinations [0, destination_count), reusing the memory of `transposed`.
void Transpose(std::span<const uint32_t> indptr, std::span<const uint32_t> indices,
               uint32_t destination_count, uint32_t source_count, TransposedBlock& transposed);

// The backward of AggregateMean and of the activation before it, for sources [begin, end). `grad` is
// [destinations, 2 * dim], the gradient of the concatenated input; row u of `hidden` ([sources, dim], the
// outputs of ActivateRows) is replaced by the gradient of what ActivateRows was given. keep_scale is
// ActivateRows' 1 / (1 - dropout): an output above zero passed the ReLU and the dropout, and no other did, so
// the activations are their own mask.
void BackwardMean(const TransposedBlock& transposed, const float* grad, uint32_t dim, float keep_scale,
                  uint32_t begin, uint32_t end, float* hidden);

// The same where nothing was activated before: the gradient of source u, an input row, goes to row slots[u]
// of `gradients`. Here `gradients` is the whole matrix.
void BackwardMeanInput(const TransposedBlock& transposed, const float* grad, uint32_t dim,
                       std::span<const uint32_t> slots, uint32_t begin, uint32_t end, float* gradients);

// Dropout whose mask depends on (seed, row, column) alone.
struct DropoutMask {
  double probability = 0;
  uint64_t seed = 0;
  float keep_scale() const { return probability > 0 ? static_cast<float>(1 / (1 - probability)) : 1.0F; }
};

// values = dropout(relu(values + bias)), rows [begin, end) of [rows, dim], in place.
void ActivateRows(std::span<const float> bias, const DropoutMask& mask, uint32_t begin, uint32_t end,
                  float* values);

// values = dropout(values), rows [begin, end) of [rows, dim], in place.
void DropRows(uint32_t dim, const DropoutMask& mask, uint32_t begin, uint32_t end, float* values);

}  // namespace quarry
