#include "message_weights.h"

#include <algorithm>
#include <cmath>

#include "resize_void.h"

namespace quarry {

Status BlockWeights::Weigh(std::span<const uint32_t> degrees, const BatchView& batch, LayerWork& work) {
  const auto beyond = [&](NodeId node) { return node >= degrees.size(); };
  if (const auto node = std::ranges::find_if(batch.nodes, beyond); node != batch.nodes.end()) {
    return MakeStatus(Code::kInternal, "a batch has node {}, and the model knows the degrees of {} nodes",
                      *node, degrees.size());
  }
  ResizeVoid(scales_, batch.nodes.size());
  ResizeVoid(edges_, batch.indices.size());
  edges_.reserve(1);  // view() points somewhere although no node has a neighbor
  ResizeVoid(selves_, batch.target_count());
  work.ForRows(0, static_cast<uint32_t>(batch.nodes.size()), [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; i++) {
      scales_[i] = 1.0F / std::sqrt(1.0F + static_cast<float>(degrees[batch.nodes[i]]));
    }
  });
  work.ForRows(0, batch.target_count(), [&](uint32_t begin, uint32_t end) {
    for (uint32_t v = begin; v < end; v++) {
      const float scale = scales_[v];
      selves_[v] = scale * scale;
      const uint32_t first = batch.indptr[v], last = batch.indptr[v + 1];
      if (first == last) continue;
      const float stands_for = static_cast<float>(degrees[batch.nodes[v]]) / static_cast<float>(last - first);
      for (uint32_t e = first; e < last; e++) edges_[e] = scale * stands_for * scales_[batch.indices[e]];
    }
  });
  return Status::Ok();
}

Status BlockWeights::WeighEdges(std::span<const float> weights, bool means, bool with_self,
                                const BatchView& batch, LayerWork& work) {
  if (batch.edge_ids.size() != batch.indices.size()) {
    return MakeStatus(Code::kInternal, "a batch of {} edges says of {} which they are, and they have weights",
                      batch.indices.size(), batch.edge_ids.size());
  }
  const auto beyond = [&](uint64_t edge) { return edge >= weights.size(); };
  if (const auto edge = std::ranges::find_if(batch.edge_ids, beyond); edge != batch.edge_ids.end()) {
    return MakeStatus(Code::kInternal, "a batch has edge {}, and the model knows the weights of {} edges",
                      *edge, weights.size());
  }
  ResizeVoid(edges_, batch.indices.size());
  edges_.reserve(1);  // view() points somewhere although no node has a neighbor
  ResizeVoid(selves_, batch.target_count());
  work.ForRows(0, batch.target_count(), [&](uint32_t begin, uint32_t end) {
    for (uint32_t v = begin; v < end; v++) {
      const uint32_t first = batch.indptr[v], last = batch.indptr[v + 1];
      float sum = with_self ? 1.0F : 0.0F;
      for (uint32_t e = first; e < last; e++) sum += edges_[e] = weights[batch.edge_ids[e]];
      const float share = !means ? 1.0F : sum > 0 ? 1.0F / sum : 0.0F;
      selves_[v] = with_self ? share : 1.0F;  // apart, it is as it is
      for (uint32_t e = first; e < last; e++) edges_[e] *= share;
    }
  });
  return Status::Ok();
}

}  // namespace quarry
