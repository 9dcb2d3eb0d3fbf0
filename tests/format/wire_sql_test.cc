// Rows of SQL as bytes: whatever they are cut into, and whatever comes in their place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "quarry/base/random.h"
#include "quarry/format/wire_sql.h"
#include "support/status_matchers.h"

namespace quarry::wire {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSqlSeed = 90'125;

SqlValue RandomValue(Rng& rng) {
  switch (rng.Below(5)) {
    case 0:
      return std::monostate();
    case 1:
      return static_cast<int64_t>(rng());
    case 2:
      return rng.Unit();
    case 3:
      return std::string(rng.Below(40), static_cast<char>(rng.Below(256)));
    default:
      return std::vector<std::byte>(rng.Below(40), static_cast<std::byte>(rng.Below(256)));
  }
}

bool IsSame(const SqlValueView& view, const SqlValue& value) {
  if (view.index() != value.index()) return false;
  if (const auto* text = std::get_if<std::string>(&value)) return std::get<std::string_view>(view) == *text;
  if (const auto* blob = std::get_if<std::vector<std::byte>>(&value)) {
    return std::ranges::equal(std::get<std::span<const std::byte>>(view), *blob);
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::get<int64_t>(view) == *integer;
  if (const auto* real = std::get_if<double>(&value)) return std::get<double>(view) == *real;
  return true;
}

TEST(WireSqlTest, ParametersComeBackEqual) {
  SCOPED_TRACE(kSqlSeed);
  Rng rng(kSqlSeed);
  for (int round = 0; round < 200; ++round) {
    std::vector<SqlValue> values(rng.Below(20));
    for (SqlValue& value : values) value = RandomValue(rng);
    const std::vector<std::byte> bytes = SqlValueBytes(values);
    ASSERT_OK_AND_ASSIGN(const auto back, ReadSqlValues(bytes, static_cast<uint32_t>(values.size())));
    ASSERT_EQ(back, values);
    EXPECT_FALSE(ReadSqlValues(bytes, static_cast<uint32_t>(values.size() + 1)).ok());
    if (!values.empty()) {
      EXPECT_FALSE(ReadSqlValues(bytes, static_cast<uint32_t>(values.size() - 1)).ok());
      EXPECT_FALSE(
          ReadSqlValues(std::span(bytes).first(bytes.size() - 1), static_cast<uint32_t>(values.size())).ok());
    }
  }
}

TEST(WireSqlTest, RowsComeBackEqualHoweverTheyAreCut) {
  SCOPED_TRACE(kSqlSeed);
  Rng rng(kSqlSeed);
  for (int round = 0; round < 100; ++round) {
    const size_t columns = 1 + rng.Below(6);
    std::vector<SqlValue> values(columns * rng.Below(30));
    for (SqlValue& value : values) value = RandomValue(rng);
    const std::vector<std::byte> bytes = SqlValueBytes(values);
    std::span<const std::byte> left = bytes;
    SqlRowReader reader(columns);
    size_t read = 0;
    while (!left.empty()) {
      const size_t page = std::min<size_t>(left.size(), 1 + rng.Below(50));
      reader.Add(left.first(page));
      left = left.subspan(page);
      while (reader.Next().value()) {
        for (size_t i = 0; i < columns; ++i) ASSERT_TRUE(IsSame(reader.value(i), values.at(read++)));
      }
    }
    EXPECT_EQ(read, values.size());
    EXPECT_TRUE(reader.empty());
  }
}

TEST(WireSqlTest, ARealBringsItsText) {
  std::vector<std::byte> bytes;
  AppendSqlHead(0.1, "0.1", bytes);
  SqlRowReader reader(1);
  reader.Add(std::span(bytes).first(bytes.size() - 1));
  EXPECT_FALSE(reader.Next().value()) << "its text is cut short";
  reader.Add(std::span(bytes).last(1));
  ASSERT_TRUE(reader.Next().value());
  EXPECT_EQ(std::get<double>(reader.value(0)), 0.1);
  EXPECT_EQ(reader.text(0), "0.1");
}

TEST(WireSqlTest, WhatIsNoRowIsCorruption) {
  const auto fault = [](size_t columns, const std::vector<uint8_t>& bytes) {
    SqlRowReader reader(columns);
    reader.Add(std::as_bytes(std::span(bytes)));
    return reader.Next().status();
  };
  EXPECT_THAT(fault(1, {5}).ToString(), HasSubstr("a value of type 5"));
  EXPECT_THAT(fault(2, {0, 255}).ToString(), HasSubstr("a value of type 255"));
  EXPECT_THAT(fault(1, {3, 1, 0, 0, 16}).ToString(), HasSubstr("a value of 268435457 bytes"));
  EXPECT_THAT(fault(1, {4, 255, 255, 255, 255}).ToString(), HasSubstr("a value of 4294967295 bytes"));
  EXPECT_THAT(fault(0, {0}).ToString(), HasSubstr("rows of a statement that has none"));
  EXPECT_OK(fault(0, {}));
  EXPECT_OK(fault(1, {4, 0, 0, 0, 16})) << "it may still come";
}

TEST(WireSqlTest, RowsHaveALimit) {
  SqlRowReader reader(8);
  std::vector<std::byte> head;
  const std::vector<std::byte> blob(64 << 20);
  AppendSqlHead(std::span<const std::byte>(blob), "", head);
  Status status;
  for (int i = 0; i < 5 && status.ok(); ++i) {
    reader.Add(head);
    reader.Add(blob);
    status = reader.Next().status();
  }
  EXPECT_THAT(status, IsStatus(Code::kCorruption, HasSubstr("a row of more than 268435456 bytes")));
}

}  // namespace
}  // namespace quarry::wire
