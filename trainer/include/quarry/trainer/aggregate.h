// The kernels of the trainer: pure functions over a range of rows, so that the caller shares rows out between
// threads as it likes and the result is the same to the last bit for any number of them. No atomics.
//
// What layers are given is gathered first and then multiplied, so that a layer is one GEMM. Matrices are
// row-major float32, and a pointer to one that a kernel writes points at its row `begin`, so that a tile
// needs no more memory than its rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/format/batch_view.h"
#include "quarry/trainer/train.h"

namespace quarry {

// How what a node is told becomes a row.
struct Gathering {
  Aggregator aggregator = Aggregator::kMean;
  // [self | aggregate of the neighbors] (GraphSAGE), else the aggregate of the node and its neighbors (GCN, GIN).
  bool self_apart = true;
  uint32_t width(uint32_t dim) const { return self_apart ? 2 * dim : dim; }
};

// What rows are multiplied by before they are summed, for a block: that of edge e by edges[e], that of node v itself by
// selves[v], where it is not apart. Null: by one.
struct MessageWeights {
  const float* edges = nullptr;
  const float* selves = nullptr;
};

// `source_of`, where nobody's element is the largest.
inline constexpr uint32_t kNoSource = UINT32_MAX;

// Rows [begin, end) of `out` ([rows, width(view.dim)]): of node v's decoded row and of the rows
// indices[indptr[v]..indptr[v + 1]) (zeros without neighbors; parallel edges count each). Gathered straight from the
// feature buffer: nothing is copied first. Of the largest, `source_of` ([rows, view.dim]; null: nobody asks) is the local
// id of the first node that has it. REQUIRES: the largest are of neighbors, the node itself apart; weighted rows are
// summed.
void Aggregate(Gathering gathering, const FeatureView& view, RowNorm norm, std::span<const uint32_t> indptr,
               std::span<const uint32_t> indices, uint32_t begin, uint32_t end, float* out,
               uint32_t* source_of = nullptr, const MessageWeights& weights = {});

// Rows [begin, end) of `out` ([rows, view.dim]): the decoded rows themselves.
void DecodeRows(const FeatureView& view, RowNorm norm, uint32_t begin, uint32_t end, float* out);

// A block's edges by source: the destinations of local node u are destinations[offsets[u]..offsets[u + 1]),
// ascending; `edges` are their positions in the block, where they were asked for.
struct TransposedBlock {
  Gathering gathering;
  std::vector<uint32_t> offsets;
  std::vector<uint32_t> destinations, edges;
  std::vector<float>
      weights;  // by destination: of each row in what it gathers; of the largest, 1; of weighted rows, its own
  std::vector<float> edge_weights;  // of weighted rows: as `destinations`

  uint64_t held_bytes() const {
    return (offsets.capacity() + destinations.capacity() + edges.capacity()) * sizeof(uint32_t) +
           (weights.capacity() + edge_weights.capacity()) * sizeof(float);
  }
};

// Transposes the edges of destinations [0, destination_count), reusing the memory of `transposed`.
void Transpose(Gathering gathering, std::span<const uint32_t> indptr, std::span<const uint32_t> indices,
               uint32_t destination_count, uint32_t source_count, TransposedBlock& transposed,
               bool with_edges = false, const MessageWeights& weights = {});

// The backward of Aggregate and of the activation before it, for sources [begin, end). `grad` is
// [destinations, width(dim)], the gradient of what was gathered; row u of `hidden` ([sources, dim], the
// outputs of ActivateRows) is replaced by the gradient of what ActivateRows was given. keep_scale is
// ActivateRows' 1 / (1 - dropout): an output above zero passed the ReLU and the dropout, and no other did, so
// the activations are their own mask. `source_of` is Aggregate's, whole.
void BackwardGather(const TransposedBlock& transposed, const float* grad, uint32_t dim, float keep_scale,
                    uint32_t begin, uint32_t end, float* hidden, const uint32_t* source_of = nullptr);

// The same where nothing was activated before: the gradient of source u, an input row, goes to row slots[u]
// of `gradients`. Here `gradients` is the whole matrix.
void BackwardGatherInput(const TransposedBlock& transposed, const float* grad, uint32_t dim,
                         std::span<const uint32_t> slots, uint32_t begin, uint32_t end, float* gradients,
                         const uint32_t* source_of = nullptr);

// Dropout whose mask depends on (seed, row, column) alone.
struct DropoutMask {
  double probability = 0;
  uint64_t seed = 0;
  float keep_scale() const { return probability > 0 ? static_cast<float>(1 / (1 - probability)) : 1.0F; }
};

// values = dropout(relu(values + bias)), rows [begin, end) of [rows, dim], in place.
void ActivateRows(std::span<const float> bias, const DropoutMask& mask, uint32_t begin, uint32_t end,
                  float* values);

// The backward of ActivateRows without dropout: `gradients`, of the outputs, become those of what was activated, by
// `outputs`, `count` of both.
void BackwardRelu(uint64_t count, const float* outputs, float* gradients);

// values = dropout(elu(values + bias)), and its backward: the gradients [rows, dim], of the outputs, become those of what
// was activated, by `outputs`, rows [begin, end) of both.
void ActivateEluRows(std::span<const float> bias, const DropoutMask& mask, uint32_t begin, uint32_t end,
                     float* values);
void BackwardElu(uint32_t dim, const DropoutMask& mask, uint32_t begin, uint32_t end, const float* outputs,
                 float* gradients);

// values = dropout(values), rows [begin, end) of [rows, dim], in place.
void DropRows(uint32_t dim, const DropoutMask& mask, uint32_t begin, uint32_t end, float* values);

}  // namespace quarry
