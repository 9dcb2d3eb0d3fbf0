#include "quarry/format/element_type.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "quarry/base/random.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

std::vector<uint8_t> Encoded(ElementType type, const std::vector<float>& values) {
  std::vector<uint8_t> row(RowBytes(type, values.size()));
  EncodeRow(type, values, std::as_writable_bytes(std::span(row)));
  return row;
}

std::vector<float> Decoded(ElementType type, const std::vector<uint8_t>& row, size_t dim) {
  std::vector<float> values(dim);
  DecodeRow(type, std::as_bytes(std::span(row)), values);
  return values;
}

// What a half means, by definition.
double HalfValue(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const double mantissa = half & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

// The finite half or infinity that is nearest to `value`, ties to the even mantissa, by search.
uint16_t NearestHalf(float value) {
  const double magnitude = std::fabs(static_cast<double>(value));
  uint16_t below = 0;
  for (uint16_t step = 0x4000; step != 0; step >>= 1) {
    const uint16_t next = below + step;
    const double next_value = next < 0x7c00 ? HalfValue(next) : 65536.0;
    if (next <= 0x7c00 && next_value <= magnitude) below = next;
  }
  uint16_t nearest = below;
  if (below < 0x7c00) {
    const double above_value = below + 1 < 0x7c00 ? HalfValue(below + 1) : 65536.0;
    const double to_below = magnitude - HalfValue(below);
    const double to_above = above_value - magnitude;
    if (to_above < to_below || (to_above == to_below && (below & 1) != 0)) nearest = below + 1;
  }
  return static_cast<uint16_t>(nearest | (std::signbit(value) ? 0x8000 : 0));
}

TEST(ElementTypeTest, NamesAndBytesAreThoseOfTheFormat) {
  EXPECT_EQ(ElementTypeName(ElementType::kBfloat16), "bfloat16");
  EXPECT_EQ(ParseElementType("int8").value(), ElementType::kInt8);
  EXPECT_THAT(ParseElementType("float64"), IsStatus(Code::kUsage));
  EXPECT_EQ(RowBytes(ElementType::kFloat32, 7), 28u);
  EXPECT_EQ(RowBytes(ElementType::kFloat16, 7), 14u);
  EXPECT_EQ(RowBytes(ElementType::kInt8, 7), 12u);  // 7, one of padding, the scale
  EXPECT_EQ(RowBytes(ElementType::kInt8, 8), 12u);
  EXPECT_EQ(RowBytes(ElementType::kUint8, 1), 1u);
  EXPECT_EQ(RowBytes(ElementType::kInt64, 1), 8u);
}

TEST(ElementTypeTest, RowsHaveTheBytesOfTheFormat) {
  const std::vector<float> values = {1.0f, -2.0f, 0.5f, 127.0f, -0.0f};
  EXPECT_EQ(Encoded(ElementType::kFloat32, values),
            (std::vector<uint8_t>{0, 0,    0x80, 0x3f, 0,    0,    0, 0xc0, 0, 0,
                                  0, 0x3f, 0,    0,    0xfe, 0x42, 0, 0,    0, 0x80}));
  EXPECT_EQ(Encoded(ElementType::kFloat16, values),
            (std::vector<uint8_t>{0, 0x3c, 0, 0xc0, 0, 0x38, 0xf0, 0x57, 0, 0x80}));
  EXPECT_EQ(Encoded(ElementType::kBfloat16, values),
            (std::vector<uint8_t>{0x80, 0x3f, 0, 0xc0, 0, 0x3f, 0xfe, 0x42, 0, 0x80}));
  // Scale 1; 0.5 rounds to the even 0; three bytes of padding before the scale.
  EXPECT_EQ(Encoded(ElementType::kInt8, values),
            (std::vector<uint8_t>{1, 0xfe, 0, 127, 0, 0, 0, 0, 0, 0, 0x80, 0x3f}));
}

TEST(ElementTypeTest, EveryHalfDecodesToItsValueAndEncodesBack) {
  std::vector<uint8_t> row(65536 * 2);
  for (uint32_t half = 0; half < 65536; ++half) {
    row[2 * half] = static_cast<uint8_t>(half);
    row[2 * half + 1] = static_cast<uint8_t>(half >> 8);
  }
  const std::vector<float> values = Decoded(ElementType::kFloat16, row, 65536);
  const std::vector<uint8_t> back = Encoded(ElementType::kFloat16, values);
  for (uint32_t half = 0; half < 65536; ++half) {
    SCOPED_TRACE(half);
    const bool is_nan = (half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0;
    const uint16_t encoded = static_cast<uint16_t>(back[2 * half] | back[2 * half + 1] << 8);
    ASSERT_EQ(encoded, is_nan ? half | 0x200 : half);  // a NaN becomes quiet
    if ((half & 0x7c00) == 0x7c00) {
      ASSERT_EQ(is_nan, std::isnan(values[half]));
    } else {
      ASSERT_EQ(static_cast<double>(values[half]), HalfValue(static_cast<uint16_t>(half)));
      ASSERT_EQ(std::signbit(values[half]), (half & 0x8000) != 0);
    }
  }
}

TEST(ElementTypeTest, HalvesRoundToNearestEven) {
  constexpr uint64_t kSeed = 1;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  std::vector<float> values = {65504.0f, 65519.99f, 65520.0f,   65536.0f, 1e30f,
                               0x1p-24f, 0x1p-25f,  0x1.8p-25f, 0x1p-14f};
  for (int i = 0; i < 50000; ++i) {
    // Exponents around the range of halves, so that subnormals and overflow occur.
    const auto exponent = static_cast<int>(rng.Below(48)) - 28;
    values.push_back(static_cast<float>(std::ldexp(rng.Unit() * 2 - 1, exponent)));
    // A value half-way between two halves.
    const auto half = static_cast<uint16_t>(rng.Below(0x7bff));
    values.push_back(static_cast<float>((HalfValue(half) + HalfValue(half + 1)) / 2));
  }
  const std::vector<uint8_t> row = Encoded(ElementType::kFloat16, values);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(static_cast<uint16_t>(row[2 * i] | row[2 * i + 1] << 8), NearestHalf(values[i])) << values[i];
  }
}

TEST(ElementTypeTest, Bfloat16RoundsToNearestEvenAndKeepsNan) {
  constexpr uint64_t kSeed = 2;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  std::vector<float> values = {std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()};
  for (int i = 0; i < 50000; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(rng())));
  values.push_back(std::bit_cast<float>(0x7f800001u));  // a NaN whose payload lies below the cut
  const std::vector<float> decoded =
      Decoded(ElementType::kBfloat16, Encoded(ElementType::kBfloat16, values), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    SCOPED_TRACE(fmt::format("{:#x}", std::bit_cast<uint32_t>(values[i])));
    if (std::isnan(values[i])) {
      ASSERT_TRUE(std::isnan(decoded[i]));
      continue;
    }
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    const uint32_t low = bits & 0xffff;
    uint32_t expected = bits - low;
    if (low > 0x8000 || (low == 0x8000 && (bits & 0x10000) != 0)) expected += 0x10000;
    ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]), expected);
  }
}

