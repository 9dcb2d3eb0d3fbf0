#include <gtest/gtest.h>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

uint64_t PagesTouched(const FeatureGeometry& geometry, uint64_t row) {
  const uint64_t first = geometry.RowOffset(row) / kPageBytes;
  const uint64_t last = (geometry.RowOffset(row) + geometry.row_bytes - 1) / kPageBytes;
  return last - first + 1;
}

TEST(GeometryTest, TheTableOfTheFormatHolds) {
  struct Expected {
    ElementType type;
    uint64_t dim, row_bytes, stride_bytes, rows_per_group, group_bytes;
    bool cell_is_row;
  };
  const Expected table[] = {
      {ElementType::kFloat32, 7, 28, 28, 146, 4096, false},
      {ElementType::kFloat32, 10, 40, 40, 102, 4096, false},
      {ElementType::kFloat32, 100, 400, 400, 10, 4096, false},
      {ElementType::kFloat32, 128, 512, 512, 8, 4096, true},
      {ElementType::kFloat32, 767, 3068, 3068, 1, 4096, true},
      {ElementType::kFloat32, 1024, 4096, 4096, 1, 4096, true},
      {ElementType::kFloat32, 1433, 5732, 6144, 2, 12288, true},
      {ElementType::kFloat32, 3703, 14812, 14848, 1, 16384, true},
      {ElementType::kFloat32, 8415, 33660, 33792, 4, 135168, true},
      {ElementType::kFloat16, 7, 14, 16, 256, 4096, false},
      {ElementType::kBfloat16, 128, 256, 256, 16, 4096, false},
      {ElementType::kInt8, 128, 132, 132, 31, 4096, false},
      {ElementType::kUint8, 1, 1, 4, 1024, 4096, false},
      {ElementType::kInt64, 1, 8, 8, 512, 4096, false},
      {ElementType::kFloat32, 1 << 20, 4 << 20, 4 << 20, 1, 4 << 20, true},
  };
  for (const Expected& e : table) {
    SCOPED_TRACE(fmt::format("{} x {}", ElementTypeName(e.type), e.dim));
    const FeatureGeometry geometry = FeatureGeometry::Make(e.type, e.dim, 1000).value();
    EXPECT_EQ(geometry.row_bytes, e.row_bytes);
    EXPECT_EQ(geometry.stride_bytes, e.stride_bytes);
    EXPECT_EQ(geometry.rows_per_group, e.rows_per_group);
    EXPECT_EQ(geometry.group_bytes, e.group_bytes);
    EXPECT_EQ(geometry.cell_is_row(), e.cell_is_row);
    EXPECT_EQ(geometry.data_offset, 4096u);
  }
}

void CheckLayout(ElementType type, uint64_t dim) {
  SCOPED_TRACE(fmt::format("{} x {}", ElementTypeName(type), dim));
  const uint64_t row_count = 700;
  const FeatureGeometry geometry = FeatureGeometry::Make(type, dim, row_count).value();
  const uint64_t pages_min = CeilDiv(geometry.row_bytes, kPageBytes);
  ASSERT_EQ(geometry.group_bytes % kPageBytes, 0u);
  uint64_t end = geometry.data_offset;
  for (uint64_t row = 0; row < row_count; ++row) {
    ASSERT_GE(geometry.RowOffset(row), end) << "row " << row << " overlaps the one before";
    ASSERT_EQ(PagesTouched(geometry, row), pages_min) << "row " << row;
    end = geometry.RowOffset(row) + geometry.row_bytes;
    const uint64_t cell = geometry.CellOfRow(row);
    ASSERT_LT(cell, geometry.cell_count());
    ASSERT_LE(geometry.CellOffset(cell), geometry.RowOffset(row));
    ASSERT_GE(geometry.CellOffset(cell) + geometry.cell_bytes(), end);
    if (geometry.row_bytes >= kPageBytes) {
      ASSERT_EQ(geometry.RowOffset(row) % kSectorBytes, 0u);
    }
  }
  ASSERT_LE(end, geometry.data_end());
  ASSERT_LT(geometry.data_end() - end, geometry.group_bytes + kPageBytes);
  // The group is as long as it can be: the row after it would touch a page more, or starts a page anyway.
  const uint64_t next = geometry.rows_per_group * geometry.stride_bytes;
  const uint64_t touched = (next + geometry.row_bytes - 1) / kPageBytes - next / kPageBytes + 1;
  ASSERT_TRUE(touched > pages_min || next % kPageBytes == 0 || next + geometry.stride_bytes > kMiB);
}

TEST(GeometryTest, RowsTouchTheFewestPagesAndNeverOverlap) {
  for (uint64_t dim = 1; dim < 3000; ++dim) CheckLayout(ElementType::kFloat32, dim);
  for (const uint64_t dim : {3703, 8415, 10000, 65536, 100000}) CheckLayout(ElementType::kFloat32, dim);
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  for (int i = 0; i < 2000; ++i) {
    const auto type = static_cast<ElementType>(1 + rng.Below(7));
    CheckLayout(type, 1 + rng.Below(uint64_t{1} << (1 + rng.Below(16))));
  }
}

TEST(GeometryTest, AnEmptyTableHasNoBytes) {
  const FeatureGeometry geometry = FeatureGeometry::Make(ElementType::kFloat32, 128, 0).value();
  EXPECT_EQ(geometry.data_bytes(), 0u);
  EXPECT_EQ(geometry.cell_count(), 0u);
}

TEST(GeometryTest, ImpossibleShapesAreRefused) {
  EXPECT_THAT(FeatureGeometry::Make(ElementType::kFloat32, 0, 1), IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(FeatureGeometry::Make(ElementType::kFloat32, (1 << 20) + 1, 1),
              IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(FeatureGeometry::Make(ElementType::kFloat32, 1 << 20, uint64_t{1} << 42),
              IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(FeatureGeometry::Make(ElementType::kUint8, 1, ~uint64_t{0}), IsStatus(Code::kInvalidArgument));
}

}  // namespace
}  // namespace quarry
