// The options of `quarry train` that name a run and say when it takes checkpoints, for both tasks; and the
// settings of training on nodes, which a run that goes on must be given again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cli.h"
#include "option_values.h"
#include "quarry/format/wire_responses.h"
#include "quarry/layout/layout.h"
#include "quarry/pipeline/partitioned_road.h"
#include "quarry/trainer/train.h"

namespace quarry::cli {

inline Choices<RowNorm> RowNorms() {
  return {{"none", RowNorm::kNone}, {"l1", RowNorm::kL1}, {"l2", RowNorm::kL2}};
}

struct RunFlags {
  std::string name;               // empty: the task's
  uint64_t checkpoint_every = 0;  // batches; 0: it was not given
  bool resume = false;
  bool overwrite = false;
  std::string from;  // a run, or a file of weights; empty: drawn ones

  void AddTo(CLI::App* verb);
  // The run of node classification, still without states and settings; nothing without checkpoints. kUsage
  // for options that only runs with checkpoints have.
  Result<std::optional<TrainRun>> NodeRun() const;
};

// What `train` and a road, or the layout that it reads (one of `built` and `planned`), say of the result.
struct NodeSettings {
  const RoadSpec& road;
  const TrainOptions& train;
  const LayoutRecord* built = nullptr;       // --layout
  const LayoutSpec* planned = nullptr;       // --plan
  const wire::OpenedParts* parts = nullptr;  // --road partitioned
  bool resample = false;
  uint32_t trainers = 1;
  std::string_view from = {};    // --from
  std::string_view target = {};  // --target, of tasks that have one
  std::string ToString() const;  // "--task node --layers 3 ..."
};

// What `parts` leaves to tuning, taken from the settings of the run that goes on: the memory that there is now may be
// other than when it began. kCorruption where they cannot be read.
Status TakeTunedParts(std::string_view run, const std::string& settings, PartitionedRoadOptions& parts);

// The options of the road that a run's checkpoint was trained on; nothing for the live road.
struct RunRoad {
  bool resample = false, planned = false;
  std::string cache, disk;
  PolicyKind policy = PolicyKind::kBelady;
  uint32_t epochs = 1;
  uint64_t superbatch = 0;  // batches; 0: an epoch
};
// kCorruption where the settings cannot be read.
Result<RunRoad> RoadOfRun(const std::string& settings);

}  // namespace quarry::cli
