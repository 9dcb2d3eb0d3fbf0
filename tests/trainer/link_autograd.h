// Link prediction from its formulas as plain double-precision Torch with autograd, edge by edge: what the gradients of the
// decoder's kernels are held against.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <vector>

#include "link_decoder.h"
#include "plain_sage.h"

namespace quarry {

// Rows of `dim` floats as a leaf.
inline torch::Tensor LinkLeaf(std::span<const float> values, uint32_t dim) {
  return DoubleTensor(values).view({-1, int64_t{dim == 0 ? 1 : dim}}).clone().requires_grad_();
}

// The scores of the rows `asked` for the vector `known` of a node and `relation`, as of an edge from the former.
inline torch::Tensor PlainLinkScores(const LinkSpec& spec, const torch::Tensor& known,
                                     const torch::Tensor& relation, const torch::Tensor& asked) {
  const auto distances = [&](const torch::Tensor& query) { return -(query - asked).pow(2).sum(1).sqrt(); };
  if (spec.decoder == DecoderKind::kDot) return asked.matmul(known);
  if (spec.decoder == DecoderKind::kDistMult) return asked.matmul(known * relation);
  if (spec.decoder == DecoderKind::kTransE) return distances(known + relation);
  const std::vector<torch::Tensor> node = known.chunk(2);
  std::vector<torch::Tensor> by = relation.chunk(2);
  if (spec.decoder == DecoderKind::kRotatE) {
    const torch::Tensor length = (by[0].pow(2) + by[1].pow(2)).sqrt();
    by = {by[0] / length, by[1] / length};
  }
  const torch::Tensor query =
      torch::cat({node[0] * by[0] - node[1] * by[1], node[0] * by[1] + node[1] * by[0]});
  return spec.decoder == DecoderKind::kRotatE ? distances(query) : asked.matmul(query);
}

// What a vector adds to the loss by its size.
inline torch::Tensor PlainPenalty(const LinkSpec& spec, const torch::Tensor& vector) {
  const double weight = spec.regularization_weight;
  if (spec.regularization == Regularization::kL2) return weight * vector.pow(2).sum();
  if (!spec.is_complex()) return weight * vector.abs().pow(3).sum();
  const std::vector<torch::Tensor> parts = vector.chunk(2);
  return weight * (parts[0].pow(2) + parts[1].pow(2)).pow(1.5).sum();
}

inline torch::Tensor PlainLinkLoss(const LinkSpec& spec, const torch::Tensor& nodes,
                                   const torch::Tensor& relations, const LinkBatch& batch) {
  torch::Tensor loss = torch::zeros({}, torch::kDouble);
  for (const LinkSide side : kLinkSides) {
    const bool is_source = side == LinkSide::kSource;
    const std::span<const uint32_t> all = is_source ? batch.source_negatives : batch.destination_negatives;
    for (size_t edge = 0; edge < batch.sources.size(); edge++) {
      const torch::Tensor known = nodes[is_source ? batch.destinations[edge] : batch.sources[edge]];
      const uint32_t truth = is_source ? batch.sources[edge] : batch.destinations[edge];
      torch::Tensor relation;
      if (spec.relation_dim() > 0) {
        relation = relations[batch.relations[edge]].chunk(2)[is_source ? 1 : 0];
      }
      std::vector<int64_t> asked = {truth};
      for (const uint32_t negative :
           all.subspan(edge / batch.chunk_edges * batch.negative_count, batch.negative_count)) {
        if (negative != truth) asked.push_back(negative);
      }
      const torch::Tensor scores =
          PlainLinkScores(spec, known, relation, nodes.index_select(0, torch::tensor(asked, torch::kLong)));
      if (spec.loss == LinkLoss::kSoftmax) {
        loss = loss + scores.logsumexp(0) - scores[0];
      } else {
        const torch::Tensor excess = double{spec.margin} - scores[0] + scores.slice(0, 1);
        loss = loss + excess.clamp_min(0).sum() / static_cast<double>(batch.negative_count);
      }
      if (spec.regularization == Regularization::kNone) continue;
      loss = loss + PlainPenalty(spec, known) + PlainPenalty(spec, nodes[truth]);
      // The relations of rotate have no size.
      if (spec.relation_dim() > 0 && spec.decoder != DecoderKind::kRotatE)
        loss = loss + PlainPenalty(spec, relation);
    }
  }
  return loss;
}

}  // namespace quarry
