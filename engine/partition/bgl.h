// BGL's partitioner (Liu et al., NSDI 2023, §3.3): parts that keep the neighbors of several hops together and
// share the training nodes evenly. Private to this room.
//
//   1. blocks    breadth-first searches from random nodes, side by side, each until it has enough nodes
//   2. merge     fragments join the large block that most of their edges lead to, or each other at random
//   3. assign    the largest first, to the part with the most neighbors at one and two hops, less the more
//                training nodes and nodes it has
//   4. nodes go where their block went
//
// The paper counts neighboring blocks, as sets. With blocks that are small beside the graph nearly every
// block has an edge to every other, and the sets say nothing; so neighbors are weighed by edges here: at one
// hop by those between the two blocks, at two by the share of a walk of two steps. That needs a vector per
// block instead of the sets of two hops. A block that fits into no part is divided among those with room, in
// the order of its search.
#pragma once

#include <cstdint>
#include <span>

#include "quarry/base/status.h"
#include "quarry/partition/assignment.h"
#include "quarry/partition/edge_source.h"

namespace quarry {

struct BglOptions {
  uint32_t parts = 2;
  uint64_t seed = 0;
  uint64_t block_nodes_max = 100'000;  // and at most nodes / (64 * parts), so that parts can be even
};

// Parts of at most ceil(nodes / parts) nodes, and of at most 2 % more training nodes than the mean as far as
// there is room. Pure in its arguments. The graph lies in memory: 8 bytes an edge and 28 a node, and 16 for
// each pair of neighboring blocks; kOutOfBudget where that does not fit. REQUIRES: train_nodes are unique
// nodes.
Result<Assignment> PartitionByBgl(EdgeSource& edges, std::span<const NodeId> train_nodes,
                                  const BglOptions& options, const PartitionContext& context);

}  // namespace quarry
