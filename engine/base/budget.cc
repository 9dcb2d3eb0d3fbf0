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

Result<MemoryBudget::Reservation> MemoryBudget::Reserve(uint64_t bytes, std::string_view what) {
  uint64_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_bytes_ - used) {
      return MakeStatus(Code::kOutOfBudget,
                        "the memory budget of {} cannot hold {} ({}) beside the {} in use; give at least {}",
                        FormatBytes(limit_bytes_), what, FormatBytes(bytes), FormatBytes(used),
                        FormatBytes(used + bytes));
    }
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return Reservation(this, bytes);
}

}  // namespace quarry
