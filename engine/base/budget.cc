#include "quarry/base/budget.h"

#include <utility>

#include "quarry/base/units.h"

namespace quarry {

MemoryBudget::Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MemoryBudget::Reservation& MemoryBudget::Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Release();
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void MemoryBudget::Reservation::Release() {
  if (budget_ != nullptr) budget_->used_bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
  budget_ = nullptr;
  bytes_ = 0;
}

Status MemoryBudget::Refuse(uint64_t bytes, uint64_t used, std::string_view what) const {
  return MakeStatus(Code::kOutOfBudget,
                    "the memory budget of {} cannot hold {} ({}) beside the {} in use; give at least {}",
                    FormatBytes(limit_bytes_), what, FormatBytes(bytes), FormatBytes(used),
                    FormatBytes(used + bytes));
}

Result<MemoryBudget::Reservation> MemoryBudget::Reserve(uint64_t bytes, std::string_view what) {
  uint64_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_bytes_ - used) return Refuse(bytes, used, what);
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes));
  if (lent_bytes_.load() > limit_bytes_ - (used + bytes)) CallIn();
  return Reservation(this, bytes);
}

// What others release meanwhile may make room for both; the loan is wanted back by then.
void MemoryBudget::CallIn() {
  MutexLock lock(loan_mutex_);
  while (lent_bytes_.load() > 0 && lent_bytes_.load() + used_bytes_.load() > limit_bytes_) {
    give_back_();
    loan_ended_.Wait(loan_mutex_);
  }
}

Result<MemoryBudget::Loan> MemoryBudget::Borrow(uint64_t bytes, std::string_view what,
                                                std::function<void()> give_back) {
  MutexLock lock(loan_mutex_);
  if (lent_bytes_.load() > 0) {
    return MakeStatus(Code::kOutOfBudget, "{} needs memory of which {} are lent already: wait for it", what,
                      FormatBytes(lent_bytes_.load()));
  }
  lent_bytes_.store(bytes);
  if (const uint64_t used = used_bytes_.load(); bytes > limit_bytes_ - used) {
    lent_bytes_.store(0);
    return Refuse(bytes, used, what);
  }
  give_back_ = std::move(give_back);
  return Loan(this);
}

void MemoryBudget::Loan::End() {
  MemoryBudget* const budget = std::exchange(budget_, nullptr);
  if (budget == nullptr) return;
  MutexLock lock(budget->loan_mutex_);
  budget->lent_bytes_.store(0);
  budget->give_back_ = nullptr;
  budget->loan_ended_.NotifyAll();
}

}  // namespace quarry
