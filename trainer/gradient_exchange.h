// GradientExchange: a step of several trainers, with the gradient that one trainer would have had of the
// union of their batches.
//
// All of them make the same number of steps, although not all have the same number of batches: who has none
// left takes part with a share of nothing, until a step comes in which nobody has one. A failure of one rank
// reaches all of them in the same call, which they wait in anyway. Weights begin alike by seed, and stay
// alike because the sums are the same bits at every rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/trainer/communicator.h"

namespace quarry {

struct StepShare {
  uint32_t batches = 0;  // 1, or 0 behind the last
  uint32_t seeds = 0;    // with a label: what the gradients are a mean over
};

class GradientExchange {
 public:
  explicit GradientExchange(Communicator& trainers) : trainers_(trainers) {}

  // Gradients become means over the seeds of all ranks; returns the sum of their shares. `mine` tells whether
  // this rank's share could be made; where one could not, all get its error.
  Result<StepShare> Average(const Status& mine, const StepShare& share,
                            const std::vector<std::span<float>>& gradients);

 private:
  Communicator& trainers_;
  std::vector<float> sums_;
};

}  // namespace quarry
