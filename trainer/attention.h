// The kernels of attention over a block: pure functions over a range of rows, as those of quarry/trainer/aggregate.h.
//
//   score of v's neighbor u, head h   s = leaky_relu(left[v, h] + right[u, h])
//   coefficient                       a = softmax of s over v's list: its neighbors (parallel edges each), then v itself
//   row of v                          sum over the list of dropout(a) z[u, h], heads side by side or averaged
//
// Coefficients of edge e lie at row e, those of v itself at row edge_count + v.
#pragma once

#include <cstdint>
#include <span>

#include "quarry/trainer/aggregate.h"

namespace quarry {

struct AttentionBlock {
  const uint32_t* indptr = nullptr;
  const uint32_t* indices = nullptr;
  uint32_t rows = 0;
  uint32_t edge_count = 0;  // indptr[rows]
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  bool averages = false;          // heads are averaged: a row has head_dim columns, else heads * head_dim
  const float* left = nullptr;    // [rows, heads]
  const float* right = nullptr;   // [sources, heads]
  float* coefficients = nullptr;  // [edge_count + rows, heads], before dropout
  DropoutMask mask;               // of them

  uint32_t width() const { return heads * head_dim; }
  uint32_t out_width() const { return averages ? head_dim : width(); }
};

// scores[v, h] = z[v, h] . weights[h], rows [begin, end); both pointers at row `begin`.
void ScoreHeads(uint32_t heads, uint32_t head_dim, const float* weights, uint32_t begin, uint32_t end,
                const float* z, float* scores);

// Fills the coefficients and rows [begin, end); `z` is whole, `out` points at row `begin`.
void Attend(const AttentionBlock& block, const float* z, uint32_t begin, uint32_t end, float* out);

// The backward, first by destinations [begin, end): from the gradients of the rows (`gradients`, whole), those of the
// scores before the leaky ReLU (`scores`, [edge_count + rows, heads]), and of `left` (whole).
void BackwardAttend(const AttentionBlock& block, const float* z, const float* gradients, uint32_t begin,
                    uint32_t end, float* scores, float* left);

// Then by sources [begin, end): replaces `z` (whole) by its gradient. Adds to `weights` ([2, heads * head_dim]) what these
// sources tell of the gradients of the weights that scored `left` and `right`.
struct AttentionWeights {
  const float* left;
  const float* right;
};
void BackwardSources(const AttentionBlock& block, const TransposedBlock& transposed,
                     const AttentionWeights& weights, const float* gradients, const float* scores,
                     const float* left, uint32_t begin, uint32_t end, float* z, float* weight_gradients);

}  // namespace quarry
