// RgatLayer: a relational graph attention network's layer (Busbridge et al. 2019, ARGAT with additive logits), whose
// relations share B basis matrices, as RgcnLayer's do:
//
//   z_b     = sources W_b                                               [sources, heads * head_dim], side by side: one GEMM
//   message = sum over b of a[kind][b] z_u,b                            of an edge from u
//   score   = leaky_relu(left . sum_b a[kind][b] z_v,b + right . message)   by head
//   output  = sum over v's list of softmax(score) message               [rows, out]
//
// A node's list is its edges, whatever their kinds, and then the node itself, which has a kind of its own behind those of
// edges: so the softmax is across relations. Heads lie side by side in the output, or, of the last layer, are averaged
// there. The two weights of scores are those of all kinds.
#pragma once

#include <cstdint>
#include <memory>

#include "layer.h"

namespace quarry {

// Sources whose part of the gradients of the weights of scores is summed together, whatever the number of threads.
inline constexpr uint32_t kRgatPieceSources = 1024;

// The shape of what is attended to. Scores by basis and head are products of z with the weights of scores.
struct RelationHeads {
  uint32_t bases = 0, heads = 0, head_dim = 0;
  bool averages = false;  // heads are averaged: an output has head_dim columns, else heads * head_dim

  uint32_t width() const { return heads * head_dim; }   // of a message, all heads
  uint32_t z_width() const { return bases * width(); }  // [bases, heads, head_dim]
  uint32_t scores() const { return bases * heads; }     // [bases, heads]
  uint32_t out_width() const { return averages ? head_dim : width(); }
  // For a whole graph (graph_layer.h) a message is [z | right scores]; a state [sum of e^(s - largest) message | largest s |
  // sum of e^(s - largest) | left scores], the second and third by head.
  uint32_t graph_message() const { return z_width() + scores(); }
  uint32_t graph_state() const { return width() + 2 * heads + scores(); }
};

// Its sources are not dropped. REQUIRES: `work` outlives the layer; a kind and a basis; `averages`, or the heads share
// out_width evenly.
std::unique_ptr<Layer> MakeRgatLayer(LayerWork& work, uint32_t kinds, uint32_t bases, uint32_t heads,
                                     bool averages, uint32_t in_width, uint32_t out_width, Rng& rng);

}  // namespace quarry
