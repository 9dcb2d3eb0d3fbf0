// Where there is no plain twin to compare with, as under dropout: the slope of a loss along its gradient is the gradient's
// square.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "node_model.h"

namespace quarry {

struct Slope {
  double measured = 0;
  double square = 0;  // of the gradient, which the slope should be
};

// `loss` computes the model's loss and leaves its gradients, but no other weights. A long gradient is followed for
// `length` alone.
template <typename Loss>
Slope SlopeAlongGradient(NodeModel& model, const Loss& loss, double length = 0.01) {
  loss();
  std::vector<std::vector<float>> gradients;
  double square = 0;
  for (const std::span<const float> gradient : model.Gradients()) {
    gradients.emplace_back(gradient.begin(), gradient.end());
    for (const float g : gradient) square += double{g} * g;
  }
  const auto move = [&](double step) {
    const auto parameters = model.Parameters();
    for (size_t p = 0; p < parameters.size(); p++) {
      for (size_t i = 0; i < parameters[p].size(); i++) {
        parameters[p][i] += static_cast<float>(step * gradients[p][i]);
      }
    }
  };
  const double step = length / std::max(1.0, std::sqrt(square));
  move(step);
  const double above = loss();
  move(-2 * step);
  const double below = loss();
  return {.measured = (above - below) / (2 * step), .square = square};
}

}  // namespace quarry
