// GatheredLayer: the layers that first gather what a node is told by its neighbors and itself, and then multiply it by a
// weight: SAGE's, GCN's, and the first product of GIN's.
//
//   input  = Gather(sources)    [rows, gathered width]   fused with decoding (quarry/trainer/aggregate.h)
//   output = input W            [rows, out]              one GEMM
//
// The gradient of the input overwrites it, and is then carried to the sources.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layer.h"
#include "quarry/trainer/aggregate.h"

namespace quarry {

class GatheredLayer : public Layer {
 public:
  // Draws the weight. REQUIRES: `work` outlives the layer.
  GatheredLayer(LayerWork& work, Gathering gathering, uint32_t in_width, uint32_t out_width, Rng& rng);

  std::vector<Parameter*> Parameters() override { return {&weight_, &bias()}; }
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
  uint64_t activation_bytes() const override {
    return input_.mapped_bytes() + source_of_.capacity() * sizeof(uint32_t);
  }

  Parameter& weight() { return weight_; }

 private:
  // Runs `multiply(begin, end, rows)` over the tiles of what the first layer multiplies, each gathered first.
  template <typename Work>
  void ForEachTile(const LayerInput& input, const Work& multiply);
  // Rows [begin, end) of what is multiplied; row `begin` goes to `out`.
  void Gather(const LayerInput& input, uint32_t begin, uint32_t end, float* out);
  void Scatter(const LayerInput& input, const SourceGradients& sources);
  // What a neighbor's message counts, of a list of so many.
  float ShareOf(uint64_t list_size) const;

  LayerWork& work_;
  const Gathering gathering_;
  const uint32_t width_;  // of what is multiplied
  Parameter weight_;      // [width, out]
  Matrix input_;
  std::vector<uint32_t> source_of_;  // [rows, in]: whose element is the largest; empty: none is asked for
  bool kept_ = true;                 // the input of this batch is whole in memory
  bool graph_adds_products_ = false;
};

}  // namespace quarry
