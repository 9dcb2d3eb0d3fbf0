// What a layer of a model takes of memory, for a block of given bounds.
#pragma once

#include <cstdint>
#include <span>

#include "graph_layer.h"
#include "quarry/trainer/model_inputs.h"
#include "quarry/trainer/model_spec.h"

namespace quarry {

struct LayerBounds {
  uint32_t in = 0, out = 0;
  bool first = false, last = false;
  uint32_t kinds = 0;  // of edges, of models that tell them apart
  uint64_t rows = 0, sources = 0, edges = 0;
};

// Floats of its weights and biases.
uint64_t LayerParameters(const ModelSpec& spec, const LayerBounds& layer);
uint32_t LayerParameterCount(const ModelSpec& spec);  // matrices and vectors that they are

// What it holds between its forward and its backward pass, the block's transposed edges among it, but not its output.
uint64_t LayerActivationBytes(const ModelSpec& spec, const LayerBounds& layer);

// As the layer's StartGraph has it.
GraphForm GraphFormOf(const ModelSpec& spec, const LayerBounds& layer, GraphOrder order);

// What InputLayer holds of so many nodes, its output among it, and the floats of its parameters.
uint64_t InputBytes(std::span<const InputType> types, uint32_t width, uint64_t nodes);
uint64_t InputParameters(std::span<const InputType> types, uint32_t width);

// As Matrix allocates for so many floats: an eighth of slack, whole huge pages.
uint64_t GrownBytes(uint64_t floats);

}  // namespace quarry
