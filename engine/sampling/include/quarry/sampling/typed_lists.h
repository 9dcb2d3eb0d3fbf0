// TypedLists: where in a node's list of in-neighbors those of each type of edges stand, of a graph with types.
//
// Lists of such a graph are by relation (TopologyRecord::by_relation), so edges of one type stand together in a list. What
// is kept, for each node, is where they end: four bytes for each type of edges that runs into the node's type, but for the
// last, whose end is the list's. A node type with edges of one type into it takes nothing.
//
// Immutable: any thread may use it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/format/node_types.h"
#include "quarry/storage/store.h"
#include "quarry/storage/topology.h"

namespace quarry {

class TypedLists {
 public:
  // What it holds, by the manifest alone.
  static uint64_t Bytes(const Manifest& manifest);

  // Reads the relations of all edges of the topology "graph" once. kInvalidArgument where the graph has no types;
  // kCorruption where a list is not by relation, or has an edge of a type that does not run into its node's type;
  // kIoError. The caller has reserved Bytes; buffers are taken of `budget` until it returns.
  static Result<std::unique_ptr<TypedLists>> Load(Store& store, MemoryBudget& budget,
                                                  const Manifest& manifest, const Topology& topology);
  // The same of relations in memory, by position: for tests.
  static Result<std::unique_ptr<TypedLists>> FromMemory(const Manifest& manifest, const Topology& topology,
                                                        std::span<const uint32_t> relations);

  uint32_t relation_count() const { return relation_count_; }
  uint32_t type_count() const { return static_cast<uint32_t>(types_.size()); }
  const std::string& NameOf(uint32_t type) const { return types_[type].name; }
  // The types of edges that run into nodes of a type, ascending.
  std::span<const uint32_t> RelationsInto(uint32_t type) const { return types_[type].relations; }
  // The nodes of the topology by their types.
  const NodeTypes& nodes() const { return nodes_; }

  // Where the edges of RelationsInto(in.type)[k] end in the node's list, counted from its beginning; those before them end
  // where these begin. REQUIRES: `in` is nodes().RangeOf(node).
  uint64_t EndOf(const NodeTypes::Range& in, NodeId node, size_t k, uint64_t degree) const {
    const Type& type = types_[in.type];
    const size_t kept = type.relations.size() - 1;
    return k == kept ? degree : ends_[type.ends_at + in.RowOf(node) * kept + k];
  }
  // The most neighbors that a node has by edges of this type.
  uint32_t DegreeMax(uint32_t relation) const { return degrees_max_[relation]; }
  uint64_t memory_bytes() const { return ends_.size() * sizeof(uint32_t); }

 private:
  struct Type {
    std::string name;
    std::vector<uint32_t> relations;
    uint64_t ends_at = 0;  // in ends_
  };
  // Gives the relations of the next edges, at least one; none behind the last.
  using NextRelations = std::function<Result<std::span<const uint32_t>>()>;
  static Result<std::unique_ptr<TypedLists>> Make(const Manifest& manifest, const Topology& topology,
                                                  const NextRelations& next);
  TypedLists(const Manifest& manifest, uint64_t node_count);
  Status Fill(const Topology& topology, const NextRelations& next);

  NodeTypes nodes_;
  uint32_t relation_count_ = 0;
  std::vector<Type> types_;
  std::vector<uint32_t> degrees_max_;  // by relation
  uint64_t end_count_ = 0;
  std::vector<uint32_t> ends_;
};

}  // namespace quarry
