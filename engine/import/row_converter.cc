#include "row_converter.h"

#include <cmath>

#include "row_values.h"

namespace quarry {
namespace {

std::string_view NameOfNonFinite(float value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "inf" : "-inf";
}

}  // namespace

Result<std::span<const std::byte>> RowConverter::Convert(std::span<const std::byte> in, uint64_t first) {
  if (!allow_nan_ || to_ == ElementType::kInt8) QUARRY_RETURN_IF_ERROR(CheckFinite(in, first));
  if (to_ == from_) return in;
  const uint64_t from_bytes = RowBytes(from_, values_.size());
  const uint64_t to_bytes = RowBytes(to_, values_.size());
  const uint64_t row_count = in.size() / from_bytes;
  converted_.resize(row_count * to_bytes);
  for (uint64_t row = 0; row < row_count; row++) {
    DecodeRow(from_, in.subspan(row * from_bytes, from_bytes), values_);
    EncodeRow(to_, values_, std::span(converted_).subspan(row * to_bytes, to_bytes));
  }
  if (!allow_nan_) QUARRY_RETURN_IF_ERROR(CheckOverflow(in, first));
  return std::span<const std::byte>(converted_);
}

Status RowConverter::CheckFinite(std::span<const std::byte> in, uint64_t first) {
  if (from_ == ElementType::kInt8) return Status::Ok();  // whole numbers times a scale, which readers check
  const std::optional<uint64_t> found = FindNonFinite(from_, in);
  if (!found.has_value()) return Status::Ok();
  const uint64_t row = *found / values_.size();
  const uint64_t column = *found % values_.size();
  return MakeStatus(
      Code::kInvalidArgument, "{}, column {}: the value is {}; {}", rows_.Position(first + row), column,
      NameOfNonFinite(ValueAt(in, row, column)),
      allow_nan_ ? "int8 rows hold finite values only" : "clean the features, or pass --allow-nan");
}

// float16 ends at 65,504: what was finite may not be any more.
Status RowConverter::CheckOverflow(std::span<const std::byte> in, uint64_t first) {
  if (to_ == ElementType::kInt8) return Status::Ok();
  const std::optional<uint64_t> found = FindNonFinite(to_, converted_);
  if (!found.has_value()) return Status::Ok();
  const uint64_t row = *found / values_.size();
  const uint64_t column = *found % values_.size();
  return MakeStatus(Code::kInvalidArgument,
                    "{}, column {}: {} is beyond the range of {}; choose another --feature-dtype",
                    rows_.Position(first + row), column, ValueAt(in, row, column), ElementTypeName(to_));
}

float RowConverter::ValueAt(std::span<const std::byte> in, uint64_t row, uint64_t column) {
  const uint64_t row_bytes = RowBytes(from_, values_.size());
  DecodeRow(from_, in.subspan(row * row_bytes, row_bytes), values_);
  return values_[column];
}

}  // namespace quarry
