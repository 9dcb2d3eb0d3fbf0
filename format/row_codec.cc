// DecodeRow and EncodeRow. The loops are plain; on x86-64 each is compiled a second time for AVX2 + F16C and
// that version is taken where the CPU has both. Both versions give the same bits: only conversions, one
// multiplication or one division per element, never a fused multiply-add.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "quarry/format/element_type.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define QUARRY_X86_FAST 1
#define QUARRY_TARGET_FAST __attribute__((target("avx2,f16c")))
#endif
#define QUARRY_INLINE inline __attribute__((always_inline))

namespace quarry {
namespace {

// IEEE 754 binary16 <-> binary32 in integer arithmetic, as F16C does it (NaNs become quiet and keep their top
// payload).
QUARRY_INLINE float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

QUARRY_INLINE uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));  // NaN
  if (magnitude >= 0x477ff000)
    return static_cast<uint16_t>(sign | 0x7c00);  // rounds to 65536 or more: infinity
  if (magnitude < 0x38800000) {                   // below the least normal, 2^-14
    // Adding 0.5 leaves the rounded multiple of 2^-24 in the low mantissa bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t even = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + even) >> 13));
}

QUARRY_INLINE uint16_t FloatToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t quiet_nan = (bits >> 16) | 0x40;  // rounding could carry a NaN into infinity
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

template <typename T>
QUARRY_INLINE T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
QUARRY_INLINE void Store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

QUARRY_INLINE void DecodeHalves(const std::byte* row, float* out, size_t dim) {
  for (size_t i = 0; i < dim; ++i) out[i] = HalfToFloat(Load<uint16_t>(row + 2 * i));
}
QUARRY_INLINE void EncodeHalves(const float* values, std::byte* row, size_t dim) {
  for (size_t i = 0; i < dim; ++i) Store(row + 2 * i, FloatToHalf(values[i]));
}
QUARRY_INLINE void DecodeBfloat16s(const std::byte* row, float* out, size_t dim) {
  for (size_t i = 0; i < dim; ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(Load<uint16_t>(row + 2 * i)) << 16);
  }
}
QUARRY_INLINE void EncodeBfloat16s(const float* values, std::byte* row, size_t dim) {
  for (size_t i = 0; i < dim; ++i) Store(row + 2 * i, FloatToBfloat16(values[i]));
}
QUARRY_INLINE void DecodeInt8s(const std::byte* row, float scale, float* out, size_t dim) {
  for (size_t i = 0; i < dim; ++i) out[i] = static_cast<float>(static_cast<int8_t>(row[i])) * scale;
}
QUARRY_INLINE float MaxMagnitude(const float* values, size_t dim) {
  uint32_t max_bits =
      0;  // magnitudes of finite floats order as their bits do, and integers reduce in any order
  for (size_t i = 0; i < dim; ++i)
    max_bits = std::max(max_bits, std::bit_cast<uint32_t>(values[i]) & 0x7fffffff);
  return std::bit_cast<float>(max_bits);
}
QUARRY_INLINE void EncodeInt8s(const float* values, float scale, std::byte* row, size_t dim) {
  // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, ties to even.
  constexpr float kRound = 12582912.0f;
  for (size_t i = 0; i < dim; ++i) {
    // A subnormal scale is coarse, so that a quotient may reach 190. Clamped as an integer, which vectorizes.
    const auto quotient = static_cast<int32_t>((values[i] / scale + kRound) - kRound);
    row[i] = static_cast<std::byte>(std::min(127, std::max(-127, quotient)));
  }
}

struct Codec {
  void (*decode_halves)(const std::byte*, float*, size_t);
  void (*encode_halves)(const float*, std::byte*, size_t);
  void (*decode_bfloat16s)(const std::byte*, float*, size_t);
  void (*encode_bfloat16s)(const float*, std::byte*, size_t);
  void (*decode_int8s)(const std::byte*, float, float*, size_t);
  float (*max_magnitude)(const float*, size_t);
  void (*encode_int8s)(const float*, float, std::byte*, size_t);
};

