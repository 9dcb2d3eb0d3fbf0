// GraphSAGE-mean as plain double-precision Torch with autograd, by index_select and index_add: what
// GnnLayers is held against.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <span>
#include <vector>

#include "quarry/sampling/block.h"

namespace quarry {

inline torch::Tensor DoubleTensor(std::span<const float> values) {
  return torch::tensor(std::vector<double>(values.begin(), values.end()), torch::kDouble);
}

// Leaves for the weight and the bias of each layer, of values as GnnLayers gives them.
template <typename Spans>
std::vector<torch::Tensor> PlainParameters(const Spans& spans) {
  std::vector<torch::Tensor> parameters;
  for (size_t p = 0; p < spans.size(); p += 2) {
    const auto out = static_cast<int64_t>(spans[p + 1].size());
    parameters.push_back(DoubleTensor(spans[p]).view({-1, out}).clone().requires_grad_());
    parameters.push_back(DoubleTensor(spans[p + 1]).clone().requires_grad_());
  }
  return parameters;
}

// The outputs of the seeds; `h` has a row for each of the block's nodes.
inline torch::Tensor PlainSage(const Block& block, torch::Tensor h,
                               const std::vector<torch::Tensor>& parameters) {
  const size_t layers = parameters.size() / 2;
  for (size_t l = 0; l < layers; l++) {
    const uint32_t rows = block.hop_offsets[layers - 1 - l];
    std::vector<int64_t> from, to;
    std::vector<double> share;
    for (uint32_t v = 0; v < rows; v++) {
      for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; e++) {
        from.push_back(block.indices[e]);
        to.push_back(v);
        share.push_back(1.0 / (block.indptr[v + 1] - block.indptr[v]));
      }
    }
    const torch::Tensor messages = h.index_select(0, torch::tensor(from, torch::kLong)) *
                                   torch::tensor(share, torch::kDouble).unsqueeze(1);
    const torch::Tensor mean = torch::zeros({rows, h.size(1)}, torch::kDouble)
                                   .index_add(0, torch::tensor(to, torch::kLong), messages);
    h = torch::cat({h.slice(0, 0, rows), mean}, 1).matmul(parameters[2 * l]) + parameters[2 * l + 1];
    if (l + 1 < layers) h = h.relu();
  }
  return h;
}

// Within 1e-4 of the largest element, or the rounding of sums of terms about 1 that cancel out (GAT's score of the node itself).
inline void ExpectWithin(std::span<const float> got, const torch::Tensor& expected) {
  const torch::Tensor flat = expected.contiguous();
  ASSERT_EQ(static_cast<size_t>(flat.numel()), got.size());
  const double scale = flat.abs().max().item<double>();
  for (size_t i = 0; i < got.size(); i++) {
    ASSERT_NEAR(got[i], flat.data_ptr<double>()[i], 1e-4 * scale + 1e-6) << i;
  }
}

}  // namespace quarry
