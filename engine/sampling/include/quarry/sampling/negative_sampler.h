// Negatives of link prediction: nodes that take the place of an edge's true one. The edges of a chunk of a
// batch share them (dissertation §3.4.2; Mohoney et al. 2021), so that scoring a chunk is one matrix product
// and few rows are read. A part of them may be drawn in proportion to degree, as true nodes are.
//
// Pure functions of their arguments: any thread may draw any chunk (invariant 6). Negatives are drawn with
// replacement, and may be true neighbors.
#pragma once

#include <cstdint>
#include <span>

#include "quarry/format/types.h"

namespace quarry {

struct NegativeOptions {
  double degree_share = 0;  // in [0, 1]: drawn in proportion to degree; the others uniformly
  uint64_t seed = 0;
};

// The nodes to draw from.
struct NegativePool {
  NodeId node_first = 0;  // uniformly from [node_first, node_first + node_count)
  uint64_t node_count = 0;
  // One side's end of each edge: the end of a random edge is a node drawn in proportion to its degree. Unused
  // where degree_share is 0.
  std::span<const NodeId> edge_ends;
};

// Names one draw: `side` tells the two ends of an edge apart.
struct NegativeDraw {
  uint64_t epoch = 0;
  uint64_t batch = 0;
  uint32_t chunk = 0;
  uint32_t side = 0;
};

// Fills `out`: first those by degree (degree_share of them, rounded), then the uniform ones. REQUIRES:
// node_count > 0 where some are uniform, edge_ends not empty where some are by degree.
void SampleNegatives(const NegativeOptions& options, const NegativePool& pool, const NegativeDraw& draw,
                     std::span<NodeId> out);

}  // namespace quarry
