// RgcnLayer: a relational graph convolutional network's layer (Schlichtkrull et al. 2018), whose relations share B basis
// matrices:
//
//   gathered_b = 1 / |N(v)| * sum over v's edges e from u of a[kind of e][b] h_u
//   output     = h_v W_0 + sum over b of gathered_b W_b          [rows, out]   one GEMM: [h_v | gathered_1 | ..] W
//
// The kind of an edge is its relation and which way it is taken. Sums are divided by the number of all of a node's edges,
// whatever their kind, which the paper (§5.2) found the best for link prediction.
#pragma once

#include <cstdint>
#include <memory>

#include "layer.h"

namespace quarry {

// Its sources are float32, and neither normalised nor dropped. REQUIRES: `work` outlives the layer; a kind and a basis.
std::unique_ptr<Layer> MakeRgcnLayer(LayerWork& work, uint32_t kinds, uint32_t bases, uint32_t in_width,
                                     uint32_t out_width, Rng& rng);

}  // namespace quarry
