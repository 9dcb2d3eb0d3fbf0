#include "quarry/embedding/embedding_table.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <functional>
#include <numbers>

#include "quarry/base/random.h"
#include "row_record.h"

namespace quarry {
namespace {

// Uniform in [-1, 1), by the upper 24 bits: all that a float32 can hold.
float SignedUnit(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-23F - 1.0F; }

// Standard normal (Box, Muller 1958), in double: the logarithm's argument is in (0, 1].
float Normal(uint64_t bits) {
  const double radius = std::sqrt(-2.0 * std::log(static_cast<double>((bits >> 11) + 1) * 0x1p-53));
  const double turn = static_cast<double>(Mix64(bits) >> 11) * 0x1p-53;
  return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * turn));
}

}  // namespace

void InitRow(const EmbeddingSpec& spec, RowId row, std::span<float> values) {
  assert(values.size() == spec.dim);
  const uint64_t key = MixSeed(spec.seed, row);
  for (size_t column = 0; column < values.size(); ++column) {
    const uint64_t bits = Mix64(key + column);
    switch (spec.init) {
      case InitKind::kZeros:
        values[column] = 0;
        break;
      case InitKind::kUniform:
        values[column] = spec.init_scale * SignedUnit(bits);
        break;
      case InitKind::kNormal:
        values[column] = spec.init_scale * Normal(bits);
        break;
    }
  }
  RoundToStored(spec.element_type, values);
}

void RoundToStored(ElementType type, std::span<float> values) {
  if (type == ElementType::kFloat32) return;
  assert(type == ElementType::kBfloat16);
  constexpr size_t kPiece = 256;
  std::array<std::byte, kPiece * 2> encoded;
  for (size_t i = 0; i < values.size(); i += kPiece) {
    const std::span<float> piece = values.subspan(i, std::min(kPiece, values.size() - i));
    const std::span<std::byte> bytes(encoded.data(), piece.size() * 2);
    EncodeRow(type, piece, bytes);
    DecodeRow(type, bytes, piece);
  }
}

Status CheckRowIds(const EmbeddingSpec& spec, std::span<const RowId> ids) {
  assert(std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end());
  if (ids.empty() || ids.back() < spec.row_count) return Status();
  return MakeStatus(Code::kInvalidArgument, "row {} is beyond the embedding table of {} rows", ids.back(),
                    spec.row_count);
}

}  // namespace quarry
