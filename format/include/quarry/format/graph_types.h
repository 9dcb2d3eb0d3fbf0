// What the manifest says of types of nodes and edges (manifest.h). A graph without any has one of each.
//
// Node types are ranges of the one id space, one behind the other: node i of a type is the node first + i. Edge types are
// the relations of the topology "graph", by their ids: every edge of one runs from a node of its source type to one of
// its destination type. Plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quarry {

struct NodeTypeRecord {
  std::string name;
  uint64_t first = 0;         // node
  uint64_t count = 0;         // of nodes
  std::string feature_table;  // row i is node first + i's; empty: nodes of the type have no rows
  uint64_t class_count = 0;   // 1 + the largest label of one; 0: none has a label
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

// The place of a node's type. REQUIRES: the types have all nodes, and this one is among them.
inline uint32_t TypeOfNode(std::span<const NodeTypeRecord> types, uint64_t node) {
  const auto after = std::ranges::upper_bound(types, node, {}, &NodeTypeRecord::first);
  return static_cast<uint32_t>(after - types.begin() - 1);
}

}  // namespace quarry
