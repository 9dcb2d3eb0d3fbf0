// Where the rows of a feature table lie in its .qft file. Pure arithmetic; docs/format.md "Feature table".
//
// Rows lie in *groups*: rows_per_group rows, `stride` bytes apart, in a whole number of pages. The group is
// as long as possible (up to 1 MiB) while each of its rows touches the fewest pages that a row of this size
// can touch, so a row smaller than a page never straddles two pages. Rows of less than a page are packed at a
// stride of RoundUp(row, 4); larger rows start at multiples of 512 bytes.
//
// A *cell* is what one checksum covers: the row when the stride is at least 512 bytes, else the whole page. A
// reader that wants to verify reads whole cells; both are single requests at the device's IOPS limit.
#pragma once

#include <cstdint>

#include "quarry/format/element_type.h"

namespace quarry {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kSectorBytes = 512;  // the least that any device reads

struct FeatureGeometry {
  ElementType element_type = ElementType::kFloat32;
  uint64_t dim = 0;  // elements of a row, at least 1
  uint64_t row_count = 0;
  // Rows that the file has: row_count, or fewer while rows of added nodes are versions alone (TableRecord::added_rows).
  // Offsets of a row behind them are those of the last one in the file: whoever reads it has an overlay, which has it.
  uint64_t file_rows = 0;
  uint64_t row_bytes = 0;     // RowBytes(element_type, dim)
  uint64_t stride_bytes = 0;  // distance of two rows in a group
  uint64_t rows_per_group = 0;
  uint64_t group_bytes = 0;           // a multiple of kPageBytes
  uint64_t data_offset = kPageBytes;  // where row 0 lies: after the superblock

  // kInvalidArgument for dim 0 or above 2^20, or for a table above 2^62 bytes.
  static Result<FeatureGeometry> Make(ElementType type, uint64_t dim, uint64_t row_count);

  uint64_t RowOffset(uint64_t row) const {
    row = InFile(row);
    return data_offset + row / rows_per_group * group_bytes + row % rows_per_group * stride_bytes;
  }
  uint64_t data_bytes() const { return (file_rows + rows_per_group - 1) / rows_per_group * group_bytes; }
  uint64_t data_end() const { return data_offset + data_bytes(); }

  // Cells (see above). The cell of row r: r itself, or r's page counted from data_offset.
  bool cell_is_row() const { return stride_bytes >= kSectorBytes; }
  uint64_t cell_count() const { return cell_is_row() ? file_rows : data_bytes() / kPageBytes; }
  uint64_t CellOfRow(uint64_t row) const {
    return cell_is_row() ? InFile(row) : (RowOffset(row) - data_offset) / kPageBytes;
  }
  uint64_t InFile(uint64_t row) const { return row < file_rows || file_rows == 0 ? row : file_rows - 1; }
  uint64_t CellOffset(uint64_t cell) const {
    return cell_is_row() ? RowOffset(cell) : data_offset + cell * kPageBytes;
  }
  uint64_t cell_bytes() const { return cell_is_row() ? row_bytes : kPageBytes; }
};

}  // namespace quarry
