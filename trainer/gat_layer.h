// GatLayer: a graph attention network's layer (Velickovic et al. 2018):
//
//   z      = sources W                          [sources, heads * head_dim]   one GEMM; the first layer's by tiles
//   output = sum over a node's list of a z      [rows, out]                   attention.h
//
// Heads lie side by side in the output, or, of the last layer, are averaged there. Attention comes after the product, so z
// is held for every node of the block, and the gradient of z overwrites it.
#pragma once

#include <cstdint>
#include <memory>

#include "layer.h"

namespace quarry {

// REQUIRES: `work` outlives the layer; `averages`, or the heads share out_width evenly.
std::unique_ptr<Layer> MakeGatLayer(LayerWork& work, uint32_t heads, bool averages, uint32_t in_width,
                                    uint32_t out_width, Rng& rng);

}  // namespace quarry
