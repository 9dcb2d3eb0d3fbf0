// Which ranges of nodes a layer of a whole graph is worked on in (quarry/trainer/graph_pass.h), and what they will read.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "graph_layer.h"
#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "range_edges.h"

namespace quarry {

// Some of a graph's edges, spread evenly over it: (node, neighbor).
class EdgeSample {
 public:
  // Reads them.
  static Result<EdgeSample> Draw(const Topology& topology, RangeEdges& edges);

  // The share of edges whose ends lie at most so many blocks apart, the neighbor's number less the node's.
  class Distances {
   public:
    Distances(const EdgeSample& sample, uint64_t block_rows, uint64_t block_count);
    double UpTo(int64_t blocks) const;

   private:
    const int64_t block_count_;
    std::vector<double> shares_;  // from -block_count on
  };

 private:
  std::vector<std::pair<NodeId, NodeId>> edges_;
};

// Nodes [first, end), which begin and end with blocks.
struct NodeRange {
  uint64_t first = 0, end = 0;
  uint64_t edges = 0;
  uint64_t sweeps = 1;  // more where its edges have no room together

  uint64_t edges_max() const { return CeilDiv(edges, sweeps); }  // in memory at a time
};

struct RangePlan {
  std::vector<NodeRange> ranges;
  bool keeps_own =
      false;  // messages of a range's own nodes stay from when they are added to when they are sources
  uint64_t nodes_max = 0;  // of a range
  uint64_t bytes = 0;      // held
  double rows_read = 0;    // expected

  // The ranges in `memory_bytes` for which the least rows are read. kOutOfBudget.
  static Result<RangePlan> Make(const GraphForm& form, const RangeEdges& edges, uint64_t node_count,
                                uint64_t block_rows, const EdgeSample& sample, uint64_t memory_bytes);
};

}  // namespace quarry
