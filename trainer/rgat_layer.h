// RgatLayer: a relational graph attention network's layer (Busbridge et al. 2019, ARGAT with additive logits), whose
// relations share B basis matrices, as RgcnLayer's do:
//
//   z_b     = sources W_b                                               [sources, heads * head_dim], side by side: one GEMM
//   message = sum over b of a[kind][b] z_u,b                            of an edge from u
//   score   = leaky_relu(left . sum_b a[kind][b] z_v,b + right . message)   by head
//   output  = sum over v's list of softmax(score) message               [rows, out]
//
// A node's list is its edges, whatever their kinds, and then the node itself, which has a kind of its own behind those of
// edges: so the softmax is across relations. Heads lie side by side in the output, or, of the last layer, are averaged
// there. The two weights of scores are those of all kinds.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "layer.h"

namespace quarry {

// The shape of what is attended to. Scores by basis and head are products of z with the weights of scores.
struct RelationHeads {
  uint32_t bases = 0, heads = 0, head_dim = 0;
  bool averages = false;  // heads are averaged: an output has head_dim columns, else heads * head_dim

  uint32_t width() const { return heads * head_dim; }   // of a message, all heads
  uint32_t z_width() const { return bases * width(); }  // [bases, heads, head_dim]
  uint32_t scores() const { return bases * heads; }     // [bases, heads]
  uint32_t out_width() const { return averages ? head_dim : width(); }
  // For a whole graph (graph_layer.h) a message is [z | right scores]; a state [sum of e^(s - largest) message | largest s |
  // sum of e^(s - largest) | left scores], the second and third by head.
  uint32_t graph_message() const { return z_width() + scores(); }
  uint32_t graph_state() const { return width() + 2 * heads + scores(); }
};

// A layer's edges, and what attention over them knows. Shares of edge e lie at row e, those of v itself at edge_count + v.
struct RelationBlock {
  RelationHeads shape;
  const uint32_t* indptr = nullptr;
  const uint32_t* indices = nullptr;
  const uint32_t* kinds = nullptr;  // by edge
  uint32_t rows = 0, edge_count = 0;
  const float* coefficients = nullptr;  // [kinds + 1, bases]
  uint32_t own_kind = 0;                // of a node itself
  const float* left = nullptr;          // [rows, bases * heads]
  const float* right = nullptr;         // [sources, bases * heads]
  float* shares = nullptr;              // [edge_count + rows, heads]

  const float* Counts(uint32_t kind) const { return coefficients + size_t{kind} * shape.bases; }
};

class RgatLayer final : public Layer {
 public:
  // Sources whose part of the gradients of the weights of scores is summed together, whatever the number of threads.
  static constexpr uint32_t kPieceSources = 1024;

  // Sources are not dropped. REQUIRES: `work` outlives the layer; a kind and a basis; `averages`, or the heads share
  // out_width evenly.
  RgatLayer(LayerWork& work, uint32_t kinds, uint32_t bases, uint32_t heads, bool averages, uint32_t in_width,
            uint32_t out_width, Rng& rng);

  std::vector<Parameter*> Parameters() override {
    return {&weight_, &left_, &right_, &coefficients_, &bias()};
  }
  std::vector<std::string_view> ParameterNames() const override {
    return {"weight", "attention.node", "attention.neighbor", "coefficients", "bias"};
  }
  Status Resize(const LayerInput& input) override;
  void Forward(const LayerInput& input, const torch::Tensor& output) override;
  void Backward(const LayerInput& input, const torch::Tensor& gradient,
                const SourceGradients* sources) override;
  GraphForm StartGraph(GraphOrder order) override;
  void StartStates(std::span<float> states) const override;
  void MakeMessages(const torch::Tensor& rows, const torch::Tensor& messages) override;
  void AddOwn(const torch::Tensor& rows, const torch::Tensor& messages, std::span<const uint64_t> list_sizes,
              const torch::Tensor& states) override;
  void AddList(const GraphList& list, const float* messages, float* state) const override;
  Status FinishStates(const torch::Tensor& states, const torch::Tensor& output) override;
  uint64_t activation_bytes() const override;

 private:
  RelationBlock BlockOf(const LayerInput& input);

  LayerWork& work_;
  const uint32_t kinds_;  // of edges
  const RelationHeads shape_;
  Parameter weight_;        // [in, bases * heads * head_dim]
  Parameter left_, right_;  // [heads, head_dim]: what scores a node, and a message
  Parameter coefficients_;  // [kinds + 1, bases], a node's own the last
  Matrix tile_;             // of sources, or of their gradients
  Matrix z_;
  Matrix left_scores_, right_scores_;  // [rows, bases * heads], [sources, bases * heads]
  Matrix shares_, score_gradients_;    // [edges + rows, heads]
  Matrix left_gradients_;              // [rows, bases * heads]
  Matrix partial_weights_;             // [pieces of sources, 2 * heads * head_dim]
  Matrix partial_coefficients_;        // [pieces of rows, (kinds + 1) * bases]
};

}  // namespace quarry
