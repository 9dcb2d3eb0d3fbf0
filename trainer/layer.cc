#include "layer.h"

#include <cmath>

namespace quarry {

Status Matrix::Resize(uint64_t rows, uint64_t columns, uint64_t slack_bytes_max) {
  rows_ = rows;
  columns_ = columns;
  const uint64_t bytes = rows * columns * sizeof(float);
  if (bytes <= buffer_.size()) return Status::Ok();
  buffer_ = IoBuffer();  // the contents are void: do not hold both at once
  QUARRY_TRY(buffer_, IoBuffer::Allocate(std::max(bytes, std::min(bytes + bytes / 8, slack_bytes_max))));
  return Status::Ok();
}

void DrawGlorot(Rng& rng, uint64_t fans, std::span<float> values) {
  const double bound = std::sqrt(6.0 / static_cast<double>(fans));
  for (float& value : values) value = static_cast<float>((2 * rng.Unit() - 1) * bound);
}

void LayerWork::Multiply(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& out,
                         int64_t piece_rows) {
  ForProducts(a, out, piece_rows,
              [&](const torch::Tensor& rows, torch::Tensor part) { at::mm_out(part, rows, b); });
}

void LayerWork::MultiplyAdd(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& out,
                            int64_t piece_rows) {
  ForProducts(a, out, piece_rows,
              [&](const torch::Tensor& rows, const torch::Tensor& part) { part.addmm_(rows, b); });
}

template <typename Product>
void LayerWork::ForProducts(const torch::Tensor& a, const torch::Tensor& out, int64_t piece_rows,
                            const Product& product) {
  if (!split_products_) return product(a, out);
  const auto pieces = CeilDiv(static_cast<uint64_t>(a.size(0)), static_cast<uint64_t>(piece_rows));
  pool_.Run(static_cast<uint32_t>(pieces), [&](uint32_t piece, unsigned) {
    const int64_t begin = piece * piece_rows;
    const int64_t end = std::min(a.size(0), begin + piece_rows);
    product(a.slice(0, begin, end), out.slice(0, begin, end));
  });
}

}  // namespace quarry
