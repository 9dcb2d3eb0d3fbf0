// InferLayers: the layers of a model over a whole graph, out of core (quarry/trainer/graph_pass.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "gnn_layers.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/trainer/graph_pass.h"
#include "quarry/trainer/train.h"

namespace quarry {

// Takes the rows of nodes from `first` on, which are valid during the call; an error ends the pass, and is returned.
using NodeRowSink = std::function<Status(NodeId first, std::span<const float> rows)>;

// Carries the features of all nodes, normalised by `norm`, through the first `layer_count` layers, and gives the sink what
// comes out, in the order of nodes. `progress` is told of nodes done and in all, of every layer; what it returns other than
// OK ends the pass. The same bits for any number of threads where products are split. kOutOfBudget says what least memory
// would do; kInvalidArgument where the topology lacks a side of the direction; kNotFound, kCorruption, kNoSpace.
Result<GraphPass> InferLayers(GnnLayers& layers, uint32_t layer_count, const GraphSource& source,
                              RowNorm norm, const NodeRowSink& sink,
                              const std::function<Status(uint64_t done, uint64_t total)>& progress);
// Refuses what InferLayers would refuse before it reads rows, kOutOfBudget among it. Reads a sample of the edges.
Status CheckInferLayers(GnnLayers& layers, uint32_t layer_count, const GraphSource& source, RowNorm norm);

}  // namespace quarry
