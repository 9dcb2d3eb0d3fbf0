// R-GCN and R-GAT as plain double-precision Torch with autograd, node by node: what layers that tell relations apart are
// held against.
#pragma once

#include <torch/torch.h>

#include <span>
#include <vector>

#include "plain_sage.h"
#include "quarry/sampling/block.h"

namespace quarry {

// The layers' parameters, as GnnLayers has them, as leaves in the shapes that the models here take.
inline std::vector<std::vector<torch::Tensor>> PlainKindedParameters(bool attends, int64_t heads,
                                                                     int64_t bases, int64_t kinds,
                                                                     std::span<const std::span<float>> spans,
                                                                     const std::vector<uint32_t>& widths) {
  std::vector<std::vector<torch::Tensor>> layers;
  for (size_t l = 0, p = 0; l + 1 < widths.size(); l++) {
    const int64_t out = widths[l + 1];
    const int64_t head = l + 2 == widths.size() ? out : out / heads;
    const auto take = [&](const std::vector<int64_t>& shape) {
      return DoubleTensor(spans[p++]).view(shape).clone().requires_grad_();
    };
    if (attends) {
      layers.push_back({take({widths[l], bases * heads * head}), take({heads, head}), take({heads, head}),
                        take({kinds + 1, bases}), take({out})});
    } else {
      layers.push_back({take({-1, out}), take({kinds, bases}), take({out})});
    }
  }
  return layers;
}

// R-GCN as plain Torch: of each node and basis the mean over its edges of a coefficient times a row.
inline torch::Tensor PlainRgcn(const Block& block, torch::Tensor h, std::span<const uint32_t> kinds,
                               int64_t bases, const std::vector<std::vector<torch::Tensor>>& layers) {
  for (size_t l = 0; l < layers.size(); l++) {
    std::vector<torch::Tensor> outputs;
    for (uint32_t v = 0; v < block.hop_offsets[layers.size() - 1 - l]; v++) {
      const uint32_t first = block.indptr[v], last = block.indptr[v + 1];
      torch::Tensor gathered = torch::zeros({bases, h.size(1)}, torch::kDouble);
      for (uint32_t e = first; e < last; e++) {
        const torch::Tensor counts = layers[l][1][kinds[block.edge_ids[e]]];
        gathered = gathered + torch::outer(counts, h[block.indices[e]]) / static_cast<double>(last - first);
      }
      outputs.push_back(torch::cat({h[v], gathered.flatten()}).matmul(layers[l][0]) + layers[l][2]);
    }
    h = torch::stack(outputs);
    if (l + 1 < layers.size()) h = h.relu();
  }
  return h;
}

// R-GAT as plain Torch: attention over a node's edges, whose messages are sums of bases by kind, and the node itself, whose
// kind is the last.
inline torch::Tensor PlainRgat(const Block& block, torch::Tensor h, std::span<const uint32_t> kinds,
                               int64_t heads, const std::vector<std::vector<torch::Tensor>>& layers) {
  for (size_t l = 0; l < layers.size(); l++) {
    const bool last = l + 1 == layers.size();
    const torch::Tensor &left = layers[l][1], &right = layers[l][2], &counts = layers[l][3];
    const int64_t bases = counts.size(1);
    const torch::Tensor z = h.matmul(layers[l][0]).view({h.size(0), bases, heads, -1});
    std::vector<torch::Tensor> outputs;
    for (uint32_t v = 0; v < block.hop_offsets[layers.size() - 1 - l]; v++) {
      std::vector<torch::Tensor> messages, scores;
      const auto listen = [&](uint32_t u, int64_t kind) {
        const torch::Tensor of_kind = counts[kind].view({bases, 1, 1});
        messages.push_back((of_kind * z[u]).sum(0));
        scores.push_back(torch::leaky_relu(
            ((of_kind * z[v]).sum(0) * left).sum(1) + (messages.back() * right).sum(1), 0.2));
      };
      for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; e++) {
        listen(block.indices[e], kinds[block.edge_ids[e]]);
      }
      listen(v, counts.size(0) - 1);
      const torch::Tensor shares = torch::stack(scores).softmax(0).unsqueeze(2);
      const torch::Tensor sum = (shares * torch::stack(messages)).sum(0);
      outputs.push_back((last ? sum.mean(0) : sum.flatten()) + layers[l][4]);
    }
    h = torch::stack(outputs);
    if (!last) h = torch::elu(h);
  }
  return h;
}

}  // namespace quarry
