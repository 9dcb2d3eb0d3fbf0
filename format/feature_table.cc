#include "quarry/format/feature_table.h"

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kDimMax = uint64_t{1} << 20;
constexpr uint64_t kTableBytesMax = uint64_t{1} << 62;
// Bounds what a scan must hold at once. A longer group would save less than a page in a mebibyte.
constexpr uint64_t kGroupBytesMax = uint64_t{1} << 20;

// The longest run of rows, `stride` apart from a page boundary on, in which each touches the fewest pages.
uint64_t RowsPerGroup(uint64_t row_bytes, uint64_t stride) {
  const uint64_t slack = RoundUp(row_bytes, kPageBytes) - row_bytes;
  uint64_t rows = 1;
  while ((rows + 1) * stride <= kGroupBytesMax) {
    const uint64_t start = rows * stride % kPageBytes;
    if (start == 0 || start > slack) break;  // the pattern repeats, or this row would touch a page more
    ++rows;
  }
  return rows;
}

}  // namespace

Result<FeatureGeometry> FeatureGeometry::Make(ElementType type, uint64_t dim, uint64_t row_count) {
  if (dim == 0 || dim > kDimMax) {
    return MakeStatus(Code::kInvalidArgument, "a row of {} elements cannot be stored: a table has 1 to {}",
                      dim, kDimMax);
  }
  FeatureGeometry geometry;
  geometry.element_type = type;
  geometry.dim = dim;
  geometry.row_count = geometry.file_rows = row_count;
  geometry.row_bytes = RowBytes(type, dim);
  geometry.stride_bytes = geometry.row_bytes < kPageBytes ? RoundUp(geometry.row_bytes, 4)
                                                          : RoundUp(geometry.row_bytes, kSectorBytes);
  geometry.rows_per_group = RowsPerGroup(geometry.row_bytes, geometry.stride_bytes);
  geometry.group_bytes = RoundUp(geometry.rows_per_group * geometry.stride_bytes, kPageBytes);
  if (row_count / geometry.rows_per_group > kTableBytesMax / geometry.group_bytes - 1) {
    return MakeStatus(Code::kInvalidArgument, "{} rows of {} bytes exceed the {} bytes that a table can have",
                      row_count, geometry.row_bytes, kTableBytesMax);
  }
  return geometry;
}

}  // namespace quarry
