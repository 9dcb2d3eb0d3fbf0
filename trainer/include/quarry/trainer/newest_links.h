// TrainNewestLinks: link prediction over a graph that grows while it is trained on.
#pragma once

#include <functional>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/trainer/link_train.h"

namespace quarry {

// Edges of a database that others add nodes and edges to meanwhile.
struct NewestLinks {
  std::function<Result<bool>()> is_newer;  // whether something was committed since what `load` gave last
  std::function<Result<LinkData>()> load;  // of what there is when it is called; called while no data is held
};

// TrainLinks in memory, each epoch with the edges that there are when it begins, and validation and test with those of the
// last one. Nodes and relations that come have the vectors that a run with them from its beginning would have given them,
// and an encoder the neighbors that there are. kUsage with patience, as what was best is of other edges, and for features,
// which nodes that come would lack; kOutOfBudget also where larger tables have no room beside those that they take the place
// of.
Result<LinkTrainSummary> TrainNewestLinks(const NewestLinks& source, const LinkTrainOptions& options,
                                          MemoryBudget& budget, const LinkTrainCallbacks& callbacks = {});

}  // namespace quarry
