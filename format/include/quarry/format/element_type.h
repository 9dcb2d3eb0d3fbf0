// Element types of rows, and their decoding to float32. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

// The values are the bytes on disk (docs/format.md). Feature rows are one of the first four; labels, splits
// and other node properties are one of the integers.
enum class ElementType : uint8_t {
  kFloat32 = 1,
  kFloat16 = 2,   // IEEE 754 binary16
  kBfloat16 = 3,  // the upper half of a binary32
  kInt8 = 4,      // int8 times the row's float32 scale, which follows the elements at a multiple of 4 bytes
  kUint8 = 5,
  kInt32 = 6,
  kInt64 = 7,
};

// "float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64".
std::string_view ElementTypeName(ElementType type);
Result<ElementType> ParseElementType(std::string_view name);  // kUsage for an unknown name

constexpr bool IsElementType(uint8_t value) { return value >= 1 && value <= 7; }
constexpr bool IsFloatType(ElementType type) { return type <= ElementType::kInt8; }

// Bytes of one element, without an int8 row's scale.
size_t ElementBytes(ElementType type);

// Bytes of one encoded row of `dim` elements: dim * ElementBytes, for int8 rounded up to 4 plus 4 for the
// scale.
uint64_t RowBytes(ElementType type, uint64_t dim);

// Decodes one row of a float type (the first four) into `out`. REQUIRES: row.size() == RowBytes(type,
// out.size()).
void DecodeRow(ElementType type, std::span<const std::byte> row, std::span<float> out);

// Encodes `values` as one row, rounding to nearest even; int8 takes max|v| / 127 as its scale (0 for a row of
// zeros). REQUIRES: row.size() == RowBytes(type, values.size()), a float type, finite values for int8.
void EncodeRow(ElementType type, std::span<const float> values, std::span<std::byte> row);

}  // namespace quarry
