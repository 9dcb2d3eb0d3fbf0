// Features of nodes for link prediction: what an encoder is given in the place of learned vectors.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/trainer/link_train.h"

namespace quarry {

// A table of features, a row for each node, and what fills `rows` ([nodes, LinkTrainOptions::feature_dim]) from it.
struct LinkFeatures {
  std::string table;  // for messages
  std::function<Status(std::span<const NodeId> nodes, std::span<float> rows)> read;
};
// Reads the features of all nodes into `data`, which holds them. kOutOfBudget; kInvalidArgument names a value that is not
// finite; errors of reading.
Status LoadFeatures(const LinkFeatures& source, const LinkTrainOptions& options, MemoryBudget& budget,
                    LinkData& data);

}  // namespace quarry
