// The measuring of devices, on the fake one: what is enqueued is ordered and given back; its rates mean nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "quarry/gpu/rates.h"
#include "support/fake_device.h"
#include "support/status_matchers.h"

namespace quarry::gpu {
namespace {

using testing_util::FakeDevice;

constexpr RateOptions kSmall = {
    .host_bytes = 64 << 10, .table_bytes = 64 << 10, .gathered_bytes = 16 << 10, .repeats = 2};

Status MeasureAll(Device& device) {
  QUARRY_TRY(const std::unique_ptr<RateMeter> meter, RateMeter::Make(device, kSmall));
  for (const uint64_t bytes : {uint64_t{256} << 10, uint64_t{1} << 20}) {
    for (const auto measure : {&RateMeter::CopyIn, &RateMeter::CopyOut, &RateMeter::CopyBothWays}) {
      QUARRY_TRY(const double rate, (meter.get()->*measure)(bytes));
      EXPECT_GT(rate, 0);
    }
  }
  for (const uint64_t row_bytes : {64, 512, 3072}) {
    for (const auto measure : {&RateMeter::Gather, &RateMeter::GatherMapped}) {
      QUARRY_TRY(const double rate, (meter.get()->*measure)(row_bytes));
      EXPECT_GT(rate, 0);
    }
  }
  QUARRY_TRY(const double within, meter->CopyWithin());
  EXPECT_GT(within, 0);
  return Status::Ok();
}

TEST(RateMeterTest, MeasuresAndGivesBack) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    FakeDevice device({.seed = seed});
    ASSERT_OK(MeasureAll(device));
    EXPECT_EQ(device.misuses(), "");
    EXPECT_EQ(device.held(), 0);
  }
}

TEST(RateMeterTest, EveryCallMayFail) {
  FakeDevice whole({.seed = 1});
  ASSERT_OK(MeasureAll(whole));
  const uint64_t calls = whole.calls();
  uint64_t unheard = 0;  // waits in the end
  for (uint64_t i = 0; i < 100; ++i) {
    const uint64_t fail_at =
        i < 30 ? i + 1 : 30 + (calls - 30) * (i - 29) / 71;  // each of the first, then some
    FakeDevice device({.seed = i + 1, .fail_at = fail_at});
    if (MeasureAll(device).ok()) ++unheard;
    device.Drain();
    EXPECT_EQ(device.held(), 0) << "call " << fail_at;
  }
  EXPECT_LE(unheard, 2);
}

TEST(MeasureGpuTest, GivesEveryRate) {
  FakeDevice device({.seed = 1});
  ASSERT_OK_AND_ASSIGN(const GpuRates rates, MeasureGpu(device, kSmall));
  EXPECT_EQ(rates.name, device.facts().name);
  EXPECT_GT(rates.copy_in_bytes_per_second, 0);
  EXPECT_GT(rates.copy_out_bytes_per_second, 0);
  EXPECT_GT(rates.copy_within_bytes_per_second, 0);
  for (const auto* const rows : {&rates.mapped_rows, &rates.gathered_rows}) {
    EXPECT_EQ(rows->size(), 5);
    for (const RowRate& rate : *rows) EXPECT_GT(rate.bytes_per_second, 0);
  }
  EXPECT_EQ(device.misuses(), "");
  EXPECT_EQ(device.held(), 0);
}

// The kernel reads rows at random, and all numbers are within the table.
TEST(RateMeterTest, RowsAreRandom) {
  FakeDevice device({.seed = 1});
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RateMeter> meter, RateMeter::Make(device, kSmall));
  ASSERT_OK_AND_ASSIGN(const uint32_t* const rows, meter->RandomRows(200, 100));
  std::vector<uint32_t> seen(rows, rows + 200);  // the fake device's memory is the processor's
  EXPECT_LT(*std::max_element(seen.begin(), seen.end()), 100);
  std::sort(seen.begin(), seen.end());
  EXPECT_GT(std::unique(seen.begin(), seen.end()) - seen.begin(), 50);
}

TEST(HostPagesTest, AreWholeAndMove) {
  ASSERT_OK_AND_ASSIGN(HostPages pages, HostPages::Map(1));
  EXPECT_EQ(pages.bytes().size(), 2 << 20);
  std::byte* const at = pages.bytes().data();
  const HostPages moved = std::move(pages);
  EXPECT_EQ(moved.bytes().data(), at);
  EXPECT_EQ(moved.bytes()[12345], std::byte{1});
  EXPECT_FALSE(HostPages::Map(uint64_t{1} << 60).ok());
}

}  // namespace
}  // namespace quarry::gpu
