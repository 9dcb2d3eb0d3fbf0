#include "quarry/base/units.h"

#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace quarry {
namespace {

TEST(UnitsTest, DecimalAndBinarySuffixesDiffer) {
  EXPECT_EQ(ParseBytes("2GB", 0).value(), 2'000'000'000u);
  EXPECT_EQ(ParseBytes("2GiB", 0).value(), 2 * kGiB);
  EXPECT_EQ(ParseBytes("512MiB", 0).value(), 512 * kMiB);
  EXPECT_EQ(ParseBytes("512 mib", 0).value(), 512 * kMiB);
  EXPECT_EQ(ParseBytes("1.5KiB", 0).value(), 1536u);
  EXPECT_EQ(ParseBytes("4096", 0).value(), 4096u);
  EXPECT_EQ(ParseBytes("0", 0).value(), 0u);
}

TEST(UnitsTest, PercentIsAShareOfTheWhole) {
  EXPECT_EQ(ParseBytes("10%", 2000).value(), 200u);
  EXPECT_EQ(ParseBytes("0.5%", 2000).value(), 10u);
  EXPECT_EQ(ParseBytes("100%", 2000).value(), 2000u);
}

TEST(UnitsTest, NonsenseIsRefusedAndNamed) {
  for (const char* text :
       {"", "GB", "-1", "-1GB", "1.2.3", "10 parsecs", "inf", "nan", "1e3", "99999999999TB", "%"}) {
    const auto result = ParseBytes(text, 100);
    EXPECT_THAT(result, IsStatus(Code::kUsage)) << text;
    EXPECT_NE(result.status().message().find(text), std::string_view::npos);
  }
}

TEST(UnitsTest, CountsUseDecimalMultiples) {
  EXPECT_EQ(ParseCount("1M").value(), 1'000'000u);
  EXPECT_EQ(ParseCount("2.5k").value(), 2500u);
  EXPECT_EQ(ParseCount("17").value(), 17u);
  EXPECT_THAT(ParseCount("1MiB"), IsStatus(Code::kUsage));
  EXPECT_THAT(ParseCount(""), IsStatus(Code::kUsage));
}

TEST(UnitsTest, FormattedSizesReadNaturally) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes(10 * kGiB), "10.0 GiB");
  EXPECT_EQ(FormatBytes(200 * kMiB), "200 MiB");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1234567), "1.23 M");
}

}  // namespace
}  // namespace quarry
