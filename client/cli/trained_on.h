// What `quarry train` counts of a node task's labels, and what it refuses for them, before it decides on a road.
#pragma once

#include <cstdint>

#include "quarry/base/status.h"
#include "quarry/database.h"
#include "train_node.h"

namespace quarry::cli {

// What a model is trained on.
struct TrainedOn {
  uint32_t classes = 0;      // or columns of targets
  uint64_t train_nodes = 0;  // with a label
  uint64_t valid_nodes = 0;
  uint64_t test_nodes = 0;
};

// Refuses what the machine has no memory for before anything is sampled, built or loaded.
Result<TrainedOn> CheckLabels(const NodeArguments& arguments, Database& database);

}  // namespace quarry::cli
