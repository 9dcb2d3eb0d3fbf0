// What tests ask of a Status or a Result<T>: that it succeeded, or which error it holds. A failure prints the status.
//
//   ASSERT_OK(catalog->Close());
//   ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(backend, path));     // declares `store` from a Result
//   EXPECT_THAT(Store::Open(backend, ""), IsStatus(Code::kNotFound, HasSubstr("no database")));
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>

#include "quarry/base/status.h"

namespace quarry {

// Found by gtest when it prints an operand of an assertion.
inline void PrintTo(const Status& status, std::ostream* out) { *out << status.ToString(); }
template <typename T>
void PrintTo(const Result<T>& result, std::ostream* out) {
  *out << result.status().ToString();
}

namespace testing_util {

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
Status StatusOf(const Result<T>& result) {
  return result.status();
}

template <typename T>
testing::AssertionResult Succeeds(const char* expression, const T& outcome) {
  if (outcome.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << expression << " gives " << StatusOf(outcome).ToString();
}

class StatusMatcher {
 public:
  using is_gtest_matcher = void;

  StatusMatcher(Code code, testing::Matcher<std::string> message)
      : code_(code), message_(std::move(message)) {}

  template <typename T>
  bool MatchAndExplain(const T& outcome, std::ostream*) const {
    const Status& status = StatusOf(outcome);
    return status.code() == code_ && message_.Matches(std::string(status.message()));
  }
  void DescribeTo(std::ostream* out) const {
    *out << "is the error '" << CodeName(code_) << "', whose message ";
    message_.DescribeTo(out);
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "is not the error '" << CodeName(code_) << "', or its message is not one that ";
    message_.DescribeTo(out);
  }

 private:
  Code code_;
  testing::Matcher<std::string> message_;
};

}  // namespace testing_util

// Matches a Status or a Result<T> with this code, whose message satisfies `message`.
inline testing_util::StatusMatcher IsStatus(Code code, testing::Matcher<std::string> message = testing::_) {
  return {code, std::move(message)};
}

}  // namespace quarry

#define ASSERT_OK(expr) ASSERT_PRED_FORMAT1(::quarry::testing_util::Succeeds, expr)
#define EXPECT_OK(expr) EXPECT_PRED_FORMAT1(::quarry::testing_util::Succeeds, expr)

// Variadic, since commas in template arguments and braces divide the arguments of a macro.
#define ASSERT_OK_AND_ASSIGN(declaration, ...) \
  ASSERT_OK_AND_ASSIGN_INNER(QUARRY_CONCAT(quarry_result_, __COUNTER__), declaration, __VA_ARGS__)
#define ASSERT_OK_AND_ASSIGN_INNER(temporary, declaration, ...)                              \
  auto temporary = (__VA_ARGS__);                                                            \
  if (!temporary.ok()) FAIL() << #__VA_ARGS__ << " gives " << temporary.status().ToString(); \
  declaration = std::move(temporary).value()
