// UndirectedGraph: a graph in memory as partitioners see it, every edge at both of its ends, loops left out.
// Private to this room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/partition/edge_source.h"

namespace quarry {

struct UndirectedGraph {
  std::vector<uint64_t> indptr;   // [nodes + 1]
  std::vector<NodeId> neighbors;  // [twice the edges], ascending in each list
  std::vector<int32_t> weights;   // of neighbors, where parallel edges are merged: how many each stands for

  uint64_t node_count() const { return indptr.size() - 1; }
  std::span<const NodeId> Of(uint64_t node) const {
    return std::span(neighbors).subspan(indptr[node], indptr[node + 1] - indptr[node]);
  }
  std::span<const int32_t> WeightsOf(uint64_t node) const {
    return std::span(weights).subspan(indptr[node], indptr[node + 1] - indptr[node]);
  }

  static uint64_t Bytes(uint64_t node_count, uint64_t edge_count, bool merged) {
    return (node_count + 1) * sizeof(uint64_t) +
           2 * edge_count * (sizeof(NodeId) + (merged ? sizeof(int32_t) : 0));
  }
};

// Reads all edges twice. With `merged`, a neighbor is listed once, with its weight. The caller has reserved
// Bytes().
Result<UndirectedGraph> MakeUndirectedGraph(EdgeSource& edges, bool merged);

// Moves nodes out of parts that have more nodes than `capacities` allow, those first that lose the least by
// it, to the part with room that most of their neighbors are in. Deterministic. Holds 12 bytes for each node
// of an overfull part. REQUIRES: the capacities hold all nodes; part_of < capacities.size().
void MoveExcess(const UndirectedGraph& graph, std::span<const uint64_t> capacities,
                std::span<uint32_t> part_of);

// Fills the parts one after the other to their shares with runs of nodes in breadth-first order: for graphs
// that are too small or have too few edges for a multi-level partitioner.
void FillByBreadthFirst(const UndirectedGraph& graph, std::span<const uint64_t> capacities,
                        std::span<uint32_t> part_of);

}  // namespace quarry
