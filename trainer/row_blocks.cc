#include "row_blocks.h"

#include <algorithm>
#include <utility>

#include "quarry/base/units.h"
#include "quarry/format/batch_view.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/scanner.h"
#include "quarry/trainer/aggregate.h"

namespace quarry {

// A scanner reads groups whole.
uint64_t FeatureBlocks::BlockRows(const FeatureGeometry& geometry, uint64_t block_bytes) {
  const uint64_t rows = ScratchRows::BlockRows(static_cast<uint32_t>(geometry.dim), block_bytes);
  return std::max(geometry.rows_per_group, RoundDown(rows, geometry.rows_per_group));
}

uint64_t FeatureBlocks::Bytes(const FeatureGeometry& geometry, uint64_t block_bytes) {
  const uint64_t rows = std::min(BlockRows(geometry, block_bytes), geometry.row_count);
  return IoBuffer::MappedBytes(rows * geometry.row_bytes) +
         IoBuffer::MappedBytes(FileScanner::kDepth * std::max<uint64_t>(kMiB, geometry.group_bytes));
}

FeatureBlocks::FeatureBlocks(IoBackend& backend, const FeatureTable& table, const RowOverlay& overlay,
                             RowNorm norm, uint64_t block_rows, IoBuffer encoded)
    : backend_(backend),
      table_(table),
      overlay_(overlay),
      norm_(norm),
      block_rows_(block_rows),
      touched_(overlay.TouchedRows()),
      encoded_(std::move(encoded)) {}

Result<std::unique_ptr<RowBlocks>> FeatureBlocks::Make(IoBackend& backend, const FeatureTable& table,
                                                       const RowOverlay& overlay, RowNorm norm,
                                                       uint64_t block_bytes) {
  const FeatureGeometry& geometry = table.geometry();
  const uint64_t rows = BlockRows(geometry, block_bytes);
  QUARRY_TRY(IoBuffer encoded, IoBuffer::Allocate(std::min(rows, geometry.row_count) * geometry.row_bytes));
  return std::unique_ptr<RowBlocks>(
      new FeatureBlocks(backend, table, overlay, norm, rows, std::move(encoded)));
}

Status FeatureBlocks::Read(uint64_t first, uint64_t end, std::span<float> rows) {
  const FeatureGeometry& geometry = table_.geometry();
  const uint64_t count = rows.size() / geometry.dim;
  if (!scanner_ || next_ != first || first + count > scanned_end_) {
    scanner_.reset();
    QUARRY_TRY(RowScanner scanner, RowScanner::Make(backend_, table_, first, end));
    scanner_.emplace(std::move(scanner));
    scanned_end_ = end;
    const uint64_t groups = CeilDiv(end, geometry.rows_per_group) - first / geometry.rows_per_group;
    read_bytes_ += groups * geometry.group_bytes;
  }
  const std::span<std::byte> encoded = encoded_.span().first(count * geometry.row_bytes);
  QUARRY_RETURN_IF_ERROR(scanner_->Read(encoded));
  next_ = first + count;
  QUARRY_RETURN_IF_ERROR(FoldRows(overlay_, touched_, first, geometry.row_bytes, encoded));
  DecodeRows({.rows = encoded,
              .stride_bytes = geometry.row_bytes,
              .element_type = geometry.element_type,
              .dim = static_cast<uint32_t>(geometry.dim)},
             norm_, 0, static_cast<uint32_t>(count), rows.data());
  return Status::Ok();
}

}  // namespace quarry
