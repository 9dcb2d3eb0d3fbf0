// What `quarry predict` says of what it did.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quarry/trainer/graph_pass.h"
#include "train_targets.h"

namespace quarry::cli {

// A step of a roll-out: what is predicted of a time, and how far off that is, where the database has what came to be.
struct RolloutStep {
  uint64_t time = 0;
  TargetErrors errors, persistence;  // of the prediction, and of what was at the beginning
};

struct PredictReport {
  uint64_t nodes = 0;
  uint64_t labelled = 0;           // nodes among them that have a label
  uint64_t correct = 0;            // labelled nodes whose likeliest class it is
  TargetErrors errors;             // of regression
  std::optional<GraphPass> pass;   // of --inference layers
  std::vector<RolloutStep> steps;  // of --steps
};

struct PredictPlace {
  std::string run, path, table;  // one of path and table
  uint64_t columns = 0;
};

void PrintPredictions(const PredictReport& report, const PredictPlace& place, double seconds, bool json);

}  // namespace quarry::cli
