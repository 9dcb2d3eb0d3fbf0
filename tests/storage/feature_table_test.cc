#include "quarry/storage/feature_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "quarry/base/units.h"
#include "storage/small_store.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::RandomBytes;
using testing_util::ScratchFolder;

constexpr std::array<std::byte, 16> kDatabaseId{std::byte{7}};

class FeatureTableTest : public testing::Test {
 protected:
  // Writes `rows` and returns what the catalog would say of the file.
  Result<TableRecord> Write(ElementType type, uint64_t dim, std::span<const std::byte> rows,
                            IoBackend& backend) {
    TableRecord record{.name = "t", .file = "t.qft", .element_type = type, .dim = dim};
    record.row_count = rows.size() / RowBytes(type, dim);
    std::filesystem::remove(folder_.path() + "/t.qft");
    QUARRY_TRY(const FeatureGeometry geometry, FeatureGeometry::Make(type, dim, record.row_count));
    QUARRY_TRY(const auto writer,
               FeatureTableWriter::Create(backend, folder_.path() + "/t.qft", geometry, kDatabaseId, 1));
    QUARRY_RETURN_IF_ERROR(writer->Append(rows));
    QUARRY_TRY(record.file_bytes, writer->Finish());
    return record;
  }

  Result<std::unique_ptr<FeatureTable>> Open(const TableRecord& record) {
    return FeatureTable::Open(*backend_, folder_.path(), record, kDatabaseId);
  }

  ScratchFolder folder_;
  std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
};

TEST_F(FeatureTableTest, RowsOfAnyShapeComeBackAsTheyWereWritten) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  struct Shape {
    ElementType type;
    uint64_t dim, rows;
  };
  const Shape shapes[] = {{ElementType::kFloat32, 7, 1000},   {ElementType::kFloat32, 128, 3000},
                          {ElementType::kFloat32, 767, 50},   {ElementType::kFloat32, 1433, 401},
                          {ElementType::kFloat32, 3703, 100}, {ElementType::kFloat32, 8415, 90},
                          {ElementType::kInt8, 5, 3000},      {ElementType::kUint8, 1, 5000},
                          {ElementType::kInt64, 1, 1},        {ElementType::kFloat16, 4000, 33},
                          {ElementType::kFloat32, 300000, 3}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(fmt::format("{} rows of {} x {}", shape.rows, shape.dim, ElementTypeName(shape.type)));
    const uint64_t row_bytes = RowBytes(shape.type, shape.dim);
    const std::vector<std::byte> rows = RandomBytes(shape.rows * row_bytes, shape.dim);
    const TableRecord record = Write(shape.type, shape.dim, rows, *backend_).value();
    EXPECT_EQ(record.file_bytes, std::filesystem::file_size(folder_.path() + "/t.qft"));
    const auto table = Open(record).value();
    for (int round = 0; round < 8; ++round) {
      const uint64_t first = round == 0 ? 0 : rng.Below(shape.rows);
      const uint64_t count = round == 0 ? shape.rows : rng.Below(shape.rows - first + 1);
      std::vector<std::byte> out(count * row_bytes);
      const Status status = table->ReadRows(*backend_, first, count, out, 64 << 10);
      ASSERT_OK(status);
      ASSERT_TRUE(
          std::equal(out.begin(), out.end(), rows.begin() + static_cast<ptrdiff_t>(first * row_bytes)))
          << first << "+" << count;
    }
  }
}

TEST_F(FeatureTableTest, AnEmptyTableCanBeWrittenAndOpened) {
  const TableRecord record = Write(ElementType::kFloat32, 128, {}, *backend_).value();
  const auto table = Open(record).value();
  EXPECT_OK(table->ReadRows(*backend_, 0, 0, {}));
}

TEST_F(FeatureTableTest, ChecksumsThatOutgrowTheirBufferLieWhereTheFooterSays) {
  // 70,000 rows with a checksum each need more than the writer's 256 KiB.
  const std::vector<std::byte> rows = RandomBytes(70000 * 512, 12);
  const TableRecord record = Write(ElementType::kFloat32, 128, rows, *backend_).value();
  const auto table = Open(record).value();
  EXPECT_EQ(table->resident_bytes(), 70000 * sizeof(uint32_t));
  std::vector<std::byte> out(rows.size());
  ASSERT_OK(table->ReadRows(*backend_, 0, 70000, out));
  EXPECT_EQ(out, rows);
}

TEST_F(FeatureTableTest, ACellVerifiesOnlyInItsOwnPlace) {
  const std::vector<std::byte> rows = RandomBytes(20 * 512, 13);
  const auto table = Open(Write(ElementType::kFloat32, 128, rows, *backend_).value()).value();
  const std::span<const std::byte> third = std::span(rows).subspan(3 * 512, 512);
  EXPECT_OK(table->VerifyCell(3, third));
  const Status status = table->VerifyCell(4, third);
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(std::string(status.message()), HasSubstr("t.qft: page 1 (offset 6144), row 4:"));
}

TEST_F(FeatureTableTest, ADamagedPageNamesItsRowsAndIsNotReturned) {
  const std::vector<std::byte> rows = RandomBytes(1000 * 28, 14);
  const TableRecord record = Write(ElementType::kFloat32, 7, rows, *backend_).value();
  const auto table = Open(record).value();
  {
    std::fstream file(folder_.path() + "/t.qft", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 * 3 + 5);
    file.put(static_cast<char>(std::to_integer<int>(rows[2 * 146 * 28 + 5]) ^ 1));
  }
  std::vector<std::byte> out(rows.size());
  const Status status = table->ReadRows(*backend_, 0, 1000, out);
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(std::string(status.message()), HasSubstr("page 3 (offset 12288), rows 292 to 437"));
  out.resize(100 * 28);
  EXPECT_OK(table->ReadRows(*backend_, 0, 100, out)) << "rows of other pages are unharmed";
}

