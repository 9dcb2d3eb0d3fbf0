// Checkpoints of training on nodes: when they are taken, and the state in them as bytes (docs/format.md,
// "Training states").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "node_model.h"
#include "quarry/base/status.h"
#include "quarry/trainer/train.h"
#include "targets.h"

namespace quarry {

// Where a training stands at the end of an epoch, beside its model.
struct TrainProgress {
  NodeTask task = NodeTask::kClasses;
  uint32_t class_count = 0;  // number of label classes, or columns of the targets
  TrainSummary summary;      // covers the epochs so far
  uint32_t epochs_since_best = 0;
  TargetScale scale;  // of regression
};

// REQUIRES: the model's best weights are set aside.
std::vector<std::byte> EncodeTrainState(const TrainProgress& progress, const NodeModel& model);
// How many classes the model of such a state tells apart, or how many columns of targets it gives. kCorruption for bytes of
// no such state, or of another task than `task`; kUnsupported for the state of a later Quarry.
Result<uint32_t> ClassCountOf(std::span<const std::byte> bytes, NodeTask task);
// REQUIRES: progress.task and class_count, as the database has it now. kInvalidArgument when that has changed,
// kCorruption when the bytes are no such state, or of a model of another shape.
Status DecodeTrainState(std::span<const std::byte> bytes, TrainProgress& progress, NodeModel& model);

// The checkpoints of one call to Train; does nothing for a run without a store. One thread.
class TrainCheckpoints {
 public:
  explicit TrainCheckpoints(const TrainRun& run) : run_(run) {}

  // Before training: refuses a run that cannot be (TrainRun), or brings back what it left.
  Status Start(TrainProgress& progress, NodeModel& model);
  // True when a checkpoint belongs behind an epoch of `batches`.
  // Only behind whole epochs: in the middle of one there would be half a loss to remember and batches to
  // skip, for at most an epoch of work.
  bool Due(uint64_t batches, bool last_epoch);
  // Adds itself to the summary, and returns its seconds.
  Result<double> Take(TrainProgress& progress, const NodeModel& model);
  // A training that ended so, with what --resume does now.
  Status Explain(const Status& cancelled) const;

 private:
  const TrainRun& run_;
  uint64_t batches_since_ = 0;             // the last checkpoint
  std::optional<uint32_t> epoch_of_last_;  // epoch of this run's last checkpoint
};

}  // namespace quarry
