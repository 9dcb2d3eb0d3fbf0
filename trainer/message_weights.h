// What the messages of a block count, of models that ask for more than what the block says itself: GCN with the symmetric
// norm (--gcn-norm both).
//
//   row of v = s_v^2 h_v + s_v deg(v) / drawn(v) * (sum over drawn neighbors u of s_u h_u),   s = 1 / sqrt(1 + deg)
//
// Degrees are those of the whole graph. A drawn neighbor stands for deg(v) / drawn(v) of them, so that the row is, on
// average over the samples, that of the whole list; where the whole list is drawn, it is exactly Kipf and Welling's.
//
// And of models that take what edges weigh (--edge-weights on), with w_e of the drawn edges of v:
//
//   SAGE, mean   sum of w_e h_u / sum of w_e      (0 where the edges weigh nothing)
//   SAGE, sum    sum of w_e h_u
//   GCN          (h_v + sum of w_e h_u) / (1 + sum of w_e)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layer.h"
#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"
#include "quarry/trainer/aggregate.h"

namespace quarry {

// One thread, which LayerWork's work under. The memory is kept from batch to batch.
class BlockWeights {
 public:
  // Those of a batch; kInternal for a node that has no degree.
  Status Weigh(std::span<const uint32_t> degrees, const BatchView& batch, LayerWork& work);
  // Those of a batch that has edge ids, by what each edge of the graph weighs. `means`: sums are divided by what was summed;
  // `with_self`: to which the node itself belongs, with a weight of 1. kInternal for a batch without edge ids, or an edge
  // beyond the weights.
  Status WeighEdges(std::span<const float> weights, bool means, bool with_self, const BatchView& batch,
                    LayerWork& work);
  // Of the last batch; nothing before there was one.
  MessageWeights view() const {
    return edges_.empty() && selves_.empty() ? MessageWeights()
                                             : MessageWeights{edges_.data(), selves_.data()};
  }
  uint64_t held_bytes() const {
    return (scales_.capacity() + edges_.capacity() + selves_.capacity()) * sizeof(float);
  }

 private:
  std::vector<float> scales_;  // by node of the block
  std::vector<float> edges_, selves_;
};

}  // namespace quarry
