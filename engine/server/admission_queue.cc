#include "admission_queue.h"

#include <algorithm>
#include <utility>

namespace quarry {

// What the request would be given now; 0: nothing. While another waiter has its turn, whatever becomes free
// is for that one, except for the part that is kept for this request's user and that the waiter could not get
// anyway. Requests of the waiter's own user get nothing.
uint64_t AdmissionQueue::Fitting(const Request& request, uint64_t ticket, const UserShares& shares) const {
  uint64_t room = shares.Left(request.user);
  if (turn_ != 0 && turn_ != ticket) {
    room = turn_user_ == request.user ? 0 : std::min(room, shares.KeptLeft(request.user));
  }
  const uint64_t given = std::min(request.bytes, room);
  return given < request.bytes_min ? 0 : given;
}

// A turn that brought nothing sends its waiter to the end of the queue, with a clean count: those behind it
// have waited for it long enough.
void AdmissionQueue::EndTurn(Clock::time_point now) {
  if (turn_ == 0 || now < turn_end_) return;
  const auto found = std::ranges::find(waiters_, std::exchange(turn_, 0), &Waiter::ticket);
  if (found == waiters_.end()) return;
  Waiter last = std::move(*found);
  waiters_.erase(found);
  last.passes = 0;
  waiters_.push_back(std::move(last));
}

// Somebody behind the first `passed` waiters is served.
void AdmissionQueue::CountPasses(size_t passed, Clock::time_point now) {
  for (size_t i = 0; i < passed; ++i) {
    Waiter& waiter = waiters_[i];
    if (++waiter.passes < kPassesMax || turn_ != 0) continue;
    turn_ = waiter.ticket;
    turn_user_ = waiter.request.user;
    turn_end_ = now + kTurn;
  }
}

uint64_t AdmissionQueue::Ask(const Request& request, UserShares& shares, Clock::time_point now) {
  EndTurn(now);
  const uint64_t given = Fitting(request, 0, shares);
  if (given == 0) return 0;
  shares.Take(request.user, given);
  CountPasses(waiters_.size(), now);
  return given;
}

uint64_t AdmissionQueue::Wait(const Request& request) {
  waiters_.push_back({.ticket = ++tickets_, .request = request});
  return tickets_;
}

// The first waiter that fits is served, which counts as a pass for all before it.
std::optional<AdmissionQueue::Served> AdmissionQueue::Next(UserShares& shares, Clock::time_point now) {
  EndTurn(now);
  for (size_t i = 0; i < waiters_.size(); ++i) {
    const Waiter waiter = waiters_[i];
    const uint64_t given = Fitting(waiter.request, waiter.ticket, shares);
    if (given == 0) continue;
    shares.Take(waiter.request.user, given);
    waiters_.erase(waiters_.begin() + static_cast<ptrdiff_t>(i));
    if (turn_ == waiter.ticket) turn_ = 0;
    CountPasses(i, now);
    return Served{waiter.ticket, waiter.request.user, given};
  }
  return std::nullopt;
}

std::optional<AdmissionQueue::Request> AdmissionQueue::GiveUp(uint64_t ticket) {
  const auto found = std::ranges::find(waiters_, ticket, &Waiter::ticket);
  if (found == waiters_.end()) return std::nullopt;
  const Request request = found->request;
  waiters_.erase(found);
  if (turn_ == ticket) turn_ = 0;
  return request;
}

}  // namespace quarry
