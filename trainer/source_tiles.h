// What layers have in common that multiply the rows of all their sources before they look at edges, by tiles: GAT's and
// R-GAT's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "layer.h"
#include "quarry/trainer/aggregate.h"
#include "tiles.h"

namespace quarry {

// Runs work(begin, end, rows) over tiles of the sources, decoded if they are the first layer's. What the rows become is
// for the work to say. `tile` has a tile's rows.
template <typename Work>
void ForEachSourceTile(LayerWork& layer_work, const LayerInput& input, uint32_t width, Matrix& tile,
                       const Work& work) {
  const uint32_t tile_rows = TileRows(width);
  for (uint32_t begin = 0; begin < input.source_rows; begin += tile_rows) {
    const uint32_t end = std::min(input.source_rows, begin + tile_rows);
    layer_work.ForRows(begin, end, [&](uint32_t first, uint32_t last) {
      float* const rows = tile.row(first - begin);
      DecodeRows(input.sources, input.norm, first, last, rows);
      DropRows(width, input.mask, first, last, rows);
    });
    work(begin, end, tile.Rows(0, end - begin));
  }
}

// The backward pass of sources times `weight`, whose products' gradients are `z`: leaves the weight's, and stores those of
// the sources, behind exponential linear units but for the first layer's. Null `sources`: nobody asks for theirs.
void BackwardSourceTiles(LayerWork& work, const LayerInput& input, uint32_t width, Matrix& tile, Matrix& z,
                         Parameter& weight, const SourceGradients* sources);

// Makes `sum` the sum of the rows of `pieces`, in their order.
void SumRowsInOrder(Matrix& pieces, std::span<float> sum);

}  // namespace quarry