TEST(ElementTypeTest, Int8RowsAreWithinHalfAScaleAtAnyDim) {
  constexpr uint64_t kSeed = 3;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  for (size_t dim = 1; dim < 80; ++dim) {
    SCOPED_TRACE(dim);
    std::vector<float> values(dim);
    for (float& v : values) v = static_cast<float>(rng.Unit() * 6 - 3);
    const std::vector<uint8_t> row = Encoded(ElementType::kInt8, values);
    float scale;
    std::memcpy(&scale, &row[row.size() - 4], 4);
    float max = 0;
    for (const float v : values) max = std::max(max, std::fabs(v));
    ASSERT_EQ(scale, max / 127.0f);
    for (size_t i = dim; i + 4 < row.size(); ++i) ASSERT_EQ(row[i], 0) << "padding";
    const std::vector<float> decoded = Decoded(ElementType::kInt8, row, dim);
    for (size_t i = 0; i < dim; ++i) ASSERT_NEAR(decoded[i], values[i], scale * 0.5001f);
  }
}

TEST(ElementTypeTest, Int8RowsOfZerosAndOfSubnormalsStayInRange) {
  EXPECT_EQ(Encoded(ElementType::kInt8, {0.0f, -0.0f, 0.0f, 0.0f}), std::vector<uint8_t>(8, 0));
  // 178 units of the least subnormal: max / 127 rounds down to one unit, and 178 must not wrap.
  const float unit = std::numeric_limits<float>::denorm_min();
  const std::vector<uint8_t> row = Encoded(ElementType::kInt8, {178 * unit, -178 * unit});
  EXPECT_EQ(row[0], 127);
  EXPECT_EQ(row[1], static_cast<uint8_t>(-127));
}

// The vector loops take 8 or more elements at once: a row's tail must not differ from its middle.
TEST(ElementTypeTest, AnElementIsEncodedTheSameWhereverItStands) {
  constexpr uint64_t kSeed = 4;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16}) {
    for (size_t dim = 1; dim < 70; ++dim) {
      std::vector<float> values(dim);
      for (float& v : values) v = std::bit_cast<float>(static_cast<uint32_t>(rng()));
      const std::vector<uint8_t> row = Encoded(type, values);
      const std::vector<float> decoded = Decoded(type, row, dim);
      for (size_t i = 0; i < dim; ++i) {
        const std::vector<uint8_t> alone = Encoded(type, {values[i]});
        ASSERT_TRUE(std::equal(alone.begin(), alone.end(), row.begin() + 2 * static_cast<ptrdiff_t>(i)));
        const float decoded_alone = Decoded(type, alone, 1)[0];
        ASSERT_EQ(std::memcmp(&decoded_alone, &decoded[i], sizeof(float)), 0);
      }
    }
  }
}

}  // namespace
}  // namespace quarry
