// GinLayer: a graph isomorphism network's layer (Xu, Hu, Leskovec, Jegelka 2019) with epsilon 0, which they found the
// best:
//
//   gathered = h_v + sum of sampled neighbors' h
//   output   = relu(gathered W1 + b1) W2 + b2
#pragma once

#include <cstdint>
#include <memory>

#include "layer.h"

namespace quarry {

// REQUIRES: `work` outlives the layer.
std::unique_ptr<Layer> MakeGinLayer(LayerWork& work, uint32_t in_width, uint32_t out_width, Rng& rng);

}  // namespace quarry
