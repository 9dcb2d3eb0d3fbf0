#include "quarry/embedding/optimizer.h"

#include <cassert>
#include <cmath>

namespace quarry {
namespace {

void SgdStep(const OptimizerOptions& o, size_t dim, const float* __restrict gradient,
             float* __restrict values) {
  for (size_t i = 0; i < dim; ++i) values[i] -= o.learning_rate * gradient[i];
}

void AdagradStep(const OptimizerOptions& o, size_t dim, const float* __restrict gradient,
                 float* __restrict values, float* __restrict squares) {
  for (size_t i = 0; i < dim; ++i) {
    squares[i] += gradient[i] * gradient[i];
    values[i] -= o.learning_rate * gradient[i] / (std::sqrt(squares[i]) + o.epsilon);
  }
}

// The corrections of the moments' bias towards their start at zero, by the steps that this row has seen.
void AdamStep(const OptimizerOptions& o, size_t dim, const float* __restrict gradient,
              float* __restrict values, float* __restrict mean, float* __restrict square,
              float* __restrict step_count) {
  *step_count += 1;
  const double steps = *step_count;
  const auto rate = static_cast<float>(o.learning_rate / (1.0 - std::pow(double{o.beta1}, steps)));
  const auto correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(double{o.beta2}, steps)));
  for (size_t i = 0; i < dim; ++i) {
    mean[i] = o.beta1 * mean[i] + (1 - o.beta1) * gradient[i];
    square[i] = o.beta2 * square[i] + (1 - o.beta2) * gradient[i] * gradient[i];
    values[i] -= rate * mean[i] / (std::sqrt(square[i]) * correction + o.epsilon);
  }
}

}  // namespace

void OptimizerStep(OptimizerKind kind, const OptimizerOptions& options, std::span<const float> gradient,
                   std::span<float> values, std::span<float> state) {
  const size_t dim = values.size();
  assert(gradient.size() == dim);
  switch (kind) {
    case OptimizerKind::kSgd:
      assert(state.empty());
      return SgdStep(options, dim, gradient.data(), values.data());
    case OptimizerKind::kAdagrad:
      assert(state.size() == dim);
      return AdagradStep(options, dim, gradient.data(), values.data(), state.data());
    case OptimizerKind::kAdam:
      assert(state.size() == 2 * dim + 1);
      return AdamStep(options, dim, gradient.data(), values.data(), state.data(), state.data() + dim,
                      state.data() + 2 * dim);
  }
}

}  // namespace quarry
