// GinLayer: a graph isomorphism network's layer (Xu, Hu, Leskovec, Jegelka 2019) with epsilon 0, which they found the
// best:
//
//   gathered = h_v + sum of sampled neighbors' h
//   output   = relu(gathered W1 + b1) W2 + b2
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gathered_layer.h"
#include "layer.h"

namespace quarry {

class GinLayer final : public Layer {
 public:
  // REQUIRES: `work` outlives the layer.
  GinLayer(LayerWork& work, uint32_t in_width, uint32_t out_width, Rng& rng);

  std::vector<Parameter*> Parameters() override {
    return {&first_.weight(), &first_.bias(), &second_weight_, &bias()};
  }
  std::vector<std::string_view> ParameterNames() const override {
    return {"first.weight", "first.bias", "second.weight", "second.bias"};
  }
  Status Resize(const LayerInput& input) override;
  void Forward(const LayerInput& input, const torch::Tensor& output) override;
  void Backward(const LayerInput& input, const torch::Tensor& gradient,
                const SourceGradients* sources) override;
  GraphForm StartGraph(GraphOrder order) override { return first_.StartGraph(order); }
  void StartStates(std::span<float> states) const override { first_.StartStates(states); }
  void MakeMessages(const torch::Tensor& rows, const torch::Tensor& messages) override {
    first_.MakeMessages(rows, messages);
  }
  void AddOwn(const torch::Tensor& rows, const torch::Tensor& messages, std::span<const uint64_t> list_sizes,
              const torch::Tensor& states) override {
    first_.AddOwn(rows, messages, list_sizes, states);
  }
  void AddList(const GraphList& list, const float* messages, float* state) const override {
    first_.AddList(list, messages, state);
  }
  Status FinishStates(const torch::Tensor& states, const torch::Tensor& output) override;
  uint64_t activation_bytes() const override {
    return first_.activation_bytes() + middle_.mapped_bytes() + middle_gradient_.mapped_bytes();
  }

 private:
  // Biases and activates the first `rows` of what is in the middle.
  void ActivateMiddle(uint32_t rows);

  LayerWork& work_;
  GatheredLayer first_;
  Parameter second_weight_;          // [out, out]
  Matrix middle_, middle_gradient_;  // [rows, out]
};

}  // namespace quarry
