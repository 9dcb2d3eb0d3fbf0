// MemoryBudget: the one purse from which every cache, queue and buffer of an open database is paid
// (docs/architecture.md, invariant 4).
//
// Buffers are sized once, at open, by reserving from the budget; whoever reserves allocates the memory
// itself. Thread-safe. The budget must outlive its reservations.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

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

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  uint64_t available_bytes() const { return limit_bytes_ - used_bytes(); }

 private:
  const uint64_t limit_bytes_;
  std::atomic<uint64_t> used_bytes_{0};
};

}  // namespace quarry
