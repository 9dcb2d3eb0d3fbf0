// RgcnLayer: a relational graph convolutional network's layer (Schlichtkrull et al. 2018), whose relations share B basis
// matrices:
//
//   gathered_b = 1 / |N(v)| * sum over v's edges e from u of a[kind of e][b] h_u
//   output     = h_v W_0 + sum over b of gathered_b W_b          [rows, out]   one GEMM: [h_v | gathered_1 | ..] W
//
// The kind of an edge is its relation and which way it is taken. Sums are divided by the number of all of a node's edges,
// whatever their kind, which the paper (§5.2) found the best for link prediction.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "layer.h"

namespace quarry {

class RgcnLayer final : public Layer {
 public:
  // Sources are float32, and neither normalised nor dropped. REQUIRES: `work` outlives the layer; a kind and a basis.
  RgcnLayer(LayerWork& work, uint32_t kinds, uint32_t bases, uint32_t in_width, uint32_t out_width, Rng& rng);

  std::vector<Parameter*> Parameters() override { return {&weight_, &coefficients_, &bias()}; }
  std::vector<std::string_view> ParameterNames() const override { return {"weight", "coefficients", "bias"}; }
  Status Resize(const LayerInput& input) override;
  void Forward(const LayerInput& input, const torch::Tensor& output) override;
  void Backward(const LayerInput& input, const torch::Tensor& gradient,
                const SourceGradients* sources) override;
  GraphForm StartGraph(GraphOrder order) override;
  void MakeMessages(const torch::Tensor& /*rows*/, const torch::Tensor& /*messages*/) override {}  // raw
  void AddOwn(const torch::Tensor& rows, const torch::Tensor& messages, std::span<const uint64_t> list_sizes,
              const torch::Tensor& states) override;
  void AddList(const GraphList& list, const float* messages, float* state) const override;
  Status FinishStates(const torch::Tensor& states, const torch::Tensor& output) override;
  uint64_t activation_bytes() const override { return input_.mapped_bytes() + partial_.mapped_bytes(); }

 private:
  const float* Coefficients() const { return coefficients_.value.data_ptr<float>(); }
  void StepCoefficients(const LayerInput& input);
  void Scatter(const LayerInput& input, const SourceGradients& sources);

  LayerWork& work_;
  const uint32_t kinds_, bases_;
  const uint32_t width_;    // of what is multiplied
  Parameter weight_;        // [width, out]
  Parameter coefficients_;  // [kinds, bases]
  Matrix input_;            // [rows, width]: what was gathered, then its gradient
  Matrix partial_;          // [pieces, kinds * bases]: gradients of coefficients
};

}  // namespace quarry
