// A memory that runs out: the k-th allocation by `new` in this process throws std::bad_alloc. For the one
// source of a test binary that includes this: it replaces operator new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace quarry {

class AllocationFaults {
 public:
  // From now on, the `kth` allocation of any thread fails, once.
  static void Arm(uint64_t kth) { left = armed = static_cast<int64_t>(kth); }
  static void Disarm() { left = 0; }
  // Allocations since it was armed, with one that is not reached; disarms.
  static uint64_t Count() { return static_cast<uint64_t>(armed - left.exchange(0)); }

  // What this thread asks for from now on, given back meanwhile or not.
  static void CountBytes() { asked = 0; }
  static uint64_t CountedBytes() { return asked; }

  static void* Allocate(size_t bytes) {
    asked += bytes;
    if (left.load(std::memory_order_relaxed) > 0 && left.fetch_sub(1) == 1) throw std::bad_alloc();
    if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
    throw std::bad_alloc();
  }

 private:
  static inline std::atomic<int64_t> left{0};
  static inline int64_t armed = 0;
  static inline thread_local uint64_t asked = 0;
};

}  // namespace quarry

// GCC takes a new that it inlines for another one than the delete beside it.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(size_t bytes) { return quarry::AllocationFaults::Allocate(bytes); }
void* operator new[](size_t bytes) { return quarry::AllocationFaults::Allocate(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return quarry::AllocationFaults::Allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
