#include "quarry/io/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "io_util.h"
#include "quarry/base/units.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::HasOneLineWith;

// Bytes in huge pages of the mapping that holds `address`, as the kernel counts them.
uint64_t HugeBytesAround(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    uint64_t kibibytes = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      inside = begin <= at && at < end;
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %" SCNu64, &kibibytes) == 1) {
      return kibibytes * kKiB;
    }
  }
  return 0;
}

TEST(IoBufferTest, MemoryIsZeroedAndAlignedForDirectReads) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, kMiB - 1, kMiB, 2 * kMiB, 5 * kMiB + 1}) {
    SCOPED_TRACE(bytes);
    ASSERT_OK_AND_ASSIGN(IoBuffer buffer, IoBuffer::Allocate(bytes));
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_GE(buffer.mapped_bytes(), bytes);
    const uint64_t alignment = bytes >= kMiB ? 2 * kMiB : 4096;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % alignment, 0u);
    EXPECT_EQ(buffer.mapped_bytes() % alignment, 0u);
    EXPECT_TRUE(std::ranges::all_of(buffer.span(), [](std::byte b) { return b == std::byte{0}; }));
    std::ranges::fill(std::span(buffer.data(), buffer.mapped_bytes()), std::byte{1});
  }
}

TEST(IoBufferTest, MovingHandsTheMemoryOver) {
  IoBuffer first = IoBuffer::Allocate(3 * kMiB).value();
  std::byte* const data = first.data();
  IoBuffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT: what a moved-from buffer is
  EXPECT_EQ(first.size(), 0u);
  second = IoBuffer::Allocate(1).value();
  EXPECT_NE(second.data(), data);
}

TEST(IoBufferTest, ABufferThatClaimsHugePagesHasThem) {
  const IoBuffer buffer = IoBuffer::Allocate(16 * kMiB).value();
  if (!buffer.huge_pages()) GTEST_SKIP() << "this system gives none";
  EXPECT_GE(HugeBytesAround(buffer.data()), 14 * kMiB);
}

TEST(IoBufferTest, MoreThanTheSystemHasIsRefused) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 2, size_t{1} << 60}) {
    EXPECT_THAT(IoBuffer::Allocate(bytes), IsStatus(Code::kOutOfBudget)) << bytes;
  }
}

TEST(IoBufferDeathTest, WithoutHugePagesItSaysSoOnceAndWorks) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto allocate_without = [] {
    // The kernel then takes the advice and does not follow it, as when memory is fragmented.
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) std::exit(2);
    const IoBuffer first = IoBuffer::Allocate(4 * kMiB).value();
    const IoBuffer second = IoBuffer::Allocate(4 * kMiB).value();
    second.data()[4 * kMiB - 1] = std::byte{1};
    std::exit(first.huge_pages() || second.huge_pages() ? 1 : 0);
  };
  EXPECT_EXIT(allocate_without(), testing::ExitedWithCode(0), testing::Truly([](const std::string& output) {
                return HasOneLineWith(output, "no huge pages");
              }));
}

}  // namespace
}  // namespace quarry
