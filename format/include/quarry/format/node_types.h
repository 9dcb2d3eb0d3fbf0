// NodeTypes: which type a node is of, which of the type's nodes it is, and back. Whoever goes from ids of nodes to rows of a
// type's table, or counts ids within a type, asks it: a type may be several ranges of ids.
//
// Immutable: any thread may use it. A look-up is a binary search among the ranges.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "quarry/format/graph_types.h"

namespace quarry {

class NodeTypes {
 public:
  // Nodes of one type that follow each other, and so do their rows.
  struct Range {
    uint64_t first = 0;  // node
    uint64_t end = 0;    // node behind the last
    uint64_t row = 0;    // of the first one: how many nodes of the type come before it
    uint32_t type = 0;   // its place in the manifest
    uint64_t RowOf(uint64_t node) const { return row + (node - first); }
  };

  NodeTypes() = default;
  // Types of the nodes before `node_count`: as a snapshot has them that is older than the manifest.
  explicit NodeTypes(std::span<const NodeTypeRecord> types,
                     uint64_t node_count = std::numeric_limits<uint64_t>::max());

  bool empty() const { return counts_.empty(); }  // there is one type
  uint32_t size() const { return static_cast<uint32_t>(counts_.size()); }
  uint64_t Count(uint32_t type) const { return counts_[type]; }  // of its nodes
  // Those that have nodes: all of them, and those of a type; ascending.
  std::span<const Range> ranges() const { return ranges_; }
  std::span<const Range> RangesOf(uint32_t type) const {
    return std::span(by_type_).subspan(begins_[type], begins_[type + 1] - begins_[type]);
  }

  // REQUIRES: there are types, and the node is of one.
  const Range& RangeOf(uint64_t node) const;
  uint32_t TypeOf(uint64_t node) const { return RangeOf(node).type; }
  uint64_t RowOf(uint64_t node) const { return RangeOf(node).RowOf(node); }
  // REQUIRES: row < Count(type)
  uint64_t NodeOf(uint32_t type, uint64_t row) const;

 private:
  std::vector<Range> ranges_, by_type_;
  std::vector<size_t> begins_;    // in by_type_, of each type, and its end
  std::vector<uint64_t> counts_;  // by type
};

// How many nodes are of the type.
uint64_t NodeCount(const NodeTypeRecord& type);

// Adds nodes behind the last one of all, which is before `first`, to a type.
void Extend(NodeTypeRecord& type, uint64_t first, uint64_t count);

}  // namespace quarry
