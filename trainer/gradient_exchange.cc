#include "gradient_exchange.h"

#include <algorithm>
#include <cstddef>

namespace quarry {
namespace {

// Behind the gradients; numbers that float holds exactly.
enum Extra : size_t { kBatches, kSeeds, kFailed, kExtras };

}  // namespace

Result<StepShare> GradientExchange::Average(const Status& mine, const StepShare& share,
                                            const std::vector<std::span<float>>& gradients) {
  size_t values = 0;
  for (const std::span<float> gradient : gradients) values += gradient.size();
  sums_.assign(values + kExtras, 0.0F);
  const auto seeds = static_cast<float>(share.seeds);
  auto at = sums_.begin();
  for (const std::span<float> gradient : gradients) {
    if (share.seeds > 0) std::ranges::transform(gradient, at, [seeds](float g) { return g * seeds; });
    at += static_cast<ptrdiff_t>(gradient.size());
  }
  at[kBatches] = static_cast<float>(share.batches);
  at[kSeeds] = seeds;
  at[kFailed] = mine.ok() ? 0.0F : 1.0F;
  const Status summed = trainers_.AllReduceSum(sums_);
  if (!summed.ok()) return mine.ok() ? summed : mine;
  if (at[kFailed] > 0) return Agree(&trainers_, mine);
  const StepShare total{static_cast<uint32_t>(at[kBatches]), static_cast<uint32_t>(at[kSeeds])};
  if (total.seeds == 0) return total;
  const auto scale = at[kSeeds];
  auto from = sums_.cbegin();
  for (const std::span<float> gradient : gradients) {
    for (float& g : gradient) g = *from++ / scale;
  }
  return total;
}

}  // namespace quarry
