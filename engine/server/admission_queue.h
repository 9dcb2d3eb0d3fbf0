// AdmissionQueue: who of those that wait for memory gets it next. A state machine without threads or clocks;
// Admission runs it.
//
// Who waits is served in order of arrival, but what fits now need not wait for what does not: a smaller one
// passes. That could go on for ever, so a waiter that was passed kPassesMax times has a turn: for kTurn
// nothing passes it, and what becomes free stays free for it. It is served if those in its way leave within
// that time. If not, it goes to the end of the queue: whoever waits behind it waits that long, and no longer.
//
//   waiting -> passed     a later one fitted, and was served [Next, Ask]
//   passed  -> turn       kPassesMax times, and nobody else has a turn
//   turn    -> served     enough is free [Next]
//   turn    -> waiting    kTurn is over: at the end of the queue [Next, Ask]
//   any     -> gone       [GiveUp]
//
// What is kept for a user (user_shares.h) is out of reach of the others' turns too.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "user_shares.h"

namespace quarry {

class AdmissionQueue {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kPassesMax = 8;
  static constexpr std::chrono::seconds kTurn{30};

  struct Request {
    uid_t user = 0;
    uint64_t bytes = 0;      // at most
    uint64_t bytes_min = 1;  // with less, rather none
  };
  struct Served {
    uint64_t ticket = 0;
    uid_t user = 0;
    uint64_t bytes = 0;
  };

  // `now` only ever grows.
  // What the request is given at once; 0: nothing. It is taken from `shares` by then.
  uint64_t Ask(const Request& request, UserShares& shares, Clock::time_point now);
  uint64_t Wait(const Request& request);  // a ticket
  // The next one that is served, or nobody. It is taken from `shares` by then.
  std::optional<Served> Next(UserShares& shares, Clock::time_point now);
  // What the ticket waited for; nothing when it has been served.
  std::optional<Request> GiveUp(uint64_t ticket);
  size_t size() const { return waiters_.size(); }

 private:
  struct Waiter {
    uint64_t ticket = 0;
    Request request;
    uint32_t passes = 0;
  };

  uint64_t Fitting(const Request& request, uint64_t ticket, const UserShares& shares) const;
  void EndTurn(Clock::time_point now);
  void CountPasses(size_t passed, Clock::time_point now);

  std::deque<Waiter> waiters_;
  uint64_t tickets_ = 0;
  uint64_t turn_ = 0;  // whose it is; 0: nobody's
  uid_t turn_user_ = 0;
  Clock::time_point turn_end_;
};

}  // namespace quarry
