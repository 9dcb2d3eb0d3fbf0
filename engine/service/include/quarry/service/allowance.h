// Allowance: threads, or descriptors, that streams and sessions may take of those that the system lets the
// process have. A client that wants more than is left is refused before it has taken any: the last ones,
// which are not part of it, are for the catalog, for the files of writes and for helpers that come and go. So
// no number of streams makes a write fail.
//
// Thread-safe. Outlives its claims.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"

namespace quarry {

class Allowance {
 public:
  using Claim = MemoryBudget::Reservation;  // gives back what it is of

  // `left`: what the system leaves the process now, of which `spare` are kept; `most`: in any case. `what`:
  // "threads". `remedy`: what raises it.
  Allowance(uint64_t left, uint64_t spare, uint64_t most, std::string_view what, std::string_view remedy)
      : counts_(std::min(left - std::min(left, spare), most)), what_(what), remedy_(remedy) {}

  // kOutOfBudget when fewer than `count` are left.
  Result<Claim> Take(uint64_t count, std::string_view who) {
    auto claim = counts_.Reserve(count, who);
    if (claim.ok()) return claim;
    return MakeStatus(
        Code::kOutOfBudget,
        "{} takes {} {}, and of the server's {} for streams and clients {} are left: close others, or {}",
        who, count, what_, limit(), limit() - used(), remedy_);
  }

  uint64_t limit() const { return counts_.limit_bytes(); }
  uint64_t used() const { return counts_.used_bytes(); }

 private:
  MemoryBudget counts_;
  const std::string what_, remedy_;
};

}  // namespace quarry
