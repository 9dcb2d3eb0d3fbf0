// A piece of work under a system that has no more threads: at the first start, at the second, and so on, once
// and from then on.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "quarry/base/thread.h"
#include "support/status_matchers.h"

namespace quarry {

// Calls `work` with the k-th start of a thread failing, for k = 1, 1 + stride, ... until all of them succeed.
// Each time it must succeed or be refused with a sentence that speaks of threads; then `after` is called,
// without faults. Returns how many times it was refused.
inline uint64_t FailEveryThreadStart(const std::function<Status()>& work,
                                     const std::function<void()>& after = {}, uint64_t stride = 1) {
  uint64_t refused = 0;
  for (const uint64_t count : {uint64_t{1}, UINT64_MAX}) {
    for (uint64_t first = 1;; first += stride) {
      SCOPED_TRACE(testing::Message() << "start " << first << (count == 1 ? " alone" : " and all behind it"));
      FailThreadStarts(first, count);
      const Status status = work();
      const uint64_t failed = FailedThreadStarts();
      FailThreadStarts(0);
      if (!status.ok()) {
        ++refused;
        EXPECT_THAT(status, IsStatus(Code::kOutOfBudget, testing::HasSubstr("thread")));
      }
      if (after) after();
      if (failed == 0) {
        EXPECT_OK(status);
        break;
      }
      if (testing::Test::HasFatalFailure()) return refused;
    }
  }
  return refused;
}

}  // namespace quarry
