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

// At most the probability that counts of so many draws are as far from the distribution as these are, by their relative
// entropy: Agrawal's bound for a multinomial of k outcomes, e^-G (e G / (k - 1))^(k - 1), G = rounds times the entropy
// ("Finite-sample concentration of the multinomial in relative entropy", 2020, theorem 1.2). It holds for any number of
// rounds and however rare outcomes are, where chi-square is a limit. An outcome that cannot be makes it 0.
template <typename Outcome>
double ChanceOf(const std::map<Outcome, double>& probabilities, const std::map<Outcome, int>& counts,
                int rounds) {
  double entropy = 0;  // times rounds
  for (const auto& [outcome, count] : counts) {
    const auto found = probabilities.find(outcome);
    if (found == probabilities.end()) return 0;
    entropy += count * std::log(count / (found->second * rounds));
  }
  const double freedom = static_cast<double>(probabilities.size()) - 1;
  if (freedom < 1 || entropy <= freedom) return 1;
  return std::exp(-entropy + freedom * (1 + std::log(entropy / freedom)));
}

}  // namespace quarry
