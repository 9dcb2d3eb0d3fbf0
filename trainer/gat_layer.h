// GatLayer: a graph attention network's layer (Velickovic et al. 2018):
//
//   z      = sources W                          [sources, heads * head_dim]   one GEMM; the first layer's by tiles
//   output = sum over a node's list of a z      [rows, out]                   attention.h
//
// Heads lie side by side in the output, or, of the last layer, are averaged there. Attention comes after the product, so z
// is held for every node of the block, and the gradient of z overwrites it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "attention.h"
#include "graph_kernels.h"
#include "layer.h"

namespace quarry {

class GatLayer final : public Layer {
 public:
  // REQUIRES: `work` outlives the layer; `averages`, or the heads share out_width evenly.
  GatLayer(LayerWork& work, uint32_t heads, bool averages, uint32_t in_width, uint32_t out_width, Rng& rng);

  std::vector<Parameter*> Parameters() override { return {&weight_, &left_, &right_, &bias()}; }
  std::vector<std::string_view> ParameterNames() const override {
    return {"weight", "attention.node", "attention.neighbor", "bias"};
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
  AttentionBlock BlockOf(const LayerInput& input);
  AttentionForm graph_form() const { return {heads_, head_dim_, averages_}; }

  LayerWork& work_;
  const uint32_t heads_, head_dim_;
  const bool averages_;
  Parameter weight_;        // [in, heads * head_dim]
  Parameter left_, right_;  // [heads, head_dim]: what scores a node, and a neighbor
  Matrix tile_;             // of sources, or of their gradients
  Matrix z_;
  Matrix left_scores_, right_scores_;
  Matrix coefficients_, score_gradients_;  // [edges + rows, heads]
  Matrix left_gradients_;                  // [rows, heads]
  Matrix partial_weights_;                 // [pieces of sources, 2 * heads * head_dim]
};

}  // namespace quarry
