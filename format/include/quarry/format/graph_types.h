// What the manifest says of types of nodes and edges (manifest.h). A graph without any has one of each.
//
// Node types are ranges of the one id space: an import makes one of each, and nodes that are added later are behind the last
// id of all. The nodes of a type are counted in the order of their ids, and NodeTypes (node_types.h) finds them. Edge types are
// the relations of the topology "graph", by their ids: every edge of one runs from a node of its source type to one of
// its destination type. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quarry {

struct TypeRange {
  uint64_t first = 0;  // node
  uint64_t count = 0;
};

struct NodeTypeRecord {
  std::string name;
  uint64_t first = 0;         // node
  uint64_t count = 0;         // of nodes from it on
  std::string feature_table;  // row i is that of the type's i-th node; empty: nodes of the type have no rows
  uint64_t class_count = 0;   // 1 + the largest label of one; 0: none has a label
  std::vector<TypeRange> later;  // nodes that were added behind those of other types, ascending
};

struct EdgeTypeRecord {
  uint32_t source = 0;  // the places of the two types among the node types
  std::string name;
  uint32_t destination = 0;
  uint64_t edge_count = 0;
};

// "paper.feature": the name of the feature table of a node type.
inline std::string FeatureTableOf(std::string_view node_type) { return std::string(node_type) + ".feature"; }

// "author:writes:paper", as edge types are called where one word has to do.
inline std::string EdgeTypeName(std::span<const NodeTypeRecord> nodes, const EdgeTypeRecord& edge) {
  return nodes[edge.source].name + ":" + edge.name + ":" + nodes[edge.destination].name;
}

// The relation that is called so, as EdgeTypeName has it or, where no other type of edges has the same one, by its own name
// ("writes").
inline std::optional<uint32_t> FindEdgeType(std::span<const NodeTypeRecord> nodes,
                                            std::span<const EdgeTypeRecord> edges, std::string_view name) {
  std::optional<uint32_t> found;
  for (uint32_t relation = 0; relation < edges.size(); ++relation) {
    if (EdgeTypeName(nodes, edges[relation]) == name) return relation;
    if (edges[relation].name == name) found = found ? static_cast<uint32_t>(edges.size()) : relation;
  }
  return found == edges.size() ? std::nullopt : found;
}

// The place of the type whose nodes have their rows in the table, if it is one of a type.
inline std::optional<uint32_t> FindTypeOfTable(std::span<const NodeTypeRecord> types,
                                               std::string_view table) {
  for (uint32_t type = 0; type < types.size(); ++type) {
    if (!table.empty() && types[type].feature_table == table) return type;
  }
  return std::nullopt;
}

}  // namespace quarry
