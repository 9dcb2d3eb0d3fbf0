// StagedPut: the pieces that have come of a put (docs/protocol.md, "Puts in pieces"); PutTurn: which of them
// have what there is one of in a database: the large write, and the right to change the graph.
//
// A client that sends a piece and falls silent would keep all others from theirs. Once one of them asks, a put of which
// nothing has come for kSilence is given up.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/service/piece_put.h"

namespace quarry {

struct StagedPut {
  using Clock = std::chrono::steady_clock;

  explicit StagedPut(uint64_t of) : number(of) {}

  const uint64_t number;
  // The strand's.
  uint64_t pieces = 0;
  bool dropped = false;  // nothing follows
  // Since when no piece is at work; 0: one is.
  std::atomic<Clock::rep> idle_since{0};

  // The tasks' that write, of this session and of one that gives it up.
  Mutex mutex;
  std::unique_ptr<PiecePut> put QUARRY_GUARDED_BY(mutex);
  Status ended QUARRY_GUARDED_BY(mutex);  // not OK: why nothing is added any more

  bool at_work() const { return idle_since == 0; }
  void Rest(Clock::time_point now) { idle_since = now.time_since_epoch().count(); }
  void End(Status why) {
    MutexLock lock(mutex);
    put.reset();
    if (ended.ok()) ended = std::move(why);
  }
};

// Thread-safe.
class PutTurn {
 public:
  static constexpr std::chrono::seconds kSilence{10};
  using Begin = std::function<Result<std::unique_ptr<PiecePut>>()>;

  // Begins `put`, whose mutex the caller does not hold, in the place of those that have been silent. kBusy when another
  // is under way. `now` only ever grows.
  Result<std::unique_ptr<PiecePut>> Take(const std::shared_ptr<StagedPut>& put, const Begin& begin,
                                         StagedPut::Clock::time_point now) {
    MutexLock lock(mutex_);
    auto begun = begin();
    if (begun.status().code() == Code::kBusy && EndSilent(now)) begun = begin();
    std::erase_if(current_, [](const std::weak_ptr<StagedPut>& other) { return other.expired(); });
    if (begun.ok()) current_.push_back(put);
    return begun;
  }

 private:
  bool EndSilent(StagedPut::Clock::time_point now) QUARRY_REQUIRES(mutex_) {
    bool ended = false;
    for (const std::weak_ptr<StagedPut>& other : current_) ended = EndSilent(other.lock(), now) || ended;
    return ended;
  }
  static bool EndSilent(const std::shared_ptr<StagedPut>& current, StagedPut::Clock::time_point now) {
    if (current == nullptr) return false;
    const StagedPut::Clock::rep since = current->idle_since;
    const StagedPut::Clock::time_point end{StagedPut::Clock::duration(since) + kSilence};
    if (since == 0 || now < end) return false;
    current->End(
        MakeStatus(Code::kBusy,
                   "put {} was given up: no piece of it came for {} s, and another put waited: begin at "
                   "1",
                   current->number, kSilence.count()));
    return true;
  }

  Mutex mutex_;
  std::vector<std::weak_ptr<StagedPut>> current_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
