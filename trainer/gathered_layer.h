// GatheredLayer: the layers that first gather what a node is told by its neighbors and itself, and then multiply it by a
// weight: SAGE's, GCN's, and the first product of GIN's.
//
//   input  = Gather(sources)    [rows, gathered width]   fused with decoding (quarry/trainer/aggregate.h)
//   output = input W            [rows, out]              one GEMM
//
// The gradient of the input overwrites it, and is then carried to the sources.
#pragma once

#include <cstdint>
#include <memory>

#include "layer.h"
#include "quarry/trainer/aggregate.h"

namespace quarry {

// Draws the weight, which is the first of its parameters. REQUIRES: `work` outlives the layer.
std::unique_ptr<Layer> MakeGatheredLayer(LayerWork& work, Gathering gathering, uint32_t in_width,
                                         uint32_t out_width, Rng& rng);

}  // namespace quarry
