#include "metrics.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace quarry {

std::optional<double> RocAuc(std::span<const float> scores, std::span<const uint8_t> positive) {
  std::vector<uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return scores[a] < scores[b]; });
  uint64_t positives = 0;
  uint64_t negatives_below = 0;
  // Twice the number of (positive, negative) pairs in the right order, so that a tie counts 1 and all stays
  // integer.
  uint64_t doubled_wins = 0;
  for (size_t i = 0; i < order.size();) {
    uint64_t tied[2] = {0, 0};
    size_t j = i;
    for (; j < order.size() && scores[order[j]] == scores[order[i]]; j++) tied[positive[order[j]] != 0]++;
    doubled_wins += tied[1] * (2 * negatives_below + tied[0]);
    positives += tied[1];
    negatives_below += tied[0];
    i = j;
  }
  if (positives == 0 || negatives_below == 0) return std::nullopt;
  return static_cast<double>(doubled_wins) /
         (2.0 * static_cast<double>(positives) * static_cast<double>(negatives_below));
}

uint32_t ArgMax(std::span<const float> values) {
  return static_cast<uint32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace quarry
