// What `quarry predict` predicts about, and where its rows go.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "npy_file.h"
#include "quarry/base/status.h"
#include "quarry/client/store.h"
#include "quarry/format/types.h"

namespace quarry::cli {

// The nodes of a file, in its order; each of them once.
Result<std::vector<NodeId>> ReadNodes(const std::string& path, uint64_t node_count);

// Where predictions go, row by row, in the order of the nodes.
class PredictOutput {
 public:
  virtual ~PredictOutput() = default;
  virtual Status Append(std::span<const NodeId> nodes, std::span<const float> rows) = 0;
  virtual Status Finish() = 0;
};

std::unique_ptr<PredictOutput> MakeArrayOutput(NpyFile file, bool classes);
// Rows become durable together with the run that made them, in the checkpoint that names both.
std::unique_ptr<PredictOutput> MakeTableOutput(client::Store& store, std::string table, std::string run);

}  // namespace quarry::cli
