// Roll-outs of `quarry predict --steps`: what a model says of a later time becomes what it is asked about next.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "npy_file.h"
#include "predict_report.h"
#include "quarry/base/status.h"
#include "quarry/database.h"
#include "quarry/trainer/predict.h"
#include "train_node.h"

namespace quarry::cli {

struct RolloutSpec {
  uint64_t time = 0;   // that it begins at
  uint64_t steps = 0;  // each as long as the target's lag
};

// Times of a step. kUsage for a run that does not learn later rows of the table that it reads, and for a time or a number of
// steps that the database has no columns of times for.
Result<uint64_t> RolloutLag(const Manifest& manifest, const TrainedNode& trained, const RolloutSpec& rollout);

// Predicts all places, step after step: the model's rows of a step take the places of the table's columns in the next one,
// beside the columns of places and of the time that it has come to. `out` gets the rows, [steps, places, columns]. A block of
// all places is sampled for each step by `road`; two hours of them, and the lists, are held. kOutOfBudget; kCancelled
// from `progress`, which is told of steps done; errors of the store.
//
// REQUIRES: a lag of RolloutLag's; the predictor is the run's, and so are `targets`, which may be null.
Result<std::vector<RolloutStep>> RollOut(Database& database, const TrainedNode& trained, const RoadSpec& road,
                                         Predictor& predictor, const RolloutSpec& rollout, NpyFile& out,
                                         const std::function<Status(uint64_t done)>& progress);

}  // namespace quarry::cli
