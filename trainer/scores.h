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
  explicit Scores(uint32_t class_count) : class_count_(class_count) {}

  // Logits [labels, classes]; a label of -1 is not counted.
  void Add(std::span<const float> logits, std::span<const int64_t> labels);
  // Every trainer has the scores of all of them afterwards.
  Status Gather(Communicator& trainers);
  // Nothing when no labelled node was scored.
  std::optional<Evaluation> Evaluate() const;

 private:
  const uint32_t class_count_;
  uint64_t nodes_ = 0;
  uint64_t correct_ = 0;
  // How much class 1 of two is preferred, and whether it is the label; empty for other numbers of classes.
  std::vector<float> preference_;
  std::vector<uint8_t> positive_;
};

}  // namespace quarry
