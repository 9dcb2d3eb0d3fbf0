// Changes of a server's database, from the sources that change one of this process: rows and graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quarry/client/store.h"
#include "quarry/import/graph_change.h"
#include "quarry/storage/deltas.h"

namespace quarry::cli {

// The rows of a batch as requests have them.
std::vector<wire::PutRows> TablesOf(const WriteBatch& batch);

// A change of the graph, here or at the server of `address`. The store outlives it. Errors as GraphChange::Create's.
Result<std::unique_ptr<GraphChange>> OpenChange(client::Store& store, const std::string& address,
                                                const GraphChangeOptions& options);

}  // namespace quarry::cli
