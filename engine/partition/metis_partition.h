// METIS (Karypis, Kumar 1998), recursive bisection: the seed of GREM's first chunk, and the partitioner to
// compare with where the whole graph fits into memory. Private to this room, which owns the library.
//
// METIS keeps its random numbers in the process (they are the C library's on some systems): calls take turns,
// and a result is a function of the seed as long as nobody else calls rand() meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/partition/assignment.h"
#include "quarry/partition/edge_source.h"
#include "undirected_graph.h"

namespace quarry {

// Memory of the graph and of METIS while it cuts it, in bytes, with a margin: over generated graphs of
// power-law degrees, which coarsen badly, METIS 5.1 came to 120 MB at 0.2 M nodes and 1 M edges, 702 MB at
// 0.2 M and 8 M, 549 MB at 1 M and 4 M, and 4.03 GB at 2 M and 30 M.
uint64_t MetisBytes(uint64_t node_count, uint64_t edge_count);

// Cuts the graph, whose parallel edges are merged, into as many parts as there are capacities, each in
// proportion to its own and at most of that size. Neighbors and weights are handed over to METIS and given
// back. kUnsupported for a graph of more nodes or edges than METIS' integers number; kOutOfBudget where the
// system has no memory for METIS. The caller has reserved MetisBytes().
Result<std::vector<uint32_t>> CutByMetis(UndirectedGraph graph, std::span<const uint64_t> capacities,
                                         uint64_t seed);

// The whole graph by METIS, parts of at most ceil(nodes / parts) nodes. kOutOfBudget names what it would
// take.
Result<Assignment> PartitionByMetis(EdgeSource& edges, uint32_t parts, uint64_t seed,
                                    const PartitionContext& context);

}  // namespace quarry
