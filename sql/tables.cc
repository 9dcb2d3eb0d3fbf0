#include "tables.h"

#include <algorithm>
#include <iterator>

namespace quarry::sql {

std::vector<std::unique_ptr<Table>> MakeTables(Session& session) {
  std::vector<std::unique_ptr<Table>> tables;
  tables.push_back(MakeNodesTable(session));
  tables.push_back(MakeEdgesTable(session));
  tables.push_back(MakeFeaturesTable(session));
  tables.push_back(MakeEmbeddingRowsTable(session));
  std::ranges::move(MakeCatalogTables(session), std::back_inserter(tables));
  std::ranges::move(MakeLayoutTables(session), std::back_inserter(tables));
  std::ranges::move(MakeTableFunctions(session), std::back_inserter(tables));
  return tables;
}

}  // namespace quarry::sql
