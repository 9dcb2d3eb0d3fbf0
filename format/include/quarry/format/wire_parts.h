// What the answer to an opened stream says of the partitioned road (wire_responses.h).
#pragma once

#include <cstdint>
#include <string>

#include "quarry/format/types.h"

namespace quarry::wire {

// The partitioned road of a stream: how it was tuned, which decides its batches, and what a trainer asks of its road, since
// nobody holds labels and splits of all nodes.
struct OpenedParts {
  std::string directory;  // of the partitioning, which names its build
  uint32_t buffer = 0;
  uint32_t logical = 0;
  uint32_t class_count = 0;
  uint64_t train_nodes = 0;  // with a label
  uint64_t valid_nodes = 0;
  uint64_t test_nodes = 0;
  uint64_t batch_nodes_max = 0;
  bool operator==(const OpenedParts&) const = default;

  uint64_t NodesIn(Split split) const {
    return split == Split::kTrain ? train_nodes : split == Split::kValid ? valid_nodes : test_nodes;
  }
};

}  // namespace quarry::wire
