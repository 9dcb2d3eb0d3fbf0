#include "admission.h"

#include <algorithm>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {

// A grant, and what it holds of the whole.
struct Admission::Held {
  Held(std::shared_ptr<Shared> whole, MemoryBudget::Reservation reserved)
      : shared(std::move(whole)), reservation(std::move(reserved)), budget(reservation.bytes()) {}
  ~Held() {
    reservation.Release();
    Serve(shared);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  const std::shared_ptr<Shared> shared;
  MemoryBudget::Reservation reservation;
  MemoryBudget budget;
};

Result<Admission::Grant> Admission::Take(const std::shared_ptr<Shared>& shared, uint64_t bytes,
                                         uint64_t bytes_min) {
  MemoryBudget& budget = shared->budget;
  const uint64_t granted = std::min(bytes, budget.available_bytes());
  if (granted < bytes_min || granted == 0) {
    return MakeStatus(
        Code::kOutOfBudget,
        "a session of at least {} was asked for, and {} of the {} that sessions share are free: ask "
        "for less, or wait for others to leave",
        FormatBytes(bytes_min), FormatBytes(budget.available_bytes()), FormatBytes(budget.limit_bytes()));
  }
  QUARRY_TRY(MemoryBudget::Reservation reservation, budget.Reserve(granted, "a session"));
  auto held = std::make_shared<Held>(shared, std::move(reservation));
  return Grant(held, &held->budget);
}

Result<Admission::Grant> Admission::Ask(uint64_t bytes, uint64_t bytes_min) {
  MutexLock lock(shared_->mutex);
  if (shared_->waiters.empty()) return Take(shared_, bytes, bytes_min);
  return MakeStatus(Code::kOutOfBudget, "{} sessions wait for memory: wait too, or come back later",
                    shared_->waiters.size());
}

uint64_t Admission::Wait(uint64_t bytes, uint64_t bytes_min, Answer answer) {
  uint64_t ticket = 0;
  {
    MutexLock lock(shared_->mutex);
    ticket = ++shared_->tickets;
    shared_->waiters.push_back({ticket, bytes, bytes_min, std::move(answer)});
  }
  Serve(shared_);
  return ticket;
}

Status Admission::GiveUp(uint64_t ticket) {
  Status status;
  Waiter waiter;  // destroyed behind the lock: its answer may own anything
  {
    MutexLock lock(shared_->mutex);
    const auto found = std::ranges::find(shared_->waiters, ticket, &Waiter::ticket);
    if (found == shared_->waiters.end()) return Status::Ok();
    waiter = std::move(*found);
    shared_->waiters.erase(found);
    status = MakeStatus(Code::kOutOfBudget,
                        "waited in vain for {} of the {} that sessions share, of which {} are free",
                        FormatBytes(waiter.bytes_min), FormatBytes(shared_->budget.limit_bytes()),
                        FormatBytes(shared_->budget.available_bytes()));
  }
  Serve(shared_);  // those behind it may want less
  return status;
}

void Admission::Serve(const std::shared_ptr<Shared>& shared) {
  while (true) {
    Waiter waiter;
    Result<Grant> grant = Status(Code::kOutOfBudget, "nobody waits");
    {
      MutexLock lock(shared->mutex);
      if (shared->waiters.empty()) return;
      grant = Take(shared, shared->waiters.front().bytes, shared->waiters.front().bytes_min);
      if (!grant.ok()) return;
      waiter = std::move(shared->waiters.front());
      shared->waiters.pop_front();
    }
    waiter.answer(std::move(grant));
  }
}

}  // namespace quarry
