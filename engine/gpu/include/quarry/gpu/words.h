// Words of kernels: how many bytes they move at once, and divisors that cost them little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "quarry/gpu/kernel.h"

namespace quarry::gpu {

// 16 and 8 bytes at once, as a device's memory gives them.
struct alignas(16) Chunk {
  uint32_t words[4];
};
struct alignas(8) HalfChunk {
  uint32_t words[2];
};

// What nothing else of the launch reads again, and nothing writes: it passes by the first cache.
template <typename Word>
QUARRY_ON_DEVICE inline Word LoadOnce(const Word* from) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<Word, Chunk>) {
    Chunk c;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c.words[0]), "=r"(c.words[1]), "=r"(c.words[2]), "=r"(c.words[3])
                 : "l"(from));
    return c;
  } else if constexpr (std::is_same_v<Word, HalfChunk>) {
    HalfChunk c;
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(c.words[0]), "=r"(c.words[1])
                 : "l"(from));
    return c;
  } else if constexpr (std::is_same_v<Word, uint32_t>) {
    uint32_t word;
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(word) : "l"(from));
    return word;
  } else {
    return __ldg(from);
  }
#else
  return *from;
#endif
}

// What nothing of the launch reads.
template <typename Word>
QUARRY_ON_DEVICE inline void StoreOnce(Word* to, const Word& word) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<Word, Chunk>) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word.words[0]),
                 "r"(word.words[1]), "r"(word.words[2]), "r"(word.words[3])
                 : "memory");
  } else {
    __stcs(to, word);
  }
#else
  *to = word;
#endif
}

template <typename To, typename From>
QUARRY_ON_DEVICE inline To BitsAs(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

// A divisor that is the same for all indices. Devices have no division: one of 64 bits takes them a hundred instructions,
// this one two multiplications, where the dividend has 32 bits (Lemire, Kaser, Kurz, "Faster remainder by direct
// computation", 2019).
class Divisor {
 public:
  Divisor() = default;
  // REQUIRES: not 0.
  Divisor(uint32_t value)  // NOLINT(google-explicit-constructor): a number
      : value_(value),
        itself_(value == 1 ? UINT32_MAX : 0),
        reciprocal_(value == 1 ? 0 : UINT64_MAX / value + 1) {}

  QUARRY_ON_DEVICE uint32_t value() const { return value_; }
  // first + k * step = quotients[k] * value + remainders[k]. Which way is taken is decided once, so that what follows of
  // all of them can be under way at the same time.
  template <unsigned kCount>
  QUARRY_ON_DEVICE void Divide(uint64_t first, uint64_t step, uint64_t (&quotients)[kCount],
                               uint32_t (&remainders)[kCount]) const {
    if ((first + (kCount - 1) * step) >> 32 == 0) {
      for (unsigned k = 0; k < kCount; ++k) {
        const auto dividend = static_cast<uint32_t>(first + k * step), quotient = Quotient32(dividend);
        quotients[k] = quotient;
        remainders[k] = dividend - quotient * value_;
      }
    } else {
      for (unsigned k = 0; k < kCount; ++k) {
        const uint64_t dividend = first + k * step;
        quotients[k] = dividend / value_;
        remainders[k] = static_cast<uint32_t>(dividend - quotients[k] * value_);
      }
    }
  }

 private:
  QUARRY_ON_DEVICE uint32_t Quotient32(uint32_t dividend) const {
    const uint64_t low = (reciprocal_ & 0xffffffff) * dividend >> 32;
    return static_cast<uint32_t>(((reciprocal_ >> 32) * dividend + low) >> 32) + (dividend & itself_);
  }

  uint32_t value_ = 1;
  uint32_t itself_ = UINT32_MAX;  // all bits, where a quotient is the dividend itself
  uint64_t reciprocal_ = 0;       // 2^64 / value, rounded up
};

// One dividend by itself.
struct Division {
  uint64_t quotient;
  uint32_t remainder;
};
QUARRY_ON_DEVICE inline Division Divide(uint64_t dividend, const Divisor& divisor) {
  uint64_t quotients[1];
  uint32_t remainders[1];
  divisor.Divide(dividend, 0, quotients, remainders);
  return {quotients[0], remainders[0]};
}

}  // namespace quarry::gpu
