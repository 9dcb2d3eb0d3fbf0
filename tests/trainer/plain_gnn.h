// Every model as plain double-precision Torch with autograd, node by node: what GnnLayers is held against.
#pragma once

#include <torch/torch.h>

#include <span>
#include <vector>

#include "plain_sage.h"
#include "quarry/sampling/block.h"
#include "quarry/trainer/model_spec.h"

namespace quarry {

// The layers' parameters, as GnnLayers has them, as leaves in the shapes that PlainGnn takes.
inline std::vector<std::vector<torch::Tensor>> PlainGnnParameters(const ModelSpec& spec,
                                                                  const std::vector<std::span<float>>& spans,
                                                                  const std::vector<uint32_t>& widths) {
  const size_t count = widths.size() - 1, per_layer = spans.size() / count;
  std::vector<std::vector<torch::Tensor>> layers(count);
  for (size_t l = 0; l < count; l++) {
    const int64_t in = widths[l], out = widths[l + 1], heads = spec.heads;
    const bool last = l + 1 == count;
    std::vector<std::vector<int64_t>> shapes;
    switch (spec.model) {
      case GnnKind::kSage:
        shapes = {{2 * in, out}, {out}};
        break;
      case GnnKind::kGcn:
        shapes = {{in, out}, {out}};
        break;
      case GnnKind::kRgat:
      case GnnKind::kRgcn:  // of edges with kinds, which the tests of it have
        ADD_FAILURE() << "no plain R-GCN here";
        break;
      case GnnKind::kGin:
        shapes = {{in, out}, {out}, {out, out}, {out}};
        break;
      case GnnKind::kGat:
        shapes = {{in, last ? heads * out : out}, {heads, last ? out : out / heads}};
        shapes.push_back(shapes[1]);
        shapes.push_back({out});
        break;
    }
    EXPECT_EQ(shapes.size(), per_layer);
    for (size_t p = 0; p < shapes.size(); p++) {
      layers[l].push_back(DoubleTensor(spans[l * per_layer + p]).view(shapes[p]).clone().requires_grad_());
    }
  }
  return layers;
}

// What layer `parameters` makes of node v, whose list has the rows `list` of h, without bias. Of GAT, `z` is h W by head.
inline torch::Tensor PlainNode(const ModelSpec& spec, const std::vector<torch::Tensor>& parameters, bool last,
                               const torch::Tensor& h, const torch::Tensor& z, int64_t v,
                               std::vector<int64_t> list, const torch::Tensor& degrees = {},
                               const torch::Tensor& weights = {}) {
  const auto rows = [&](const torch::Tensor& from) {
    return from.index_select(0, torch::tensor(list, torch::kLong));
  };
  if (spec.model == GnnKind::kSage) {
    torch::Tensor told = torch::zeros({h.size(1)}, torch::kDouble);
    if (spec.needs_weights()) {
      const double sum = spec.aggregator == Aggregator::kSum ? 1 : weights.sum().item<double>();
      if (!list.empty() && sum > 0) told = (weights.unsqueeze(-1) * rows(h)).sum(0) / sum;
    } else if (!list.empty()) {
      told = spec.aggregator == Aggregator::kMean  ? rows(h).mean(0)
             : spec.aggregator == Aggregator::kSum ? rows(h).sum(0)
                                                   : std::get<0>(rows(h).max(0));
    }
    return torch::cat({h[v], told}).matmul(parameters[0]);
  }
  if (spec.needs_degrees()) {  // h's row i is node i, of that many neighbors in the whole graph
    const torch::Tensor scales = (degrees + 1).rsqrt();
    torch::Tensor told = scales[v] * h[v];
    if (!list.empty()) {
      const torch::Tensor of = scales.index_select(0, torch::tensor(list, torch::kLong));
      told = told + (of.unsqueeze(-1) * rows(h)).sum(0) * degrees[v] / static_cast<double>(list.size());
    }
    return (scales[v] * told).matmul(parameters[0]);
  }
  if (spec.needs_weights()) {
    return ((h[v] + (weights.unsqueeze(-1) * rows(h)).sum(0)) / (1 + weights.sum())).matmul(parameters[0]);
  }
  list.push_back(v);
  if (spec.model == GnnKind::kGcn) return rows(h).mean(0).matmul(parameters[0]);
  if (spec.model == GnnKind::kGin) {
    return (rows(h).sum(0).matmul(parameters[0]) + parameters[1]).relu().matmul(parameters[2]);
  }
  const torch::Tensor scores = (z[v] * parameters[1]).sum(-1) + (rows(z) * parameters[2]).sum(-1);
  const torch::Tensor a = torch::leaky_relu(scores, 0.2).softmax(0);
  const torch::Tensor heads = (a.unsqueeze(-1) * rows(z)).sum(0);  // [heads, head_dim]
  return last ? heads.mean(0) : heads.flatten();
}

// The outputs of the seeds; `h` has a row for each of the block's nodes. `weights`: of the graph's edges, by edge id.
inline torch::Tensor PlainGnn(const ModelSpec& spec, const Block& block, torch::Tensor h,
                              const std::vector<std::vector<torch::Tensor>>& layers,
                              const torch::Tensor& degrees = {}, std::span<const float> weights = {}) {
  for (size_t l = 0; l < layers.size(); l++) {
    const bool last = l + 1 == layers.size();
    torch::Tensor z;
    if (spec.model == GnnKind::kGat) z = h.matmul(layers[l][0]).view({h.size(0), spec.heads, -1});
    std::vector<torch::Tensor> outputs;
    for (uint32_t v = 0; v < block.hop_offsets[layers.size() - 1 - l]; v++) {
      std::vector<int64_t> list(block.indices.begin() + block.indptr[v],
                                block.indices.begin() + block.indptr[v + 1]);
      std::vector<double> of_list;
      for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1] && !weights.empty(); e++) {
        of_list.push_back(weights[block.edge_ids[e]]);
      }
      outputs.push_back(PlainNode(spec, layers[l], last, h, z, v, std::move(list), degrees,
                                  torch::tensor(of_list, torch::kDouble)));
    }
    h = torch::stack(outputs) + layers[l].back();
    if (!last) h = spec.model == GnnKind::kGat ? torch::elu(h) : h.relu();
  }
  return h;
}

}  // namespace quarry
