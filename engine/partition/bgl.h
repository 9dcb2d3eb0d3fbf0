// BGL's partitioner (Liu et al., NSDI 2023, §3.3): parts that keep the neighbors of several hops together and
// share the training nodes evenly. Private to this room.
//
//   1. blocks    breadth-first searches from random nodes, side by side, each until it has enough nodes
//   2. merge     fragments join the large block that most of their edges lead to, or each other at random
//   3. assign    each to the part with the most neighbors at one and two hops, less the more training nodes
//                and nodes it has
//   4. nodes go where their block went
//
// The paper counts neighboring blocks, as sets; here neighbors weigh as many edges as there are between the
// blocks, at two hops by the share of a walk of two steps, which needs a number per block and part instead of
// sets of two hops and cuts as many edges or .4 % fewer. It does not say in which order blocks are placed:
// the next is the one of whose edges most lead to placed blocks. By falling size, which leaves equal blocks in
// no order, neighbors across 4 parts of arxiv-2023 are 57 % instead of 41 %. A block that fits into no part is
// divided among those with room, in the order of its search, and training nodes that are still too many in a
// part change places with other nodes.
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

// Parts of at most ceil(nodes / parts) nodes, and of at most 2 % more training nodes than the mean. Pure in its arguments. The graph lies in memory: 8 bytes an edge and 28 a node, and 40 for
// each pair of neighboring blocks; kOutOfBudget where that does not fit. REQUIRES: train_nodes are unique
// nodes.
Result<Assignment> PartitionByBgl(EdgeSource& edges, std::span<const NodeId> train_nodes,
                                  const BglOptions& options, const PartitionContext& context);

}  // namespace quarry