constexpr Codec kPlain = {
    [](const std::byte* row, float* out, size_t dim) { DecodeHalves(row, out, dim); },
    [](const float* values, std::byte* row, size_t dim) { EncodeHalves(values, row, dim); },
    [](const std::byte* row, float* out, size_t dim) { DecodeBfloat16s(row, out, dim); },
    [](const float* values, std::byte* row, size_t dim) { EncodeBfloat16s(values, row, dim); },
    [](const std::byte* row, float scale, float* out, size_t dim) { DecodeInt8s(row, scale, out, dim); },
    [](const float* values, size_t dim) { return MaxMagnitude(values, dim); },
    [](const float* values, float scale, std::byte* row, size_t dim) {
      EncodeInt8s(values, scale, row, dim);
    },
};

#ifdef QUARRY_X86_FAST
QUARRY_TARGET_FAST void FastDecodeHalves(const std::byte* row, float* out, size_t dim) {
  size_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2 * i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
  }
  DecodeHalves(row + 2 * i, out + i, dim - i);
}
QUARRY_TARGET_FAST void FastEncodeHalves(const float* values, std::byte* row, size_t dim) {
  size_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + 2 * i), halves);
  }
  EncodeHalves(values + i, row + 2 * i, dim - i);
}
QUARRY_TARGET_FAST void FastDecodeBfloat16s(const std::byte* row, float* out, size_t dim) {
  DecodeBfloat16s(row, out, dim);
}
QUARRY_TARGET_FAST void FastEncodeBfloat16s(const float* values, std::byte* row, size_t dim) {
  EncodeBfloat16s(values, row, dim);
}
QUARRY_TARGET_FAST void FastDecodeInt8s(const std::byte* row, float scale, float* out, size_t dim) {
  DecodeInt8s(row, scale, out, dim);
}
QUARRY_TARGET_FAST float FastMaxMagnitude(const float* values, size_t dim) {
  return MaxMagnitude(values, dim);
}
QUARRY_TARGET_FAST void FastEncodeInt8s(const float* values, float scale, std::byte* row, size_t dim) {
  EncodeInt8s(values, scale, row, dim);
}
constexpr Codec kFast = {FastDecodeHalves, FastEncodeHalves, FastDecodeBfloat16s, FastEncodeBfloat16s,
                         FastDecodeInt8s,  FastMaxMagnitude, FastEncodeInt8s};
#endif

const Codec& BestCodec() {
#ifdef QUARRY_X86_FAST
  static const bool fast = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (fast) return kFast;
#endif
  return kPlain;
}

}  // namespace

void DecodeRow(ElementType type, std::span<const std::byte> row, std::span<float> out) {
  assert(IsFloatType(type) && row.size() == RowBytes(type, out.size()));
  switch (type) {
    case ElementType::kFloat32:
      std::memcpy(out.data(), row.data(), row.size());
      break;
    case ElementType::kFloat16:
      BestCodec().decode_halves(row.data(), out.data(), out.size());
      break;
    case ElementType::kBfloat16:
      BestCodec().decode_bfloat16s(row.data(), out.data(), out.size());
      break;
    default:
      BestCodec().decode_int8s(row.data(), Load<float>(&row[row.size() - sizeof(float)]), out.data(),
                               out.size());
  }
}

void EncodeRow(ElementType type, std::span<const float> values, std::span<std::byte> row) {
  assert(IsFloatType(type) && row.size() == RowBytes(type, values.size()));
  switch (type) {
    case ElementType::kFloat32:
      std::memcpy(row.data(), values.data(), row.size());
      break;
    case ElementType::kFloat16:
      BestCodec().encode_halves(values.data(), row.data(), values.size());
      break;
    case ElementType::kBfloat16:
      BestCodec().encode_bfloat16s(values.data(), row.data(), values.size());
      break;
    default: {
      const float scale = BestCodec().max_magnitude(values.data(), values.size()) / 127.0f;
      std::fill(row.begin(), row.end(), std::byte{0});
      if (scale > 0) BestCodec().encode_int8s(values.data(), scale, row.data(), values.size());
      Store(&row[row.size() - sizeof(float)], scale);
    }
  }
}

}  // namespace quarry
