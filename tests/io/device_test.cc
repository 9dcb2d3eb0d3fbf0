#include "quarry/io/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "io_util.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::RandomBytes;
using testing_util::ScratchFolder;
using testing_util::WriteFile;

class DeviceTest : public testing::Test {
 protected:
  ScratchFolder folder_;
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
};

TEST_F(DeviceTest, AProbeFindsPlausibleFigures) {
  WriteFile(folder_.Path("large"), RandomBytes(16 * kMiB, 1));
  const File file = backend_->Open(folder_.Path("large"), OpenMode::kReadDirect).value();
  if (!file.direct()) GTEST_SKIP() << "no direct reads on " << testing::TempDir();
  ASSERT_OK_AND_ASSIGN(const DeviceProfile profile, MeasureDevice(*backend_, file, 0.1));
  // Two a second were seen on a disk that others kept busy.
  EXPECT_GT(profile.random_reads_per_second, 0);
  EXPECT_LT(profile.random_reads_per_second, 1e8);
  EXPECT_GT(profile.sequential_bytes_per_second, 0);
  EXPECT_LT(profile.sequential_bytes_per_second, 1e12);
}

TEST_F(DeviceTest, WhatCannotBeMeasuredIsRefused) {
  WriteFile(folder_.Path("small"), RandomBytes(4096, 1));
  const File small = backend_->Open(folder_.Path("small"), OpenMode::kReadDirect).value();
  EXPECT_THAT(MeasureDevice(*backend_, small), IsStatus(Code::kUnsupported));
  WriteFile(folder_.Path("large"), RandomBytes(16 * kMiB, 1));
  const File buffered = backend_->Open(folder_.Path("large"), OpenMode::kReadBuffered).value();
  EXPECT_THAT(MeasureDevice(*backend_, buffered), IsStatus(Code::kUnsupported));
}

class RatesTest : public DeviceTest {
 protected:
  void SetUp() override {
    WriteFile(folder_.Path("table"), RandomBytes(16 * kMiB, 1));
    table_ = backend_->Open(folder_.Path("table"), OpenMode::kReadDirect).value();
    if (!table_.direct()) GTEST_SKIP() << "no direct reads on " << testing::TempDir();
    std::filesystem::create_directory(scratch_);
  }
  RatesProbe Probe(const File* file) const {
    return {.file = file,
            .row_bytes = 700,
            .scratch_directory = scratch_,
            .scratch_bytes = kScratchBytesMin,
            .seconds_max = 0.2};
  }

  const std::string scratch_ = folder_.Path("scratch");
  File table_;
};

TEST_F(RatesTest, AreMeasuredOnAFileOrOnOneOfItsOwnAndNothingIsLeft) {
  for (const File* file : {static_cast<const File*>(&table_), static_cast<const File*>(nullptr)}) {
    SCOPED_TRACE(file == nullptr ? "scratch" : "table");
    ASSERT_OK_AND_ASSIGN(const DeviceRates rates, MeasureRates(*backend_, Probe(file)));
    EXPECT_GT(rates.random_reads_per_second, 0);
    EXPECT_LT(rates.random_reads_per_second, 1e8);
    for (const double bytes : {rates.sequential_bytes_per_second, rates.write_bytes_per_second}) {
      EXPECT_GT(bytes, 0);
      EXPECT_LT(bytes, 1e12);
    }
    const uint32_t block_bytes = LogicalBlockBytes(table_);
    std::vector<uint32_t> sizes;
    for (const ReadRate& rate : rates.random_reads) {
      sizes.push_back(rate.request_bytes);
      EXPECT_GT(rate.reads_per_second, 0);
    }
    std::vector<uint32_t> expected = {512, 4096, 16384, 65536, 262144};
    std::erase_if(expected, [&](uint32_t bytes) { return bytes < block_bytes; });
    EXPECT_EQ(sizes, expected);
    EXPECT_TRUE(std::filesystem::is_empty(scratch_));
  }
}

TEST_F(RatesTest, ReplacesWhatAKilledProcessLeft) {
  WriteFile(scratch_ + "/calibrate.tmp", RandomBytes(100, 1));
  EXPECT_OK(MeasureRates(*backend_, Probe(&table_)));
  EXPECT_TRUE(std::filesystem::is_empty(scratch_));
}

TEST_F(RatesTest, EveryFaultIsReportedAndLeavesNothing) {
  FaultBackend faulty(*backend_);
  for (const auto& [kind, error] : {std::pair(FaultKind::kCreate, EACCES),
                                    {FaultKind::kWrite, ENOSPC},
                                    {FaultKind::kSync, EIO},
                                    {FaultKind::kRead, EIO}}) {
    for (const uint64_t at : {1, 2, 5}) {
      if (kind == FaultKind::kCreate && at > 1) continue;
      SCOPED_TRACE(fmt::format("kind {} at {}", static_cast<int>(kind), at));
      faulty.SetPlans({{.kind = kind, .at = at, .error = error}});
      const Status status = MeasureRates(faulty, Probe(nullptr)).status();
      EXPECT_EQ(status.code(), error == ENOSPC ? Code::kNoSpace : Code::kIoError) << status.ToString();
      EXPECT_TRUE(std::filesystem::is_empty(scratch_));
    }
  }
}

TEST(MedianTest, IsTheMiddleOne) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({100, 2, 1, 3, 4}), 3);
}

}  // namespace
}  // namespace quarry
