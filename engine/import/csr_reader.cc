// Sparse matrices in CSR form (scipy's names: indptr, indices, data), as dense rows or as edges.
#include <algorithm>
#include <cstring>

#include "npy_reader.h"

namespace quarry {
namespace {

// Walks the entries of the matrix row by row; both users need only this much of it.
class CsrWalk {
 public:
  static Result<CsrWalk> Open(const NpyArray& indptr, const NpyArray& indices) {
    if (indptr.dims() != 1 || indptr.extent(0) == 0 || indices.dims() != 1) {
      return MakeStatus(Code::kInvalidArgument, "{} has shape {} and {} has {}; CSR needs [N + 1] and [nnz]",
                        indptr.name, indptr.ShapeText(), indices.name, indices.ShapeText());
    }
    CsrWalk walk;
    walk.indptr_name_ = indptr.name;
    walk.indices_name_ = indices.name;
    walk.row_count_ = indptr.extent(0) - 1;
    walk.entry_count_ = indices.extent(0);
    QUARRY_TRY(walk.indptr_, IntCursor::Open(indptr, 0, indptr.extent(0), IntRole::kId));
    QUARRY_TRY(walk.indices_, IntCursor::Open(indices, 0, indices.extent(0), IntRole::kId));
    QUARRY_TRY(const int64_t first, walk.NextOf(*walk.indptr_, walk.bounds_));
    if (first != 0)
      return MakeStatus(Code::kInvalidArgument, "{}: starts with {}, not 0", indptr.name, first);
    if (walk.row_count_ == 0 && walk.entry_count_ > 0) {
      return MakeStatus(Code::kInvalidArgument, "{}: no rows for {} entries", indptr.name, walk.entry_count_);
    }
    return walk;
  }

  // Ends the current row, returns where the next one ends. REQUIRES: rows are left.
  Result<uint64_t> NextRow() {
    QUARRY_TRY(const int64_t end, NextOf(*indptr_, bounds_));
    const bool last = row_ + 1 == row_count_;
    if (end < static_cast<int64_t>(row_end_) || end > static_cast<int64_t>(entry_count_) ||
        (last && end != static_cast<int64_t>(entry_count_))) {
      return MakeStatus(Code::kInvalidArgument, "{}: row {} ends at entry {}, after {} and of {} in {}",
                        indptr_name_, row_, end, row_end_, entry_count_, indices_name_);
    }
    row_++;
    row_end_ = static_cast<uint64_t>(end);
    return row_end_;
  }

  Result<uint64_t> NextColumn() {
    QUARRY_TRY(const int64_t column, NextOf(*indices_, columns_));
    if (column < 0) {
      return MakeStatus(Code::kInvalidArgument, "{}: entry {} has the negative column {}", indices_name_,
                        entry_, column);
    }
    entry_++;
    return static_cast<uint64_t>(column);
  }

  uint64_t row_count() const { return row_count_; }
  uint64_t entry_count() const { return entry_count_; }
  uint64_t rows_begun() const { return row_; }
  uint64_t entries_taken() const { return entry_; }
  uint64_t row_end() const { return row_end_; }
  const std::string& indptr_name() const { return indptr_name_; }
  const std::string& indices_name() const { return indices_name_; }
  uint64_t consumed_bytes() const { return indptr_->consumed_bytes() + indices_->consumed_bytes(); }

 private:
  struct Window {
    std::vector<int64_t> items;
    size_t at = 0;
  };
  CsrWalk() = default;

  Result<int64_t> NextOf(IntCursor& cursor, Window& window) {
    if (window.at == window.items.size()) {
      window.items.resize(kStepItems);
      QUARRY_TRY(const size_t n, cursor.Read(window.items));
      window.items.resize(n);
      window.at = 0;
      if (n == 0) return MakeStatus(Code::kInvalidArgument, "{}: ends early", indptr_name_);
    }
    return window.items[window.at++];
  }

  std::string indptr_name_, indices_name_;
  std::unique_ptr<IntCursor> indptr_, indices_;
  Window bounds_, columns_;
  uint64_t row_count_ = 0;
  uint64_t entry_count_ = 0;
  uint64_t row_ = 0;      // rows begun
  uint64_t row_end_ = 0;  // where the row begun last ends
  uint64_t entry_ = 0;    // entries taken
};

class CsrEdges final : public EdgeReader {
 public:
  CsrEdges(CsrWalk walk, uint64_t bytes_total) : walk_(std::move(walk)), bytes_total_(bytes_total) {}

