// The edges of an export: arrays, one for each relation, or triples with names. Private to this room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "export_output.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/node_types.h"
#include "quarry/storage/store.h"

namespace quarry {

// Names of relations in the order of their ids; none where the only relation has no name.
Result<std::vector<std::string>> RelationNames(Store& store);

// What the edges of one relation are called.
struct EdgeArrayNames {
  std::string edges;
  std::string weights;
  const NodeTypes* types = nullptr;  // ids count from 0 in each of them; null: they are the database's
  int64_t IdOf(NodeId node) const {
    return types == nullptr ? int64_t{node} : static_cast<int64_t>(types->RowOf(node));
  }
};

// Writes the edges of relation i, by ascending destination: int64 [2, E], as text a line for each edge; and
// their weights, where they have some, float32 [E]. REQUIRES: as many names as there are relations.
Status ExportEdges(Store& store, ExportTarget& target, const Snapshot& snapshot,
                   const std::vector<EdgeArrayNames>& names, const ProgressFunction& progress);

// Writes train.txt, valid.txt and test.txt, as far as there are such topologies, weights behind tails, and
// entities.dict and relations.dict, which keep the ids: edges come sorted by destination, and not in the
// order that gave the ids. Nodes without names have their numbers for names. Holds all names.
Status ExportTriples(Store& store, ExportTarget& target, const Snapshot& snapshot,
                     const std::vector<std::string>& relations, const ProgressFunction& progress);

}  // namespace quarry
