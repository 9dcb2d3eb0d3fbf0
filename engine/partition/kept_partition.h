// Parts of a graph that has grown: nodes that had one keep it, and those that came go where GREM (Waleffe ch. 4) would put a
// node that it sees for the first time. Private to this room.
#pragma once

#include <cstdint>
#include <span>

#include "quarry/base/status.h"
#include "quarry/partition/assignment.h"
#include "quarry/partition/edge_source.h"

namespace quarry {

// `kept` has the part of the first nodes. The others come in ascending order, each after those before it: to the part where
// most of its neighbors are, of those with fewer than ceil(nodes / parts) nodes; where several are as good, and for a node
// without neighbors in any, to the one of these with the fewest nodes, and the lowest number. Neighbors count in both
// directions and as often as there are edges; those without a part yet count for none. Between two parts that is
// Algorithm 4's rule. A pure function of edges and `kept`, whatever the edges' order.
//
// Reads the edges twice. Memory: 4 bytes a node, and 8 for each end of an edge that is a new node. kInvalidArgument for more
// nodes than the graph has, and for a part that is not there; kOutOfBudget; kCancelled.
Result<Assignment> PartitionByKeeping(EdgeSource& edges, std::span<const uint32_t> kept, uint32_t parts,
                                      const PartitionContext& context);

}  // namespace quarry
