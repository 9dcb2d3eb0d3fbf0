// The targets of `quarry train --task regress` and multilabel: rows of a table of the database, at a path or of a server.
#pragma once

#include <memory>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/client/store.h"
#include "quarry/format/manifest.h"
#include "quarry/trainer/node_task.h"

namespace quarry::cli {

// What --target says: TABLE or TABLE@+LAG.
struct TargetName {
  std::string table;
  uint64_t lag = 0;
};
// kUsage for other words.
Result<TargetName> ParseTarget(const std::string& text);

// kUsage for a task without the targets that it learns, and for targets of a task that learns none, or in other words than
// TABLE or TABLE@+LAG.
Status CheckTarget(NodeTask task, const std::string& target);

// Opens what `target` names, as the database has it now: the row of node v is that of v in the table, or, behind @+LAG, of
// v + LAG; where nodes are places at several times, of v's place LAG times later. Labels below 0 are none. kNotFound lists the tables; kUsage as CheckTarget. The store outlives it.
Result<std::shared_ptr<TargetRows>> OpenTargets(client::Store& store, const Manifest& manifest,
                                                const std::string& target);

// How far values are from their targets.
struct TargetErrors {
  uint64_t count = 0;
  double squares = 0;

  double Rmse() const;
  // Those of `nodes`, whose values are `rows`. A node without a row in the table has no target.
  Status Add(TargetRows& targets, std::span<const NodeId> nodes, std::span<const float> rows);
};

// What reading the targets of a batch takes of the database's own budget, so that a road that is opened meanwhile leaves it.
// REQUIRES: a table of that name.
uint64_t TargetRoom(const Manifest& manifest, const std::string& target, uint32_t batch_size);

}  // namespace quarry::cli
