#include "quarry/base/status.h"
#include "support/status_matchers.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace quarry {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return MakeStatus(Code::kInvalidArgument, "{} is odd", value);
  return value / 2;
}

Result<int> Quarter(int value) {
  QUARRY_TRY(int half, Half(value));
  QUARRY_TRY(int quarter, Half(half));
  return quarter;
}

TEST(StatusTest, OkIsTheDefaultAndHasNoMessage) {
  Status status;
  EXPECT_OK(status);
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "ok");
}

TEST(StatusTest, AnErrorKeepsItsCodeAndMessage) {
  const Status status = MakeStatus(Code::kCorruption, "{}: page {}", "x.qft", 7);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "x.qft: page 7");
  EXPECT_EQ(status.ToString(), "corruption: x.qft: page 7");
}

TEST(StatusTest, TryPassesTheFirstErrorUp) {
  EXPECT_EQ(Quarter(12).value(), 3);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
  EXPECT_EQ(Quarter(7).status().message(), "7 is odd");
}

TEST(StatusTest, AResultCarriesMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  ASSERT_OK(result);
  std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

TEST(StatusTest, ErrnoBecomesACodeThatACallerCanActOn) {
  EXPECT_EQ(ErrnoStatus(ENOSPC, "write", "f").code(), Code::kNoSpace);
  EXPECT_EQ(ErrnoStatus(EDQUOT, "write", "f").code(), Code::kNoSpace);
  EXPECT_EQ(ErrnoStatus(ENOENT, "open", "f").code(), Code::kNotFound);
  EXPECT_EQ(ErrnoStatus(EEXIST, "open", "f").code(), Code::kAlreadyExists);
  EXPECT_EQ(ErrnoStatus(EIO, "read", "f").code(), Code::kIoError);
  EXPECT_EQ(ErrnoStatus(EIO, "read", "a/b").message(), "cannot read a/b: Input/output error");
}

TEST(StatusTest, ExitCodesAreOneExceptForUsageAndCorruption) {
  EXPECT_EQ(ExitCode(Code::kOk), 0);
  EXPECT_EQ(ExitCode(Code::kUsage), 2);
  EXPECT_EQ(ExitCode(Code::kCorruption), 3);
  for (Code code :
       {Code::kInvalidArgument, Code::kNotFound, Code::kAlreadyExists, Code::kBusy, Code::kIoError,
        Code::kNoSpace, Code::kOutOfBudget, Code::kUnsupported, Code::kCancelled, Code::kInternal}) {
    EXPECT_EQ(ExitCode(code), 1) << CodeName(code);
  }
}

}  // namespace
}  // namespace quarry
