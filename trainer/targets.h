// What is done with the targets of a batch (quarry/trainer/node_task.h): reading, scaling, and the losses against them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/trainer/node_task.h"

namespace quarry {

// Reads the targets of `nodes` into `rows` ([nodes, dim]). kInvalidArgument names the place of a value that is infinite, or,
// of several labels, neither 0 nor 1; errors of `targets`.
Status ReadTargets(TargetRows& targets, NodeTask task, std::span<const NodeId> nodes,
                   std::vector<float>& rows);

// Rows ([n, width]) that have a target.
uint32_t CountTargeted(std::span<const float> rows, uint32_t width);

// The mean over the rows that have a target of the mean loss of their targets; `gradients` ([n, width]) become those of the
// outputs. Sums are taken in the order of rows, by one thread. `regression_loss` is of regression alone. REQUIRES: regression
// or several labels; a row has a target.
float TargetLoss(NodeTask task, RegressionLoss regression_loss, std::span<const float> outputs,
                 std::span<const float> targets, uint32_t width, std::span<float> gradients);

// Mean and deviation of each column over the training nodes: a model of regression learns targets that are scaled to a mean
// of 0 and a deviation of 1, whatever their units. Empty: nothing is scaled.
struct TargetScale {
  std::vector<float> mean, deviation;

  // In one pass over the targets of `nodes`, which are read a few thousand at a time. A column that is constant, or has no
  // target, keeps its units. `progress` is told of nodes done; what it returns other than OK is returned, as are errors of
  // ReadTargets.
  static Result<TargetScale> Measure(TargetRows& targets, std::span<const NodeId> nodes,
                                     const std::function<Status(uint64_t done)>& progress);
  void Scale(std::span<float> rows) const;    // of the table's units
  void Unscale(std::span<float> rows) const;  // of the model's outputs
};

}  // namespace quarry
