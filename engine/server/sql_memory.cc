#include "sql_memory.h"

#include <algorithm>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kShare = 8;  // one part in so many of the server's budget
constexpr uint64_t kBytesMax = 4 * kGiB;
constexpr uint64_t kBytesMin = 16 * kMiB;  // some connections with the caches that they begin with

}  // namespace

SqlMemory::SqlMemory(uint64_t budget_bytes, MemoryBudget& granted, Admission& admission,
                     std::shared_ptr<SqlRunner> runner)
    : bytes_(std::min(budget_bytes / kShare, kBytesMax)),
      granted_(granted),
      admission_(admission),
      runner_(std::move(runner)) {}

Result<SqlMemory::Share> SqlMemory::Take() {
  MutexLock lock(mutex_);
  if (Share taken = taken_.lock()) return taken;
  const uint64_t bytes_min = std::min(bytes_, kBytesMin);
  const Result<Admission::Grant> grant =
      admission_.Ask({.user = UserShares::kNobody, .bytes = bytes_, .bytes_min = bytes_min});
  if (!grant.ok()) {
    return MakeStatus(
        Code::kOutOfBudget,
        "SQL takes at least {} of what sessions share, and {} of the {} are free: open a session "
        "of less, or wait for others to leave",
        FormatBytes(bytes_min), FormatBytes(granted_.available_bytes()), FormatBytes(granted_.limit_bytes()));
  }
  runner_->LimitMemory((*grant)->limit_bytes());
  taken_ = *grant;
  return Share(*grant);
}

}  // namespace quarry
