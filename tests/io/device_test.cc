#include "quarry/io/device.h"

#include <gtest/gtest.h>

#include "io_util.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"

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

TEST_F(DeviceTest, AProbeTakesAboutTheTimeItIsGivenAndFindsPlausibleFigures) {
  WriteFile(folder_.Path("large"), RandomBytes(16 * kMiB, 1));
  const File file = backend_->Open(folder_.Path("large"), OpenMode::kReadDirect).value();
  if (!file.direct()) GTEST_SKIP() << "no direct reads on " << testing::TempDir();
  const double start_seconds = MonotonicSeconds();
  const Result<DeviceProfile> profile = MeasureDevice(*backend_, file, 0.1);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_LT(MonotonicSeconds() - start_seconds, 5);  // 0.1 on an idle machine
  EXPECT_GT(profile->random_reads_per_second, 10);
  EXPECT_LT(profile->random_reads_per_second, 1e8);
  EXPECT_GT(profile->sequential_bytes_per_second, 1e6);
  EXPECT_LT(profile->sequential_bytes_per_second, 1e12);
}

TEST_F(DeviceTest, WhatCannotBeMeasuredIsRefused) {
  WriteFile(folder_.Path("small"), RandomBytes(4096, 1));
  const File small = backend_->Open(folder_.Path("small"), OpenMode::kReadDirect).value();
  EXPECT_EQ(MeasureDevice(*backend_, small).status().code(), Code::kUnsupported);
  WriteFile(folder_.Path("large"), RandomBytes(16 * kMiB, 1));
  const File buffered = backend_->Open(folder_.Path("large"), OpenMode::kReadBuffered).value();
  EXPECT_EQ(MeasureDevice(*backend_, buffered).status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace quarry
