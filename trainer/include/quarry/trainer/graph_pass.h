// GraphPass: a trained model over a whole graph, layer by layer and out of core: which database it goes over, and what it
// cost.
//
//   range    as many nodes as have room for their states (trainer/graph_layer.h) and their edges. Its edges are read, front
//            to back, and sorted by the block of rows that their other ends lie in
//   sweep    those blocks of the layer's rows that the range asks for pass by in order; each is read, becomes messages, and
//            is added to the states of its neighbors
//   output   states become rows of the next layer, in the order of nodes, in a file without a name
//
// So edges are read once a layer, and a block of rows once for each range that has a neighbor in it: once a layer where
// one range is enough or neighbors lie near each other, and as many times as there are ranges where neighbors lie anywhere.
// Then nothing else reads less either: a row that is written to each range that wants it (as ATLAS scatters messages) is
// written once and read once for each, where here it is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/format/road_spec.h"
#include "quarry/storage/store.h"

namespace quarry {

struct GraphSource {
  Store& store;
  MemoryBudget& budget;  // all that it has left is used, for the largest ranges
  std::string feature_table = "feature";
  std::string topology = "graph";
  Direction direction = Direction::kIn;
  uint64_t block_bytes = uint64_t{1} << 20;  // of float32 rows that are read at a time, about
  uint64_t range_bytes_max = UINT64_MAX;  // of a range's states and edges, if less than the budget has left
};

// A layer of a pass.
struct LayerPass {
  uint32_t in = 0, out = 0;
  uint64_t ranges = 0;
  uint64_t least_bytes = 0;                // its rows once, and its edges once
  uint64_t predicted_bytes = 0;            // by a sample of the edges, before the layer began
  uint64_t row_bytes = 0, edge_bytes = 0;  // read
  uint64_t written_bytes = 0;

  uint64_t read_bytes() const { return row_bytes + edge_bytes; }
};

struct GraphPass {
  std::vector<LayerPass> layers;
  uint64_t sample_bytes = 0;  // of edges, for the predictions

  LayerPass Sum() const {
    LayerPass sum;
    for (const LayerPass& layer : layers) {
      sum.ranges += layer.ranges;
      sum.least_bytes += layer.least_bytes;
      sum.predicted_bytes += layer.predicted_bytes;
      sum.row_bytes += layer.row_bytes;
      sum.edge_bytes += layer.edge_bytes;
      sum.written_bytes += layer.written_bytes;
    }
    return sum;
  }
};

}  // namespace quarry
