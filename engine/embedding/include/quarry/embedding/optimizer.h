// Sparse optimizers: they move one row of an embedding table by one step along its gradient. Pure functions:
// the same inputs give the same bits on any thread.
#pragma once

#include <span>

#include "quarry/embedding/embedding_table.h"

namespace quarry {

struct OptimizerOptions {
  float learning_rate = 0.1F;
  float epsilon = 1e-10F;              // adagrad; adam adds it too
  float beta1 = 0.9F, beta2 = 0.999F;  // adam
};

// Moves `values` (dim) against `gradient` (dim) and brings `state` (state_dim) forward.
void OptimizerStep(OptimizerKind kind, const OptimizerOptions& options, std::span<const float> gradient,
                   std::span<float> values, std::span<float> state);

}  // namespace quarry