TEST_F(FeatureTableTest, AWriterTakesExactlyTheRowsItWasMadeFor) {
  const FeatureGeometry geometry = FeatureGeometry::Make(ElementType::kFloat32, 4, 10).value();
  const std::vector<std::byte> rows = RandomBytes(11 * 16, 15);
  auto writer =
      FeatureTableWriter::Create(*backend_, folder_.path() + "/w.qft", geometry, kDatabaseId, 1).value();
  ASSERT_OK(writer->Append(std::span(rows).first(9 * 16)));
  EXPECT_EQ(writer->Finish().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(writer->Append(std::span(rows).first(2 * 16)).code(), Code::kInvalidArgument);
  EXPECT_EQ(FeatureTableWriter::Create(*backend_, folder_.path() + "/w.qft", geometry, kDatabaseId, 1)
                .status()
                .code(),
            Code::kAlreadyExists);
}

TEST_F(FeatureTableTest, WhatContradictsTheCatalogIsCorruption) {
  const TableRecord record = Write(ElementType::kFloat32, 128, RandomBytes(20 * 512, 16), *backend_).value();
  const auto refused = [&](auto change, const char* words) {
    TableRecord wrong = record;
    change(wrong);
    const Status status = Open(wrong).status();
    EXPECT_EQ(status.code(), Code::kCorruption);
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  };
  refused([](TableRecord& r) { r.row_count = 21; }, "20 rows of 128 x float32 where the catalog says 21");
  refused([](TableRecord& r) { r.dim = 64; }, "where the catalog says 20 rows of 64");
  refused([](TableRecord& r) { r.element_type = ElementType::kInt32; }, "int32");
  refused([](TableRecord& r) { r.generation = 2; }, "generation 1 where the catalog says 2");
  refused([](TableRecord& r) { r.file_bytes += 4096; }, "truncated");
  refused([](TableRecord& r) { r.file = "u.qft"; }, "missing");
  std::array<std::byte, 16> other{};
  EXPECT_THAT(std::string(FeatureTable::Open(*backend_, folder_.path(), record, other).status().message()),
              HasSubstr("another database"));
}

TEST_F(FeatureTableTest, AForeignOrTruncatedFileSaysWhatItIs) {
  const TableRecord record = Write(ElementType::kFloat32, 128, RandomBytes(20 * 512, 17), *backend_).value();
  const std::string path = folder_.path() + "/t.qft";
  std::filesystem::resize_file(path, 5000);
  EXPECT_THAT(std::string(Open(record).status().message()), HasSubstr("5000 bytes where the catalog says"));
  std::filesystem::resize_file(path, 100);
  EXPECT_THAT(std::string(Open(record).status().message()), HasSubstr("only 100 bytes"));
  std::ofstream(path, std::ios::trunc) << "\x93NUMPY and so on";
  const Status status = Open(record).status();
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(std::string(status.message()), HasSubstr("NumPy .npy"));
}

TEST_F(FeatureTableTest, EveryFailedWriteReachesTheCaller) {
  const std::vector<std::byte> rows = RandomBytes(3000 * 512, 18);
  FaultBackend faulty(*backend_);
  for (const FaultKind kind : {FaultKind::kCreate, FaultKind::kWrite, FaultKind::kSync}) {
    for (uint64_t at = 1; at < 50; ++at) {
      SCOPED_TRACE(fmt::format("operation {} of kind {}", at, static_cast<int>(kind)));
      faulty.SetPlans({{.kind = kind, .at = at, .error = ENOSPC}});
      const uint64_t strikes = faulty.strikes();
      const Result<TableRecord> result = Write(ElementType::kFloat32, 128, rows, faulty);
      if (faulty.strikes() == strikes) {
        EXPECT_OK(result);
        EXPECT_GT(at, 1u);
        break;
      }
      EXPECT_EQ(result.status().code(), Code::kNoSpace);
    }
  }
}

TEST_F(FeatureTableTest, EveryFailedReadReachesTheCallerAndShortOnesAreContinued) {
  const std::vector<std::byte> rows = RandomBytes(9000 * 512, 19);
  const TableRecord record = Write(ElementType::kFloat32, 128, rows, *backend_).value();
  FaultBackend faulty(*backend_);
  for (const int error : {EIO, 0}) {
    for (uint64_t at = 1; at < 100; ++at) {
      SCOPED_TRACE(fmt::format("read {}, errno {}", at, error));
      faulty.SetPlans({{.kind = FaultKind::kRead, .at = at, .error = error}});
      const uint64_t strikes = faulty.strikes();
      const auto table = FeatureTable::Open(faulty, folder_.path(), record, kDatabaseId);
      std::vector<std::byte> out(rows.size());
      const Status status = table.ok() ? (*table)->ReadRows(faulty, 0, 9000, out, 512 << 10) : table.status();
      if (status.ok()) {
        ASSERT_EQ(out, rows);
      }
      if (faulty.strikes() == strikes) {
        EXPECT_OK(status);
        EXPECT_GT(at, 5u);
        break;
      }
      if (error != 0) {
        EXPECT_EQ(status.code(), Code::kIoError);
      }
    }
  }
}

}  // namespace
}  // namespace quarry
