// Matrices of .npy files that have columns first, as np.asfortranarray, a transposed array and a data frame's
// to_numpy() are saved: read rows first.
#include <algorithm>
#include <cstring>
#include <utility>

#include "npy_reader.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kTurnedBytes = 4 * kMiB;  // rows at a time; a piece of each column is read for them

class RowsOfColumns final : public ByteSource {
 public:
  RowsOfColumns(NpyArray::Open open, uint64_t rows, uint64_t columns, uint64_t item_bytes, uint64_t offset)
      : open_(std::move(open)),
        rows_(rows),
        columns_(columns),
        item_bytes_(item_bytes),
        row_(offset / (columns * item_bytes)),
        skipped_(offset % (columns * item_bytes)) {}

  Result<size_t> Read(std::span<std::byte> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      if (at_ == turned_.size()) {
        if (row_ == rows_) break;
        QUARRY_RETURN_IF_ERROR(TurnRows());
      }
      const size_t n = std::min(out.size() - filled, turned_.size() - at_);
      std::memcpy(out.data() + filled, turned_.data() + at_, n);
      at_ += n;
      filled += n;
    }
    return filled;
  }
  Status Skip(uint64_t bytes) override {
    const uint64_t here = std::min<uint64_t>(bytes, turned_.size() - at_);
    at_ += here;
    const uint64_t behind = skipped_ + bytes - here;
    if (at_ < turned_.size() || behind == 0) return Status::Ok();
    row_ = std::min(rows_, row_ + behind / (columns_ * item_bytes_));
    skipped_ = behind % (columns_ * item_bytes_);
    return Status::Ok();
  }
  uint64_t consumed_bytes() const override { return consumed_; }

 private:
  Status TurnRows() {
    const uint64_t row_bytes = columns_ * item_bytes_;
    const uint64_t count = std::min(rows_ - row_, std::max<uint64_t>(1, kTurnedBytes / row_bytes));
    turned_.resize(count * row_bytes);
    piece_.resize(count * item_bytes_);
    for (uint64_t column = 0; column < columns_; column++) {
      QUARRY_TRY(const auto source, open_((column * rows_ + row_) * item_bytes_));
      QUARRY_TRY(const size_t got, source->Read(piece_));
      if (got < piece_.size()) {  // the reader says that the array ends early
        turned_.clear();
        at_ = 0;
        row_ = rows_;
        return Status::Ok();
      }
      for (uint64_t i = 0; i < count; i++) {
        std::memcpy(turned_.data() + i * row_bytes + column * item_bytes_, piece_.data() + i * item_bytes_,
                    item_bytes_);
      }
    }
    row_ += count;
    consumed_ += turned_.size();
    at_ = std::exchange(skipped_, 0);
    return Status::Ok();
  }

  const NpyArray::Open open_;
  const uint64_t rows_, columns_, item_bytes_;
  uint64_t row_;      // the first that is not in turned_
  uint64_t skipped_;  // bytes of it that nobody wants
  std::vector<std::byte> turned_, piece_;
  size_t at_ = 0;  // in turned_
  uint64_t consumed_ = 0;
};

}  // namespace

void ReadRowsFirst(NpyArray& array) {
  if (!array.header.fortran) return;
  array.open_stored = std::move(array.open);
  array.open = [stored = array.open_stored, rows = array.extent(0), columns = array.extent(1),
                item_bytes = uint64_t{array.header.type.bytes}](
                   uint64_t offset) -> Result<std::unique_ptr<ByteSource>> {
    return std::unique_ptr<ByteSource>(
        std::make_unique<RowsOfColumns>(stored, rows, columns, item_bytes, offset));
  };
}

NpyArray Transposed(const NpyArray& array) {
  NpyArray turned{.name = array.name, .header = array.header, .open = array.open_stored};
  std::swap(turned.header.shape[0], turned.header.shape[1]);
  turned.header.fortran = false;
  return turned;
}

}  // namespace quarry
