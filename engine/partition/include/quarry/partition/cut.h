// What a partitioning cuts: measured, and as Eq. 4.1 of Waleffe expects GREM's greedy choices to cut.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/partition/assignment.h"
#include "quarry/partition/edge_source.h"

namespace quarry {

struct CutEdges {
  uint64_t edges = 0;
  uint64_t cut = 0;  // edges with ends in different parts
  double share() const { return edges == 0 ? 0 : static_cast<double>(cut) / static_cast<double>(edges); }
};

// Reads all edges once. REQUIRES: the assignment has every node.
Result<CutEdges> CountCut(EdgeSource& edges, const Assignment& assignment);

// A node's neighbors, as many as it has edges, and those of them that are where most of them are.
struct NeighborCount {
  uint32_t all = 0;
  uint32_t best = 0;
};

// By node, from an assignment to two parts: `best` are those in the part with more. 8 bytes a node; loops are
// left out. kInvalidArgument for more parts; reads all edges once.
Result<std::vector<NeighborCount>> CountNeighbors(EdgeSource& edges, const Assignment& assignment);

// Eq. 4.1 as a share of the edges, in [0, 1]: each node sees all * chunk_share of its neighbors, drawn without
// replacement, and takes the side that most of those are on; E[C] / (2 edges), as a cut edge is counted at
// both of its ends. Refinement over m chunks is m times the share. Optimistic where a node sees no neighbor
// at all, which it counts as right. The sum is exact up to rounding: about as many terms as there are
// different (all, best) times the neighbors seen.
double ExpectedCutShare(std::span<const NeighborCount> nodes, double chunk_share);

}  // namespace quarry
