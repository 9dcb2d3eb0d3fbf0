// The two distributions of synthetic graphs, as tables computed without the C library's log, exp and pow:
// those differ in the last bit between processors (with and without FMA), and one bit would change the files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace quarry {

// base^exponent to about 1e-14, by IEEE basic operations only: the same bits everywhere. REQUIRES: base > 0.
double ExactPow(double base, double exponent);

// Quantiles of a Gaussian at the middle of each 1/kGaussianLevels of probability. The sum of two draws has
// kGaussianLevels^2 levels, and a kurtosis within 0.02 of the true one.
inline constexpr unsigned kGaussianBits = 12;
inline constexpr size_t kGaussianLevels = size_t{1} << kGaussianBits;
using GaussianTable = std::array<float, kGaussianLevels>;  // 16 KiB: stays in the first-level cache

// The table of a Gaussian with this standard deviation.
GaussianTable MakeGaussianTable(double deviation);

// Draws ranks whose popularity falls as a truncated power law: P(rank) ~ (rank/count + x0)^-1/(exponent-1),
// with x0 so that the first rank is `peak_ratio` times as popular as the mean one. Then the number of draws
// that a rank gets has a tail of P(k) ~ k^-exponent.
class PowerLaw {
 public:
  // REQUIRES: exponent >= 1.5, peak_ratio > 1.
  PowerLaw(double exponent, double peak_ratio);

  // The rank in [0, count) of a uniform 64-bit number; its upper bits matter most. REQUIRES: 0 < count <=
  // 2^32.
  uint64_t Rank(uint64_t uniform, uint64_t count) const;

 private:
  static constexpr unsigned kBits = 12;
  // Quantiles of rank/count in units of 2^-32, linear between.
  std::array<uint64_t, (size_t{1} << kBits) + 1> quantiles_;
};

}  // namespace quarry
