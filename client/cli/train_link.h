// `quarry train --task link`: its options, and the run that they ask for.
#pragma once

#include <string>
#include <string_view>

#include "cli.h"
#include "option_values.h"
#include "quarry/pipeline/partitioned_road.h"
#include "quarry/trainer/link_train.h"

namespace quarry::cli {

inline Choices<AsyncMode> AsyncModes() {
  return {{"sync", AsyncMode::kSync},
          {"async", AsyncMode::kAsync},
          {"async-bounded", AsyncMode::kAsyncBounded},
          {"oac", AsyncMode::kOac}};
}
inline Choices<OptimizerKind> Optimizers() {
  return {{"sgd", OptimizerKind::kSgd}, {"adagrad", OptimizerKind::kAdagrad}, {"adam", OptimizerKind::kAdam}};
}

// Values of --road that are no RoadKind: to choose among those (link prediction: all edges at a time), and part by part.
inline constexpr std::string_view kAutoRoad = "auto";
inline constexpr std::string_view kPartitionedRoad = "partitioned";

struct LinkArguments {
  LinkTrainOptions train;
  bool has_encoder = false;
  std::string valid_share = "0", test_share = "0";
  bool save = false;
  bool partitioned = false;
  std::string partitioning = "default";
  PartitionedRoadOptions road;
};

// Adds those options that only this task has.
void AddLinkOptions(CLI::App* verb, LinkArguments& arguments);

// kUsage when `verb` was given an option of the other task. `task` is "node" or "link".
Status CheckTaskOptions(const CLI::App& verb, std::string_view task);

// Takes from `verb` what both tasks have: where the user gave none of these, link prediction has its own
// defaults.
Status TrainLink(const CLI::App& verb, LinkArguments& arguments);

}  // namespace quarry::cli
