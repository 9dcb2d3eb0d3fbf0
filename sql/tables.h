// The virtual tables. Private to this room. Sessions outlive their tables.
#pragma once

#include <memory>
#include <vector>

#include "session.h"
#include "table.h"

namespace quarry::sql {

// nodes (id, name, split, label, in_degree, out_degree, timestamp; type, where it is named): a row a node.
std::unique_ptr<Table> MakeNodesTable(Session& session);
// edges (src, dst, relation, weight; type, where it is named): a row an edge of the topology "graph".
std::unique_ptr<Table> MakeEdgesTable(Session& session);
// features (id, table, feature, dim, timestamp): a row a row of each table of floats.
std::unique_ptr<Table> MakeFeaturesTable(Session& session);
// embedding_rows (table, id, vector, timestamp): a row a row of each embedding table.
std::unique_ptr<Table> MakeEmbeddingRowsTable(Session& session);
// What the catalog says: relations, node_types, node_ranges, edge_types, files, runs, growth, versions, snapshots,
// embeddings, device_profile, stats, partitions.
std::vector<std::unique_ptr<Table>> MakeCatalogTables(Session& session);
// What it says of layouts: layouts, batches, segments, caches.
std::vector<std::unique_ptr<Table>> MakeLayoutTables(Session& session);
// neighbors(id, hops, direction), sample_block(seeds, fanouts, seed), feature_json(id).
std::vector<std::unique_ptr<Table>> MakeTableFunctions(Session& session);

// All of them.
std::vector<std::unique_ptr<Table>> MakeTables(Session& session);

}  // namespace quarry::sql
