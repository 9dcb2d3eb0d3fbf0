// How far counts are from what a distribution has them be.
#pragma once

#include <cmath>
#include <map>

namespace quarry {

// The number of standard deviations by which a chi-square statistic exceeds its mean, by Wilson and Hilferty's
// approximation: 5 of them have a probability of 3e-7, so that a test that says 5 does not fail by chance, with the
// fixed seeds that tests have, and with others. Outcomes that cannot be make it infinite.
template <typename Outcome>
double ChiSquareDeviations(const std::map<Outcome, double>& probabilities,
                           const std::map<Outcome, int>& counts, int rounds) {
  double statistic = 0, freedom = -1;
  for (const auto& [outcome, probability] : probabilities) {
    const auto found = counts.find(outcome);
    const double expected = probability * rounds;
    const double count = found == counts.end() ? 0 : found->second;
    statistic += (count - expected) * (count - expected) / expected;
    freedom += 1;
  }
  for (const auto& [outcome, count] : counts) {
    if (!probabilities.contains(outcome)) return INFINITY;
  }
  if (freedom < 1) return 0;
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - spread)) / std::sqrt(spread);
}

}  // namespace quarry
