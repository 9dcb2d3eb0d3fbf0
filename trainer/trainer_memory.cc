// What training a model takes of memory, before there is a batch.
#include <algorithm>

#include "layer_bytes.h"
#include "quarry/base/units.h"
#include "quarry/trainer/train.h"

namespace quarry {

uint32_t OutputsOf(const TrainOptions& options, uint32_t class_count) {
  return options.targets != nullptr ? options.targets->dim() : class_count;
}

// Scores and truths of all outputs, of those of one label once more, and their order.
uint64_t JudgingBytes(const TrainOptions& options, uint32_t class_count, uint64_t nodes) {
  constexpr uint64_t kScored = sizeof(float) + sizeof(uint8_t);
  const uint64_t width = OutputsOf(options, class_count);
  if (options.task == NodeTask::kRegression || (options.task == NodeTask::kClasses && width != 2)) return 0;
  const uint64_t listed = options.task == NodeTask::kClasses ? 1 : width;
  return nodes * (2 * listed * kScored + kScored + sizeof(uint32_t));
}

uint64_t EstimateTrainerBytes(const TrainOptions& options, uint32_t feature_dim, uint32_t class_count,
                              const BlockBounds& block, bool checkpoints) {
  class_count = OutputsOf(options, class_count);
  // Code and libraries, and what OpenBLAS and OpenMP keep for a thread: training on a tiny graph peaks at 195
  // MiB with two threads, 20 MiB of which are the engine's.
  constexpr uint64_t kRuntimeBytes = 208 * kMiB;
  constexpr uint64_t kThreadBytes = 24 * kMiB;
  constexpr uint64_t kParameterCopies = 5;  // weight, gradient, Adam's two moments, the best weights
  // What a checkpoint takes: weights, moments and best weights as bytes, twice while they are put together,
  // and the file's buffer.
  constexpr uint64_t kStateCopies = 8;
  constexpr uint64_t kStateBufferBytes = 6 * kMiB;
  constexpr uint64_t kLogitCopies = 4;  // for the loss: log-softmax and the gradients that autograd holds
  uint64_t bytes =
      kRuntimeBytes + options.torch_threads * kThreadBytes + (checkpoints ? kStateBufferBytes : 0);
  if (options.degrees != nullptr) bytes += options.degrees->size() * sizeof(uint32_t);
  bytes += block.hop_nodes[0] * class_count * sizeof(float) * kLogitCopies;
  const uint64_t parameter_copies = kParameterCopies + (checkpoints ? kStateCopies : 0);
  const bool by_type = options.spec.needs_relations();
  if (by_type) {
    const std::vector<InputType> types = options.inputs.TypesOr(feature_dim);
    bytes += InputBytes(types, options.hidden, block.nodes) +
             InputParameters(types, options.hidden) * sizeof(float) * parameter_copies;
  }
  for (uint32_t l = 0; l < options.layers; l++) {
    const LayerBounds layer{.in = l == 0 && !by_type ? feature_dim : options.hidden,
                            .out = l + 1 == options.layers ? class_count : options.hidden,
                            .first = l == 0,
                            .last = l + 1 == options.layers,
                            .kinds = options.inputs.kind_count,
                            .rows = block.hop_nodes[options.layers - 1 - l],
                            .sources = l == 0 ? block.nodes : block.hop_nodes[options.layers - l],
                            .edges = block.hop_edges[options.layers - 1 - l]};
    bytes += LayerActivationBytes(options.spec, layer) + GrownBytes(layer.rows * layer.out);
    bytes += LayerParameters(options.spec, layer) * sizeof(float) * parameter_copies;
  }
  return bytes;
}

Status CheckTrainerMemory(const TrainOptions& options, uint32_t feature_dim, uint32_t class_count,
                          const std::function<Result<LargestLabel>()>& largest_label,
                          const BlockBounds& block, bool checkpoints, uint64_t engine_bytes,
                          uint64_t limit_bytes) {
  const auto bytes_of = [&](uint32_t classes) {
    return EstimateTrainerBytes(options, feature_dim, classes, block, checkpoints);
  };
  const uint64_t bytes = bytes_of(class_count);
  if (bytes + engine_bytes <= limit_bytes) return Status::Ok();
  if (options.targets != nullptr || bytes_of(2) + engine_bytes > limit_bytes) {
    return MakeStatus(
        Code::kOutOfBudget,
        "training would take {} beside the engine's {}, and the machine or cgroup allows {}: lower "
        "the hidden width, the batch size or the fanouts",
        FormatBytes(bytes), FormatBytes(engine_bytes), FormatBytes(limit_bytes));
  }
  QUARRY_TRY(const LargestLabel largest, largest_label());
  return MakeStatus(
      Code::kOutOfBudget,
      "training would take {} beside the engine's {}, and the machine or cgroup allows {}: the label "
      "of node {} is {}, so a model would tell {} classes apart; the largest of the others is {}. "
      "Correct the label, or, where labels are codes, import them anew with relabel",
      FormatBytes(bytes), FormatBytes(engine_bytes), FormatBytes(limit_bytes), largest.node, largest.label,
      class_count, largest.next);
}

Status CheckTrainerMemory(const TrainOptions& options, uint32_t feature_dim, std::span<const int64_t> labels,
                          const BlockBounds& block, bool checkpoints, uint64_t engine_bytes,
                          uint64_t limit_bytes) {
  const auto find = [&]() -> Result<LargestLabel> {
    const auto largest = std::ranges::max_element(labels);
    LargestLabel found{.node = static_cast<NodeId>(largest - labels.begin()), .label = *largest};
    for (const int64_t label : labels) {
      if (label != *largest) found.next = std::max(found.next, label);
    }
    return found;
  };
  return CheckTrainerMemory(options, feature_dim, CountClasses(labels), find, block, checkpoints,
                            engine_bytes, limit_bytes);
}

BlockBounds BoundBlock(uint64_t batch_size, std::span<const uint32_t> fanouts, uint64_t nodes_max) {
  BlockBounds block;
  uint64_t bound = batch_size, fresh = batch_size, drawn = 0;
  uint32_t fanout_max = 0;
  for (const uint32_t fanout : fanouts) {
    const uint64_t nodes = std::min(bound, nodes_max);
    // A node draws once, as many as the fanout of the hop at which it is new. Where the cap cuts a hop, fewer may be new
    // there and more at a later one: so each hop has what it may have at most, and all of them the longest lists.
    fanout_max = std::max(fanout_max, fanout);
    drawn += std::min(fresh, nodes_max) * fanout;
    block.hop_nodes.push_back(nodes);
    block.hop_edges.push_back(std::min(drawn, nodes * fanout_max));
    fresh = nodes * fanout;
    bound = nodes + fresh;
  }
  block.nodes = std::min(bound, nodes_max);
  return block;
}

}  // namespace quarry
