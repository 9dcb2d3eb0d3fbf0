// Elements of stored rows, decoded on a device as DecodeRow and the trainer decode them (quarry/format/element_type.h), bit
// by bit, NaNs too.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "quarry/gpu/kernel.h"
#include "quarry/gpu/words.h"

namespace quarry::gpu {

// A code has kBytes of an element, kScaled, and the value of an element's bits, before the row's scale.
struct Float32Code {
  static constexpr uint32_t kBytes = 4;
  static constexpr bool kScaled = false;
  static constexpr const char* kName = "float32";
  QUARRY_ON_DEVICE static float Value(uint32_t bits) { return BitsAs<float>(bits); }
};

struct Bfloat16Code {
  static constexpr uint32_t kBytes = 2;
  static constexpr bool kScaled = false;
  static constexpr const char* kName = "bfloat16";
  QUARRY_ON_DEVICE static float Value(uint32_t bits) { return BitsAs<float>(bits << 16); }
};

// In integer arithmetic: the conversion of devices gives every NaN the same bits.
struct Float16Code {
  static constexpr uint32_t kBytes = 2;
  static constexpr bool kScaled = false;
  static constexpr const char* kName = "float16";
  QUARRY_ON_DEVICE static float Value(uint32_t half) {
    const uint32_t sign = (half & 0x8000) << 16, exponent = half & 0x7c00, mantissa = half & 0x3ff;
    const uint32_t magnitude = (half & 0x7fff) << 13;
    uint32_t bits = magnitude + (112U << 23);
    if (exponent == 0) bits = BitsAs<uint32_t>(static_cast<float>(mantissa) * 0x1p-24F);
    if (exponent == 0x7c00) bits = magnitude | 0x7f800000 | (mantissa != 0 ? 0x400000 : 0);  // quiet
    return BitsAs<float>(bits | sign);
  }
};

// A signed byte, times the float32 behind the row's elements.
struct Int8Code {
  static constexpr uint32_t kBytes = 1;
  static constexpr bool kScaled = true;
  static constexpr const char* kName = "int8";
  QUARRY_ON_DEVICE static float Value(uint32_t bits) { return static_cast<float>(static_cast<int8_t>(bits)); }
  // Devices give every NaN the same bits; processors keep those of the scale, and give 0 x infinity a sign.
  QUARRY_ON_DEVICE static float Scaled(float value, float scale) {
    const uint32_t bits = BitsAs<uint32_t>(scale), magnitude = bits & 0x7fffffff;
    if (magnitude < 0x7f800000) return value * scale;
    if (magnitude > 0x7f800000) return BitsAs<float>(bits | 0x400000);
    return value == 0 ? BitsAs<float>(0xffc00000) : value * scale;
  }
  QUARRY_ON_DEVICE static uint32_t ScaleAt(uint32_t dim) { return (dim + 3) / 4 * 4; }
};

template <unsigned kWidth>
QUARRY_ON_DEVICE inline void StoreFloats(float* to, const float (&values)[kWidth]) {
  static_assert(kWidth == 1 || kWidth == 4);
  if constexpr (kWidth == 4) {
    StoreOnce(reinterpret_cast<Chunk*>(to), {{BitsAs<uint32_t>(values[0]), BitsAs<uint32_t>(values[1]),
                                              BitsAs<uint32_t>(values[2]), BitsAs<uint32_t>(values[3])}});
  } else {
    StoreOnce(to, values[0]);
  }
}

// kWidth elements of a row that lie behind each other, read at once.
template <typename Code, unsigned kWidth>
struct Piece {
  static constexpr unsigned kBytes = kWidth * Code::kBytes;
  static_assert(kBytes <= 16 && (kBytes & (kBytes - 1)) == 0);
  using Word = std::conditional_t<
      kBytes == 16, Chunk,
      std::conditional_t<
          kBytes == 8, HalfChunk,
          std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 2, uint16_t, uint8_t>>>>;
  Word word;
  float scale = 1;

  // REQUIRES: the row begins at whole Words, and its scale, if there is one, at whole floats.
  QUARRY_ON_DEVICE static Piece Load(const std::byte* row, uint64_t piece, uint32_t dim) {
    Piece loaded{LoadOnce(reinterpret_cast<const Word*>(row) + piece)};
    if constexpr (Code::kScaled) {
      loaded.scale = *reinterpret_cast<const float*>(row + Code::ScaleAt(dim));
    }
    return loaded;
  }
  // Before the scale.
  QUARRY_ON_DEVICE float Value(unsigned k) const {
    constexpr unsigned kInWord = 4 / Code::kBytes;
    constexpr uint32_t kMask = Code::kBytes == 4 ? 0xffffffff : (1U << (8 * Code::kBytes % 32)) - 1;
    uint32_t bits = 0;
    if constexpr (kBytes > 4) {
      bits = word.words[k / kInWord];
    } else {
      bits = word;
    }
    return Code::Value(bits >> (8 * Code::kBytes * (k % kInWord)) & kMask);
  }
  // The element added to a sum: a scale is multiplied within the addition, as the trainer's kernels do it on processors
  // that can.
  QUARRY_ON_DEVICE float AddTo(float sum, unsigned k) const {
    if constexpr (Code::kScaled) {
      return fmaf(scale, Value(k), sum);
    } else {
      return sum + Value(k);
    }
  }
  QUARRY_ON_DEVICE float Decoded(unsigned k) const {
    if constexpr (Code::kScaled) {
      return Code::Scaled(Value(k), scale);
    } else {
      return Value(k);
    }
  }
};

}  // namespace quarry::gpu
