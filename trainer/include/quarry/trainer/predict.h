// Predictor: a trained model of nodes' classes or targets, asked about any nodes, by sampled inference over any road, or about
// all of a graph's nodes, layer by layer.
//
// Samples are those of training's test pass. So over the road that the run was trained on, and over its test
// nodes, predictions have the accuracy that training reported.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/named_tensor.h"
#include "quarry/format/types.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/storage/training_state.h"
#include "quarry/trainer/graph_pass.h"
#include "quarry/trainer/train.h"

namespace quarry {

// What is told of a node.
enum class PredictedRows : uint8_t {
  kScores,  // the probability of each class, or of each label; of regression, the values, in the table's units
  kEmbeddings,  // what the last layer is given of the node: the outputs of the layer before it
};

// Takes the rows of the next nodes, one behind the other, which are valid during the call. An error ends the
// predictions, and is returned.
using PredictionSink = std::function<Status(std::span<const NodeId> nodes, std::span<const float> rows)>;

// The weights of the run's last checkpoint that were tested, by their names (docs/cli.md, "quarry export"). Errors as
// Predictor::Open.
Result<std::vector<NamedTensor>> ReadWeights(TrainingStates& states, std::string_view run,
                                             const TrainOptions& options, uint32_t feature_dim);

// One thread at a time, which LibTorch's threads work under.
class Predictor {
 public:
  // The model of the run's last checkpoint, with the weights that were tested. `options` has task, layers, hidden and
  // row_norm as the run had them, and torch_threads. `split_products`: PredictGraph gives the same bits for any number of
  // them, and Predict too. kNotFound where there is no such run; kCorruption for a run
  // of another task, and for weights of another model than one that takes `feature_dim` columns.
  static Result<std::unique_ptr<Predictor>> Open(TrainingStates& states, std::string_view run,
                                                 const TrainOptions& options, uint32_t feature_dim,
                                                 bool split_products = false);
  virtual ~Predictor() = default;

  virtual uint32_t class_count() const = 0;  // or columns of the targets
  // Columns of such rows. 0: the model has one layer, and so nothing below it but the features.
  virtual uint32_t width(PredictedRows rows) const = 0;

  // The rows of `nodes`, each of which occurs once, in their order. `progress` is told the batches done and in
  // all; what it returns other than OK ends the predictions, and is returned, as are the faults of the road.
  // REQUIRES: no stream of the road is open; width(rows) > 0.
  virtual Status Predict(Road& road, std::vector<NodeId> nodes, PredictedRows rows,
                         const PredictionSink& sink,
                         const std::function<Status(uint64_t done, uint64_t total)>& progress = {}) = 0;

  // The rows of all nodes, ascending, from all of their neighbors (graph_pass.h). `progress` is told of nodes done and in
  // all, of each layer. Errors of the sink, of progress, and as graph_pass.h's; kOutOfBudget. REQUIRES: width(rows) > 0.
  virtual Result<GraphPass> PredictGraph(
      const GraphSource& source, PredictedRows rows, const PredictionSink& sink,
      const std::function<Status(uint64_t done, uint64_t total)>& progress = {}) = 0;
};

}  // namespace quarry
