#include "quarry/base/exhaustion.h"

#include <chrono>
#include <thread>

namespace quarry {
namespace {

constexpr unsigned kTriesMax = 100;
constexpr std::chrono::milliseconds kPause{10};

}  // namespace

Status OutOfMemory(std::string_view what) {
  return MakeStatus(
      Code::kOutOfBudget,
      "{}: the system has no more memory for this process: raise its limit (ulimit -v, the cgroup's "
      "memory.max), or ask for less",
      what);
}

Status Unexpected(std::string_view what, const std::exception& error) {
  return MakeStatus(Code::kInternal, "{}: {}", what, error.what());
}

void Insist(const std::function<void()>& work) {
  for (unsigned tries = 1;; ++tries) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      if (tries == kTriesMax) throw;
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace quarry
