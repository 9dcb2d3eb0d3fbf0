// The activations of layers and their backward passes, and dropout (quarry/trainer/aggregate.h).
#include <algorithm>
#include <cstdint>
#include <span>

#include "elementwise.h"
#include "kernel.h"
#include "quarry/trainer/aggregate.h"

namespace quarry {
namespace {

QUARRY_KERNEL void DropRange(uint32_t dim, const DropoutMask& mask, uint32_t threshold, uint32_t begin,
                             uint32_t end, float* values) {
  const float scale = mask.keep_scale();
  for (uint32_t v = begin; v < end; v++) {
    float* row = values + size_t{v - begin} * dim;
    const uint32_t key = RowKey(mask, v);
    for (uint32_t c = 0; c < dim; c++) {
      const float kept = row[c] * scale;
      row[c] = Drops(key, c, threshold) ? 0.0F : kept;
    }
  }
}

QUARRY_KERNEL void ActivateRange(const float* __restrict bias, uint32_t dim, const DropoutMask& mask,
                                 uint32_t threshold, uint32_t begin, uint32_t end, float* __restrict values) {
  const float scale = mask.keep_scale();
  for (uint32_t v = begin; v < end; v++) {
    float* row = values + size_t{v - begin} * dim;
    const uint32_t key = RowKey(mask, v);
    for (uint32_t c = 0; c < dim; c++) {
      const float z = row[c] + bias[c];
      const float active = z <= 0 ? 0.0F : z * scale;  // a NaN stays one
      row[c] = Drops(key, c, threshold) ? 0.0F : active;
    }
  }
}

QUARRY_KERNEL void ActivateEluRange(const float* __restrict bias, uint32_t dim, const DropoutMask& mask,
                                    uint32_t threshold, uint32_t begin, uint32_t end,
                                    float* __restrict values) {
  const float scale = mask.keep_scale();
  for (uint32_t v = begin; v < end; v++) {
    float* row = values + size_t{v - begin} * dim;
    const uint32_t key = RowKey(mask, v);
    for (uint32_t c = 0; c < dim; c++) {
      const float z = row[c] + bias[c];
      const float below = Exp(z) - 1.0F;
      const float active = (z > 0 ? z : below) * scale;
      row[c] = Drops(key, c, threshold) ? 0.0F : active;
    }
  }
}

// Where z is not above 0, the derivative exp(z) is the activation and one.
QUARRY_KERNEL void BackwardEluRange(uint32_t dim, const DropoutMask& mask, uint32_t threshold, uint32_t begin,
                                    uint32_t end, const float* __restrict outputs,
                                    float* __restrict gradients) {
  const float scale = mask.keep_scale();
  for (uint32_t v = begin; v < end; v++) {
    const float* active = outputs + size_t{v - begin} * dim;
    float* row = gradients + size_t{v - begin} * dim;
    const uint32_t key = RowKey(mask, v);
    for (uint32_t c = 0; c < dim; c++) {
      const float slope = active[c] > 0 ? scale : active[c] + scale;
      row[c] = Drops(key, c, threshold) ? 0.0F : row[c] * slope;
    }
  }
}

// What the ReLU passed is above zero.
QUARRY_KERNEL void BackwardReluRange(uint64_t count, const float* __restrict outputs,
                                     float* __restrict gradients) {
  for (uint64_t i = 0; i < count; i++) gradients[i] = outputs[i] > 0 ? gradients[i] : 0.0F;
}

QUARRY_KERNEL void AddBiasRelu(const float* __restrict bias, uint32_t dim, uint32_t begin, uint32_t end,
                               float* __restrict values) {
  for (uint32_t v = begin; v < end; v++) {
    float* row = values + size_t{v - begin} * dim;
    for (uint32_t c = 0; c < dim; c++) row[c] = std::max(row[c] + bias[c], 0.0F);
  }
}

}  // namespace

void ActivateRows(std::span<const float> bias, const DropoutMask& mask, uint32_t begin, uint32_t end,
                  float* values) {
  const auto dim = static_cast<uint32_t>(bias.size());
  if (mask.probability == 0) return AddBiasRelu(bias.data(), dim, begin, end, values);
  ActivateRange(bias.data(), dim, mask, DropThreshold(mask), begin, end, values);
}

void ActivateEluRows(std::span<const float> bias, const DropoutMask& mask, uint32_t begin, uint32_t end,
                     float* values) {
  ActivateEluRange(bias.data(), static_cast<uint32_t>(bias.size()), mask, DropThreshold(mask), begin, end,
                   values);
}

void BackwardRelu(uint64_t count, const float* outputs, float* gradients) {
  BackwardReluRange(count, outputs, gradients);
}

void BackwardElu(uint32_t dim, const DropoutMask& mask, uint32_t begin, uint32_t end, const float* outputs,
                 float* gradients) {
  BackwardEluRange(dim, mask, DropThreshold(mask), begin, end, outputs, gradients);
}

void DropRows(uint32_t dim, const DropoutMask& mask, uint32_t begin, uint32_t end, float* values) {
  if (mask.probability > 0) DropRange(dim, mask, DropThreshold(mask), begin, end, values);
}

}  // namespace quarry
