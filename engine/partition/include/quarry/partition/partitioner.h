// Partitioners: which part each node of a graph goes to.
//
//   grem    few cut edges in the memory of a chunk of the edges: graphs of any size (Waleffe ch. 4)
//   metis   the fewest cut edges, in memory of 100 to 150 bytes an edge and 180 a node
//   bgl     neighbors of several hops together, training nodes evenly; graphs that fit into memory (BGL §3.3)
//   random  nothing but even sizes: what the others are measured against
//   kept    the parts that nodes have already; those of a graph that came since go by GREM's rule
#pragma once

#include <cstdint>
#include <span>

#include "quarry/base/status.h"
#include "quarry/format/partition_method.h"
#include "quarry/format/types.h"
#include "quarry/partition/assignment.h"
#include "quarry/partition/edge_source.h"

namespace quarry {

struct PartitionOptions {
  PartitionMethod method = PartitionMethod::kGrem;
  uint32_t parts = 2;
  double chunk_share = 0.1;  // grem: edges in memory at once, of all, in (0, 1]
  uint64_t seed = 0;
  std::span<const NodeId> train_nodes = {};  // bgl: unique nodes, spread evenly
  std::span<const uint32_t> kept = {};       // kept: the parts of the first nodes, in [0, parts)
};

// Every node in one part, and no part of more than ceil(nodes / parts) nodes, unless more were kept there; a pure function of edges and
// options, whatever the budget and the number of threads. Memory is reserved from the context's budget, the
// result's 4 bytes a node included, which are the caller's when it returns. kUsage names an option out of
// range; kOutOfBudget names what the method would take; kInvalidArgument for a training node outside the graph;
// kCancelled when the context's progress says so.
Result<Assignment> Partition(EdgeSource& edges, const PartitionOptions& options,
                             const PartitionContext& context);

}  // namespace quarry