  Result<size_t> Read(std::span<Edge> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      if (walk_.entries_taken() == walk_.row_end()) {
        if (walk_.rows_begun() == walk_.row_count()) break;
        QUARRY_TRY([[maybe_unused]] const uint64_t row_end, walk_.NextRow());
        continue;
      }
      QUARRY_TRY(const uint64_t column, walk_.NextColumn());
      out[filled++] = {walk_.rows_begun() - 1, column};
    }
    return filled;
  }
  std::optional<uint64_t> count() const override { return walk_.entry_count(); }
  uint64_t bytes_read() const override { return walk_.consumed_bytes(); }
  uint64_t bytes_total() const override { return bytes_total_; }
  std::string Position(uint64_t edge) const override {
    return fmt::format("{}: entry {}", walk_.indices_name(), edge);
  }

 private:
  CsrWalk walk_;
  const uint64_t bytes_total_;
};

class CsrRows final : public RowReader {
 public:
  CsrRows(CsrWalk walk, std::unique_ptr<FloatCursor> data, uint64_t dim)
      : walk_(std::move(walk)), data_(std::move(data)), dim_(dim), name_(walk_.indptr_name()) {}

  ElementType element_type() const override { return ElementType::kFloat32; }
  uint64_t dim() const override { return dim_; }
  uint64_t row_count() const override { return walk_.row_count(); }
  std::string Position(uint64_t row) const override { return fmt::format("{}: row {}", name_, row); }

  Result<size_t> Read(std::span<std::byte> out) override {
    const size_t row_bytes = dim_ * sizeof(float);
    row_.resize(dim_);
    size_t filled = 0;
    for (; (filled + 1) * row_bytes <= out.size() && walk_.rows_begun() < walk_.row_count(); filled++) {
      QUARRY_TRY(const uint64_t end, walk_.NextRow());
      std::fill(row_.begin(), row_.end(), 0.0f);
      while (walk_.entries_taken() < end) QUARRY_RETURN_IF_ERROR(TakeEntry());
      std::memcpy(out.data() + filled * row_bytes, row_.data(), row_bytes);
    }
    return filled;
  }

 private:
  Status TakeEntry() {
    QUARRY_TRY(const uint64_t column, walk_.NextColumn());
    if (column >= dim_) {
      return MakeStatus(
          Code::kInvalidArgument,
          "{}: row {} has column {}, but rows have {} columns; state the right number with --dim",
          walk_.indices_name(), walk_.rows_begun() - 1, column, dim_);
    }
    if (at_ == values_.size()) {  // as many values as columns, so there is one
      values_.resize(kStepItems);
      QUARRY_TRY(const size_t n, data_->Read(values_));
      values_.resize(n);
      at_ = 0;
    }
    row_[column] += values_[at_++];  // scipy's meaning of a column that a row names twice
    return Status::Ok();
  }

  CsrWalk walk_;
  const std::unique_ptr<FloatCursor> data_;
  const uint64_t dim_;
  const std::string name_;
  std::vector<float> row_;
  std::vector<float> values_;
  size_t at_ = 0;
};

}  // namespace

Result<std::unique_ptr<EdgeReader>> MakeCsrEdgeReader(const NpyArray& indptr, const NpyArray& indices) {
  QUARRY_TRY(CsrWalk walk, CsrWalk::Open(indptr, indices));
  const uint64_t bytes = indptr.header.data_bytes() + indices.header.data_bytes();
  return std::unique_ptr<EdgeReader>(std::make_unique<CsrEdges>(std::move(walk), bytes));
}

Result<std::unique_ptr<RowReader>> MakeCsrRowReader(const CsrArrays& csr, uint64_t dim) {
  QUARRY_TRY(CsrWalk walk, CsrWalk::Open(csr.indptr, csr.indices));
  if (csr.data.header.shape != csr.indices.header.shape) {
    return MakeStatus(Code::kInvalidArgument, "{} has shape {}, but {} has {}; CSR needs one value per index",
                      csr.data.name, csr.data.ShapeText(), csr.indices.name, csr.indices.ShapeText());
  }
  QUARRY_TRY(std::unique_ptr<FloatCursor> data, FloatCursor::Open(csr.data));
  return std::unique_ptr<RowReader>(std::make_unique<CsrRows>(std::move(walk), std::move(data), dim));
}

Result<uint64_t> CsrColumnCount(const NpyArray& indices) {
  QUARRY_TRY(const auto cursor, IntCursor::Open(indices, 0, indices.header.items, IntRole::kId));
  std::vector<int64_t> columns(kStepItems);
  int64_t largest = -1;
  while (true) {
    QUARRY_TRY(const size_t n, cursor->Read(columns));
    if (n == 0) return static_cast<uint64_t>(largest) + 1;
    largest =
        std::max(largest, *std::max_element(columns.begin(), columns.begin() + static_cast<ptrdiff_t>(n)));
  }
}

}  // namespace quarry
