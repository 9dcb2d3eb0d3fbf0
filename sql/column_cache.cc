#include "column_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace quarry::sql {

bool ColumnCache::Serves(const FeatureGeometry& geometry) {
  const bool is_integer =
      geometry.element_type == ElementType::kInt64 || geometry.element_type == ElementType::kUint8;
  return is_integer && geometry.dim == 1 &&
         geometry.rows_per_group * geometry.stride_bytes == geometry.group_bytes && !geometry.cell_is_row() &&
         std::has_single_bit(geometry.stride_bytes);
}

ColumnCache::ColumnCache(std::unique_ptr<PageCache> pages, const FeatureGeometry& geometry)
    : pages_(std::move(pages)),
      stride_bytes_(geometry.stride_bytes),
      row_bytes_(geometry.row_bytes),
      row_count_(geometry.row_count),
      piece_shift_(std::countr_zero(PageCache::kPieceBytes / geometry.stride_bytes)) {}

Result<std::unique_ptr<ColumnCache>> ColumnCache::Make(MemoryBudget& budget, const FeatureGeometry& geometry,
                                                       uint64_t capacity_bytes) {
  QUARRY_TRY(auto pages, PageCache::Make(budget, geometry.data_bytes(), capacity_bytes));
  return std::unique_ptr<ColumnCache>(new ColumnCache(std::move(pages), geometry));
}

void ColumnCache::Attach(std::shared_ptr<const TableView> table) {
  if (table == table_) return;
  table_ = std::move(table);
  const FeatureGeometry& geometry = table_->geometry();
  if (timestamp_ != table_->snapshot->timestamp) pages_->Clear();
  timestamp_ = table_->snapshot->timestamp;
  const FeatureTable& file = *table_->file;
  PageSection section{.file = &file.file(),
                      .block_bytes = file.block_bytes(),
                      .offset = geometry.data_offset,
                      .bytes = geometry.data_bytes(),
                      .verify = [&file](uint64_t page, std::span<const std::byte> bytes) -> Status {
                        for (; !bytes.empty(); ++page, bytes = bytes.subspan(kPageBytes)) {
                          QUARRY_RETURN_IF_ERROR(file.VerifyCell(page, bytes.first(kPageBytes)));
                        }
                        return Status::Ok();
                      }};
  pages_->Attach(std::move(section), [this](uint64_t first_byte, std::span<const std::byte> bytes) {
    return Pack(first_byte, bytes);
  });
}

void ColumnCache::Detach() {
  pages_->Detach();
  table_.reset();
}

Result<PageCache::Piece> ColumnCache::Pack(uint64_t first_byte, std::span<const std::byte> bytes) const {
  const uint64_t first = first_byte / stride_bytes_;
  const uint64_t count = std::min(bytes.size() / stride_bytes_, row_count_ - std::min(first, row_count_));
  std::vector<int64_t> numbers(count);
  std::vector<uint64_t> changed;
  const bool unchanged = table_->overlay->empty();
  for (uint64_t i = 0; i < count; ++i) {
    numbers[i] = Decode(bytes.data() + i * stride_bytes_);
    if (!unchanged && table_->overlay->Touched(first + i)) changed.push_back(first + i);
  }
  if (!changed.empty()) {
    QUARRY_RETURN_IF_ERROR(table_->overlay->Read(changed, [&](size_t i, std::span<const std::byte> value) {
      numbers[changed[i] - first] = Decode(value.data());
    }));
  }
  uint64_t largest = 0;
  for (const int64_t number : numbers) largest = std::max(largest, static_cast<uint64_t>(number) + 1);
  const Header header{.width = largest <= 0xff         ? 1U
                               : largest <= 0xffff     ? 2U
                               : largest <= 0xffffffff ? 4U
                                                       : 8U};
  std::shared_ptr<std::byte[]> piece(new std::byte[sizeof(header) + count * header.width]);
  std::memcpy(piece.get(), &header, sizeof(header));
  for (uint64_t i = 0; i < count; ++i) {
    const auto packed = static_cast<uint64_t>(numbers[i]) + 1;
    std::memcpy(piece.get() + sizeof(header) + i * header.width, &packed, header.width);  // little-endian
  }
  return PageCache::Piece(std::move(piece));
}

}  // namespace quarry::sql
