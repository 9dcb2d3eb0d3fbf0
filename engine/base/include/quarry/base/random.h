// Deterministic random numbers: one seed gives one sequence on every machine (invariant 6).
//
// Streams are derived, never shared: MixSeed(seed, epoch, batch) names a stream, so any thread can produce
// batch 17 without having produced batch 16.
#pragma once

#include <bit>
#include <cstdint>

namespace quarry {

__extension__ using uint128_t = unsigned __int128;

// SplitMix64's finalizer (Steele, Lea, Flood 2014): a bijection that scatters neighbouring inputs.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The seed of a derived stream. Order matters: MixSeed(s, 1, 2) != MixSeed(s, 2, 1).
template <typename... Parts>
constexpr uint64_t MixSeed(uint64_t seed, Parts... parts) {
  ((seed = Mix64(seed ^ Mix64(static_cast<uint64_t>(parts)))), ...);
  return seed;
}

// xoroshiro128++ (Blackman, Vigna 2019): 16 bytes of state, less than a nanosecond per number. A value: copy
// it to fork an identical stream. Not thread-safe; satisfies UniformRandomBitGenerator.
class Rng {
 public:
  using result_type = uint64_t;
  explicit constexpr Rng(uint64_t seed) : a_(Mix64(seed)), b_(Mix64(seed + 1)) {}
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }

  constexpr uint64_t operator()() {
    const uint64_t a = a_;
    uint64_t b = b_;
    const uint64_t result = std::rotl(a + b, 17) + a;
    b ^= a;
    a_ = std::rotl(a, 49) ^ b ^ (b << 21);
    b_ = std::rotl(b, 28);
    return result;
  }

  // Uniform in [0, bound), by multiply-shift (Lemire 2019) without the rejection step: the bias is below
  // bound / 2^64. REQUIRES: bound > 0.
  constexpr uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<uint128_t>((*this)()) * bound) >> 64);
  }

  // Uniform in [0, 1).
  constexpr double Unit() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

 private:
  uint64_t a_;
  uint64_t b_;
};

}  // namespace quarry
