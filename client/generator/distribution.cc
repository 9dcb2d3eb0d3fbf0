// Compiled with -ffp-contract=off (client/CMakeLists.txt): a fused multiply-add rounds once where two
// operations round twice.
#include "generator/distribution.h"

#include <cassert>
#include <cmath>

namespace quarry {
namespace {

constexpr double kLn2 = 0.693147180559945309417;

// Natural logarithm by the series of atanh, to about 1e-15. std::frexp is exact. REQUIRES: x > 0.
double Log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // in [0.5, 1)
  if (mantissa < 0.7071067811865476) {
    mantissa *= 2;
    exponent--;
  }
  const double t = (mantissa - 1) / (mantissa + 1);
  const double square = t * t;
  double sum = 0;
  for (int k = 25; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * t * sum + exponent * kLn2;
}

// Exponential by Taylor's series after removing powers of two, to about 1e-15 relative. std::ldexp is exact.
double Exp(double x) {
  const int power = static_cast<int>(std::floor(x / kLn2 + 0.5));
  const double rest = x - power * kLn2;
  double sum = 1;
  for (int k = 17; k >= 1; k--) sum = sum * rest / k + 1;
  return std::ldexp(sum, power);
}

double GaussianDensity(double x) { return 0.398942280401432677940 * Exp(-0.5 * x * x); }

// The integral of the density from 0 to x: density(x) * (x + x^3/3 + x^5/(3*5) + ...).
double GaussianArea(double x) {
  double term = x;
  double sum = x;
  for (int k = 3; term > sum * 1e-17; k += 2) {
    term *= x * x / k;
    sum += term;
  }
  return sum * GaussianDensity(x);
}

}  // namespace

double ExactPow(double base, double exponent) { return Exp(exponent * Log(base)); }

GaussianTable MakeGaussianTable(double deviation) {
  GaussianTable table;
  double x = 0;  // each quantile is the starting point of the next
  for (size_t i = 0; i < kGaussianLevels / 2; i++) {
    const double area = (static_cast<double>(i) + 0.5) / kGaussianLevels;
    // Newton's method climbs a concave function from below: it cannot overshoot by much, and six steps reach
    // 1e-12.
    for (int step = 0; step < 6; step++) x += (area - GaussianArea(x)) / GaussianDensity(x);
    table[kGaussianLevels / 2 + i] = static_cast<float>(x * deviation);
    table[kGaussianLevels / 2 - 1 - i] = -static_cast<float>(x * deviation);
  }
  return table;
}

PowerLaw::PowerLaw(double exponent, double peak_ratio) {
  assert(exponent >= 1.5 && peak_ratio > 1);
  const double fall = 1 / (exponent - 1);  // popularity(x) = (x + x0)^-fall for x in [0, 1)
  const double rest = 1 - fall;
  // The integral of popularity over [0, 1), and the share x at which it reaches `area`.
  const auto total = [&](double x0) {
    return rest == 0 ? Log((1 + x0) / x0) : (ExactPow(1 + x0, rest) - ExactPow(x0, rest)) / rest;
  };
  const auto inverse = [&](double x0, double area) {
    return (rest == 0 ? x0 * Exp(area) : ExactPow(ExactPow(x0, rest) + area * rest, 1 / rest)) - x0;
  };
  // The peak ratio falls as x0 grows: bisect its logarithm.
  double low = -60, high = 20;
  for (int step = 0; step < 60; step++) {
    const double middle = (low + high) / 2;
    const double x0 = Exp(middle);
    (ExactPow(x0, -fall) / total(x0) > peak_ratio ? low : high) = middle;
  }
  const double x0 = Exp(high);
  const double whole = total(x0);
  const double steps = static_cast<double>(quantiles_.size() - 1);
  for (size_t i = 0; i + 1 < quantiles_.size(); i++) {
    quantiles_[i] =
        static_cast<uint64_t>(std::floor(inverse(x0, whole * static_cast<double>(i) / steps) * 0x1p32));
  }
  quantiles_.back() = uint64_t{1} << 32;
}

uint64_t PowerLaw::Rank(uint64_t uniform, uint64_t count) const {
  const uint64_t slot = uniform >> (64 - kBits);
  const uint64_t fraction = uniform << kBits >> 32;
  const uint64_t low = quantiles_[slot];
  const uint64_t share = low + ((quantiles_[slot + 1] - low) * fraction >> 32);  // below 2^32: fraction is
  return share * count >> 32;
}

}  // namespace quarry
