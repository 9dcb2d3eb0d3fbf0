#include "admission.h"

#include <algorithm>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {
namespace {

AdmissionQueue::Clock::time_point Now() { return AdmissionQueue::Clock::now(); }

}  // namespace

// A grant, and what it holds of the whole.
struct Admission::Held {
  Held(std::shared_ptr<Shared> whole, uid_t of, MemoryBudget::Reservation reserved)
      : shared(std::move(whole)), user(of), reservation(std::move(reserved)), memory(reservation.bytes()) {}
  ~Held() {
    {
      MutexLock lock(shared->mutex);
      shared->shares.Give(user, reservation.bytes());
      reservation.Release();
      for (LingeringRegion& region : memory.TakeHeld()) {
        shared->shares.Take(user, region.bytes);
        shared->lingering.push_back({user, std::move(region)});
      }
      PayForLingering(*shared);
    }
    Serve(shared);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  const std::shared_ptr<Shared> shared;
  const uid_t user;
  MemoryBudget::Reservation reservation;
  SessionMemory memory;
};

void Admission::PayForLingering(Shared& shared) {
  uint64_t bytes = 0;
  for (const Lingering& region : shared.lingering) bytes += region.region.bytes;
  shared.lingering_paid.Release();
  // Each was a part of a grant, so there is room for all of them.
  auto paid = shared.budget.Reserve(std::min(bytes, shared.budget.available_bytes()), "held regions");
  if (paid.ok()) shared.lingering_paid = std::move(paid).value();
}

void Admission::ForgetLetGo(Shared& shared) {
  const size_t gone = std::erase_if(shared.lingering, [&](const Lingering& lingering) {
    shared.mutex.AssertHeld();
    if (lingering.region.witness->HeldByOthers()) return false;
    shared.shares.Give(lingering.user, lingering.region.bytes);
    return true;
  });
  if (gone > 0) PayForLingering(shared);
}

uint64_t Admission::LingeringOf(const Shared& shared, uid_t user, size_t* regions) {
  uint64_t bytes = 0;
  for (const Lingering& lingering : shared.lingering) {
    if (lingering.user != user) continue;
    bytes += lingering.region.bytes;
    ++*regions;
  }
  return bytes;
}

std::string Admission::WhatThereIs(const Shared& shared, uid_t user) {
  std::string text =
      fmt::format("{} of the {} that sessions share are free", FormatBytes(shared.budget.available_bytes()),
                  FormatBytes(shared.budget.limit_bytes()));
  if (shared.shares.several()) {
    text += fmt::format(", {} of them for user {}", FormatBytes(shared.shares.Left(user)), user);
  }
  size_t regions = 0;
  const uint64_t held = LingeringOf(shared, user, &regions);
  if (held > 0) {
    text += fmt::format(
        "; {} are shared memory of the user's ended sessions, which a process still has open "
        "or mapped",
        FormatBytes(held));
  }
  return text;
}

// REQUIRES: it was taken from the shares.
Admission::Grant Admission::Make(const std::shared_ptr<Shared>& shared, uid_t user, uint64_t bytes) {
  // Shares and budget agree, so there is room.
  auto reservation = shared->budget.Reserve(bytes, "a session");
  auto held = std::make_shared<Held>(
      shared, user, reservation.ok() ? std::move(reservation).value() : MemoryBudget::Reservation());
  return Grant(held, &held->memory);
}

Status Admission::CheckHeld(uid_t user) {
  MutexLock lock(shared_->mutex);
  ForgetLetGo(*shared_);
  size_t regions = 0;
  LingeringOf(*shared_, user, &regions);
  if (regions < kLingeringMax) return Status::Ok();
  return MakeStatus(Code::kOutOfBudget,
                    "processes of user {} have {} regions of shared memory of ended sessions open or mapped: "
                    "let go of them first",
                    user, regions);
}

Result<Admission::Grant> Admission::Ask(const Request& request) {
  MutexLock lock(shared_->mutex);
  ForgetLetGo(*shared_);
  const uint64_t bytes = shared_->queue.Ask(request, shared_->shares, Now());
  if (bytes > 0) return Make(shared_, request.user, bytes);
  const std::string there = WhatThereIs(*shared_, request.user);
  if (shared_->shares.Left(request.user) >= request.bytes_min) {
    return MakeStatus(Code::kOutOfBudget,
                      "a session of at least {} was asked for; {}, and it is the turn of one that waits for "
                      "more: wait too, or come back later",
                      FormatBytes(request.bytes_min), there);
  }
  return MakeStatus(
      Code::kOutOfBudget,
      "a session of at least {} was asked for, and {}: ask for less, or wait for others to leave",
      FormatBytes(request.bytes_min), there);
}

uint64_t Admission::Wait(const Request& request, Answer answer) {
  uint64_t ticket = 0;
  {
    MutexLock lock(shared_->mutex);
    ticket = shared_->queue.Wait(request);
    shared_->answers.emplace(ticket, std::move(answer));
  }
  Serve(shared_);
  return ticket;
}

Status Admission::GiveUp(uint64_t ticket) {
  Status status;
  Answer answer;  // destroyed behind the lock: it may own anything
  {
    MutexLock lock(shared_->mutex);
    const std::optional<Request> request = shared_->queue.GiveUp(ticket);
    if (!request) return Status::Ok();
    answer = std::move(shared_->answers.extract(ticket).mapped());
    status = MakeStatus(Code::kOutOfBudget, "waited in vain for {}: {}", FormatBytes(request->bytes_min),
                        WhatThereIs(*shared_, request->user));
  }
  Serve(shared_);  // those behind it may want less
  return status;
}

uint64_t Admission::lingering_bytes() {
  MutexLock lock(shared_->mutex);
  ForgetLetGo(*shared_);
  return shared_->lingering_paid.bytes();
}

void Admission::Serve(const std::shared_ptr<Shared>& shared) {
  while (true) {
    Answer answer;
    Grant grant;  // dies, if nobody takes it, behind the lock
    {
      MutexLock lock(shared->mutex);
      ForgetLetGo(*shared);
      const auto served = shared->queue.Next(shared->shares, Now());
      if (!served) return;
      grant = Make(shared, served->user, served->bytes);
      answer = std::move(shared->answers.extract(served->ticket).mapped());
    }
    answer(std::move(grant));
  }
}

}  // namespace quarry
