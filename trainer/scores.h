// Scores: what an evaluation pass counts, of one trainer or of several that share the pass.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/trainer/communicator.h"
#include "quarry/trainer/train.h"

namespace quarry {

class Scores {
 public:
  // `width`: of the outputs, classes or targets.
  Scores(NodeTask task, uint32_t width)
      : task_(task), width_(width), columns_(task == NodeTask::kRegression ? width : 0) {}

  // Logits [labels, classes]; a label of -1 is not counted. For classes.
  void Add(std::span<const float> logits, std::span<const int64_t> labels);
  // Outputs and targets [seeds, width], both in the units of the targets; those that are NaN are not counted. For the other
  // tasks.
  void AddTargets(std::span<const float> outputs, std::span<const float> targets);
  // The rows that persistence takes for the targets, after these have been added.
  void AddPresent(std::span<const float> present, std::span<const float> targets);
  // Every trainer has the scores of all of them afterwards.
  Status Gather(Communicator& trainers);
  // Nothing when no node with a label, or a target, was scored.
  std::optional<Evaluation> Evaluate() const;

 private:
  static constexpr uint8_t kNoLabel = 2;  // in positive_

  void EvaluateLabels(Evaluation& evaluation) const;

  const NodeTask task_;
  const uint32_t width_;
  uint64_t nodes_ = 0;
  uint64_t correct_ = 0;
  // How much class 1 of two is preferred, and whether it is the label; empty for other numbers of classes. For several
  // labels, the logit of each of a node's, and whether it has it.
  std::vector<float> preference_;
  std::vector<uint8_t> positive_;
  // For regression: targets, and the errors' squares and sizes summed.
  uint64_t targets_ = 0;
  double squared_ = 0, absolute_ = 0;
  struct Squares {
    double sum = 0, count = 0;
  };
  std::vector<Squares> columns_;  // the same by column
  Squares present_;               // of persistence
};

}  // namespace quarry
