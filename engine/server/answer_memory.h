// AnswerMemory: where the bulk answers of a session lie until its client releases them: in the session's
// region of shared memory, or, for a client that maps none, in memory of the server's that the session pays.
//
// An answer for which there is no room waits until others are released, in order of arrival; one that could
// never have room is refused. All calls are on the session's strand; what a place holds may be written to by
// any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_types.h"
#include "quarry/io/buffer.h"
#include "quarry/service/shared_region.h"
#include "range_allocator.h"

namespace quarry {

class AnswerMemory {
 public:
  struct Place {
    wire::Range range;  // in the region; region 0: in none
    std::span<std::byte> bytes;
    IoBuffer own;  // these two without a region
    MemoryBudget::Reservation reservation;
  };
  using Then = std::function<void(Result<std::shared_ptr<Place>>)>;

  // `region`: number `region_id` of the session, already paid; null: `budget` pays for each answer.
  AnswerMemory(uint32_t region_id, std::shared_ptr<SharedRegion> region, MemoryBudget& budget);

  // Calls `then` at once or from a later Free: with the place, aligned to wire::kLeaseAlignment, or with
  // kOutOfBudget, which names the least that would do. `request` names the wait.
  void Allocate(uint64_t request, uint64_t bytes, Then then);
  // Ends a wait without an answer; false when there is none of this request.
  bool Forget(uint64_t request);
  void Free(const std::shared_ptr<Place>& place);

 private:
  struct Waiter {
    uint64_t request;
    uint64_t bytes;
    Then then;
  };
  Result<std::shared_ptr<Place>> Take(uint64_t bytes);

  const uint32_t region_id_;
  const std::shared_ptr<SharedRegion> region_;
  MemoryBudget& budget_;
  std::optional<RangeAllocator> ranges_;  // the region's
  uint64_t held_ = 0;                     // places given out
  std::deque<Waiter> waiters_;
};

}  // namespace quarry
