#include "quarry/cache/gather.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "quarry/base/random.h"

namespace quarry {
namespace {

std::vector<std::byte> RandomBytes(size_t count, Rng& rng) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng());
  return bytes;
}

TEST(GatherRowsTest, AnyShapeOfTableGivesWhatACopyRowByRowGives) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const uint64_t row_bytes = 1 + rng.Below(seed % 5 == 0 ? 20'000 : 700);
    const uint64_t stride_bytes = row_bytes + (rng.Below(2) == 0 ? 0 : rng.Below(100));
    const uint64_t row_count = 1 + rng.Below(300);
    const auto rows = RandomBytes(row_count * stride_bytes, rng);
    std::vector<uint32_t> slots(rng.Below(4'000'000 / row_bytes));  // several parts for several threads
    for (uint32_t& slot : slots) slot = static_cast<uint32_t>(rng.Below(row_count));
    std::vector<std::byte> expected(slots.size() * row_bytes);
    for (size_t i = 0; i < slots.size(); i++) {
      std::memcpy(&expected[i * row_bytes], &rows[slots[i] * stride_bytes], row_bytes);
    }
    for (const unsigned threads : {0U, 1U, 2U, 5U}) {
      std::vector<std::byte> out(expected.size());
      GatherRows({rows.data(), stride_bytes, row_bytes}, slots, out, threads);
      ASSERT_TRUE(out == expected) << threads << " threads, rows of " << row_bytes << " bytes";
    }
  }
}

TEST(GatherRowsTest, NoSlotsMeansNoRows) {
  const std::vector<std::byte> before(512, std::byte{7});
  std::vector<std::byte> memory = before;
  for (const unsigned threads : {0U, 1U, 4U}) {
    GatherRows({nullptr, 512, 512}, {}, std::span(memory).first(0), threads);
    EXPECT_EQ(memory, before) << threads << " threads";
  }
}

}  // namespace
}  // namespace quarry
