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

}  // namespace quarry
