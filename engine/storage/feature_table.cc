#include "quarry/storage/feature_table.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/storage/scanner.h"

namespace quarry {

std::string RowsOfCell(const FeatureGeometry& geometry, uint64_t cell) {
  if (geometry.cell_is_row()) return fmt::format("row {}", cell);
  // A page of a table with page cells is one group.
  const uint64_t first = cell * geometry.rows_per_group;
  const uint64_t last = std::min(first + geometry.rows_per_group, geometry.file_rows) - 1;
  return first == last ? fmt::format("row {}", first) : fmt::format("rows {} to {}", first, last);
}

Result<std::unique_ptr<FeatureTable>> FeatureTable::Open(IoBackend& backend, const std::string& database_path,
                                                         const TableRecord& record,
                                                         std::span<const std::byte, 16> database_id) {
  std::unique_ptr<FeatureTable> table(new FeatureTable());
  QUARRY_TRY(table->geometry_, FeatureGeometry::Make(record.element_type, record.dim, record.row_count));
  table->geometry_.file_rows = record.file_rows();
  const FeatureGeometry& geometry = table->geometry_;
  QUARRY_TRY(table->data_, OpenDataFile(backend, database_path + "/" + record.file,
                                        {.kind = FileKind::kFeatureTable,
                                         .database_id = database_id,
                                         .generation = record.generation,
                                         .file_bytes = record.file_bytes}));
  const Superblock& superblock = table->data_.superblock;
  if (superblock.element_type != record.element_type || superblock.dim != record.dim ||
      superblock.row_count != record.file_rows()) {
    return MakeStatus(
        Code::kCorruption, "{}: page 0: {} rows of {} x {} where the catalog says {} rows of {} x {}",
        table->file().path(), superblock.row_count, superblock.dim, ElementTypeName(superblock.element_type),
        record.file_rows(), record.dim, ElementTypeName(record.element_type));
  }
  QUARRY_TRY(const Section rows, table->data_.Find("rows", geometry.data_bytes()));
  if (rows.offset != geometry.data_offset) {
    return MakeStatus(Code::kCorruption, "{}: footer: section \"rows\" at {} instead of {}",
                      table->file().path(), rows.offset, geometry.data_offset);
  }
  QUARRY_TRY(table->checksums_, LoadChecksums(backend, table->data_, rows));
  if (table->checksums_.size() != geometry.cell_count()) {
    return MakeStatus(Code::kCorruption, "{}: footer: {} checksums for {} cells", table->file().path(),
                      table->checksums_.size(), geometry.cell_count());
  }
  return table;
}

Status FeatureTable::VerifyCell(uint64_t cell, std::span<const std::byte> bytes) const {
  assert(cell < checksums_.size() && bytes.size() == geometry_.cell_bytes());
  const uint32_t computed = CellChecksum(bytes, cell);
  if (computed == checksums_[cell]) [[likely]] {
    return Status::Ok();
  }
  return ChecksumFault(data_, geometry_.CellOffset(cell), RowsOfCell(geometry_, cell), checksums_[cell],
                       computed);
}

Result<std::span<const std::byte>> FeatureTable::RowIn(uint64_t row, std::span<const std::byte> cell) const {
  QUARRY_RETURN_IF_ERROR(VerifyCell(geometry_.CellOfRow(row), cell));
  return cell.subspan(geometry_.RowOffset(row) - CellRange(row).offset, geometry_.row_bytes);
}

Status FeatureTable::ReadRows(IoBackend& backend, uint64_t first, uint64_t count, std::span<std::byte> out,
                              uint64_t buffer_bytes) const {
  assert(first + count <= geometry_.row_count && out.size() == count * geometry_.row_bytes);
  if (count == 0) return Status::Ok();
  QUARRY_TRY(RowScanner scanner, RowScanner::Make(backend, *this, first, first + count, buffer_bytes));
  return scanner.Read(out);
}

RowScanner::RowScanner(const FeatureTable& table, uint64_t first) : table_(&table), row_(first) {}
RowScanner::RowScanner(RowScanner&&) noexcept = default;
RowScanner& RowScanner::operator=(RowScanner&&) noexcept = default;
RowScanner::~RowScanner() = default;

Result<RowScanner> RowScanner::Make(IoBackend& backend, const FeatureTable& table, uint64_t first,
                                    uint64_t end, uint64_t buffer_bytes) {
  const FeatureGeometry& geometry = table.geometry();
  assert(first < end && end <= geometry.row_count);
  // Whole groups, so that no row and no cell straddles two pieces.
  const uint64_t piece_bytes =
      std::max(RoundDown(buffer_bytes / FileScanner::kDepth, geometry.group_bytes), geometry.group_bytes);
  const uint64_t first_group = first / geometry.rows_per_group;
  RowScanner rows(table, first);
  if (first >= geometry.file_rows) return rows;
  const uint64_t group_count =
      CeilDiv(std::min(end, geometry.file_rows), geometry.rows_per_group) - first_group;
  rows.piece_offset_ = geometry.data_offset + first_group * geometry.group_bytes;
  QUARRY_TRY(rows.scanner_, FileScanner::Make(backend, table.file(), rows.piece_offset_,
                                              group_count * geometry.group_bytes, piece_bytes));
  return rows;
}

Status RowScanner::Read(std::span<std::byte> out) {
  const FeatureGeometry& geometry = table_->geometry();
  for (; !out.empty(); ++row_, out = out.subspan(geometry.row_bytes)) {
    if (row_ >= geometry.file_rows) {
      std::memset(out.data(), 0, geometry.row_bytes);
      continue;
    }
    const uint64_t offset = geometry.RowOffset(row_);
    while (offset >= piece_offset_ + piece_.size()) {
      piece_offset_ += piece_.size();
      QUARRY_TRY(piece_, scanner_->Next());
    }
    const uint64_t cell = geometry.CellOfRow(row_);
    if (cell >= verified_end_) {
      const uint64_t at = geometry.CellOffset(cell) - piece_offset_;
      QUARRY_RETURN_IF_ERROR(table_->VerifyCell(cell, piece_.subspan(at, geometry.cell_bytes())));
      verified_end_ = cell + 1;
    }
    std::memcpy(out.data(), piece_.data() + (offset - piece_offset_), geometry.row_bytes);
  }
  return Status::Ok();
}

}  // namespace quarry
