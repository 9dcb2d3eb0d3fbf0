// MemoryBudget: the one purse from which every cache, queue and buffer of an open database is paid
// (docs/architecture.md, invariant 4).
//
// Buffers are sized once, at open, by reserving from the budget; whoever reserves allocates the memory
// itself. Thread-safe. The budget must outlive its reservations.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"

namespace quarry {

class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // A move-only claim on part of the budget; gives it back when it dies.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation() { Release(); }
    uint64_t bytes() const { return bytes_; }
    void Release();

   private:
    friend class MemoryBudget;
    Reservation(MemoryBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}
    MemoryBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };

  // kOutOfBudget when `bytes` more do not fit; the message says what they are for (`what`), what is left, and
  // the least budget that would do.
  Result<Reservation> Reserve(uint64_t bytes, std::string_view what);

  // Memory that is free, for work that can be given up: it does not count as used, and nobody is refused because of it. Ends when
  // it dies, or by End.
  class Loan {
   public:
    Loan() = default;
    Loan(Loan&& other) noexcept : budget_(std::exchange(other.budget_, nullptr)) {}
    Loan& operator=(Loan&& other) noexcept {
      std::swap(budget_, other.budget_);  // the other ends what this one had
      return *this;
    }
    ~Loan() { End(); }
    void End();

   private:
    friend class MemoryBudget;
    explicit Loan(MemoryBudget* budget) : budget_(budget) {}
    MemoryBudget* budget_ = nullptr;
  };

  // A reservation that needs what is lent calls `give_back` on its thread, which neither waits nor ends the loan, and waits until
  // the loan has ended: whoever has one takes no lock that others reserve under. kOutOfBudget, also while another loan lasts.
  Result<Loan> Borrow(uint64_t bytes, std::string_view what, std::function<void()> give_back)
      QUARRY_EXCLUDES(loan_mutex_);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  uint64_t available_bytes() const { return limit_bytes_ - used_bytes(); }

 private:
  Status Refuse(uint64_t bytes, uint64_t used, std::string_view what) const;
  void CallIn() QUARRY_EXCLUDES(loan_mutex_);

  const uint64_t limit_bytes_;
  std::atomic<uint64_t> used_bytes_{0};
  // What is reserved is written before this is read, and this before that is: so one of the two sees the other.
  std::atomic<uint64_t> lent_bytes_{0};
  Mutex loan_mutex_;
  CondVar loan_ended_;
  std::function<void()> give_back_ QUARRY_GUARDED_BY(loan_mutex_);
};

}  // namespace quarry
