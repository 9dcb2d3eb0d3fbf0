// GREM (Waleffe ch. 4): parts of few cut edges from a stream of edges, in memory of a few bytes a node and one
// chunk of the edges. Private to this room.
//
// Algorithm 4 cuts in two: METIS cuts the first chunk, every later one moves its nodes to the side that most
// of their neighbors were seen on, newer chunks weighing more. Algorithm 5 as printed counts a node among
// those that fill its own part and so drives it out; here its own place is free, which is what gives the
// paper's quality. Nodes without an edge go to the emptier side. More parts are made by recursion over the
// edges inside each side, in proportion where the parts are odd; cut edges are final. A chunk has the same
// number of edges at every level, so memory stays what the first level took, and a growing share of what is
// left is cut by METIS: with chunks of the same share instead, 64 parts of a generated graph of 3 M edges cut
// 51 instead of 47 of 100 edges at 10 %, and 91 instead of 71 at 1 % (METIS: 46).
//
// Pure in (edges, options): one seed gives one result.
#pragma once

#include <cstdint>

#include "quarry/base/status.h"
#include "quarry/partition/assignment.h"
#include "quarry/partition/edge_source.h"
#include "quarry/partition/edge_stream.h"

namespace quarry {

struct GremOptions {
  uint32_t parts = 2;
  double chunk_share = 0.1;  // of all edges, in (0, 1]
  uint64_t seed = 0;
};

// Parts of at most ceil(nodes / parts) nodes. Shuffles the edges first (ShuffleEdges). Memory: 13 bytes a
// node (17 for more than two parts), 16 bytes an edge of a chunk, and MetisBytes() of the first one; scratch:
// 8 bytes an edge, 16 for more than two parts. kInvalidArgument for a chunk larger than METIS' integers
// number; kOutOfBudget.
Result<Assignment> PartitionByGrem(EdgeSource& edges, const GremOptions& options,
                                   const PartitionContext& context);

// The same from edges that lie in a random order: whoever calls has shuffled them.
Result<Assignment> PartitionShuffled(std::unique_ptr<EdgeStream> edges, const GremOptions& options,
                                     const PartitionContext& context);

}  // namespace quarry
