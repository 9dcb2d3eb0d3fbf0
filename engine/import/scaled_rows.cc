// int8 rows with a scale each, out of two arrays.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "npy_reader.h"

namespace quarry {
namespace {

class ScaledRows final : public RowReader {
 public:
  ScaledRows(const NpyArray& rows, std::unique_ptr<ByteSource> elements, std::string scales_name,
             std::unique_ptr<FloatCursor> scales)
      : name_(rows.name),
        scales_name_(std::move(scales_name)),
        row_count_(rows.extent(0)),
        dim_(rows.extent(1)),
        elements_(std::move(elements)),
        scales_(std::move(scales)) {}

  ElementType element_type() const override { return ElementType::kInt8; }
  uint64_t dim() const override { return dim_; }
  uint64_t row_count() const override { return row_count_; }
  std::string Position(uint64_t row) const override { return fmt::format("{}: row {}", name_, row); }

  Result<size_t> Read(std::span<std::byte> out) override {
    const uint64_t row_bytes = RowBytes(ElementType::kInt8, dim_);
    const uint64_t count = std::min<uint64_t>(out.size() / row_bytes, row_count_ - next_);
    packed_.resize(count * dim_);
    values_.resize(count);
    QUARRY_TRY(const size_t got, elements_->Read(packed_));
    QUARRY_TRY(const size_t scale_count, scales_->Read(values_));
    if (got < packed_.size() || scale_count < count) {
      return MakeStatus(Code::kInvalidArgument, "{}: ends early, within {} rows from row {} on",
                        got < packed_.size() ? name_ : scales_name_, row_count_, next_);
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (!std::isfinite(values_[i])) {
        return MakeStatus(Code::kInvalidArgument, "{}: row {}: the scale is {}; a scale is a finite number",
                          scales_name_, next_ + i, values_[i]);
      }
      const std::span<std::byte> row = out.subspan(i * row_bytes, row_bytes);
      std::memcpy(row.data(), packed_.data() + i * dim_, dim_);
      std::memset(row.data() + dim_, 0, row_bytes - sizeof(float) - dim_);
      std::memcpy(row.data() + row_bytes - sizeof(float), &values_[i], sizeof(float));
    }
    next_ += count;
    return count;
  }

 private:
  const std::string name_, scales_name_;
  const uint64_t row_count_;
  const uint64_t dim_;
  const std::unique_ptr<ByteSource> elements_;
  const std::unique_ptr<FloatCursor> scales_;
  std::vector<std::byte> packed_;
  std::vector<float> values_;
  uint64_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<RowReader>> MakeScaledRowReader(const NpyArray& rows, const NpyArray& scales) {
  if (rows.dims() != 2 || rows.extent(1) == 0 || rows.header.type.kind != 'i' ||
      rows.header.type.bytes != 1) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: has dtype '{}' and shape {}; with scales ({}) features are int8 [N, D]", rows.name,
                      rows.header.type.name, rows.ShapeText(), scales.name);
  }
  if (scales.dims() != 1 || scales.extent(0) != rows.extent(0) || scales.header.type.name != "<f4") {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: has dtype '{}' and shape {}; expected float32 [{}], a scale a row", scales.name,
                      scales.header.type.name, scales.ShapeText(), rows.extent(0));
  }
  QUARRY_TRY(auto elements, rows.open(0));
  QUARRY_TRY(auto values, FloatCursor::Open(scales));
  return std::unique_ptr<RowReader>(
      std::make_unique<ScaledRows>(rows, std::move(elements), scales.name, std::move(values)));
}

}  // namespace quarry
