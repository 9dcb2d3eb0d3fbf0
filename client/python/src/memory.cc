#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <iterator>
#include <new>
#include <vector>

#include "bindings.h"

namespace quarry::python {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kPage = 4 << 10;

constexpr size_t kRecycledMin = 64 << 10;

}  // namespace

RecycledMemory& RecycledMemory::Instance() {
  static auto* const instance = new RecycledMemory;
  return *instance;
}

RecycledMemory::Block RecycledMemory::Take(size_t bytes) {
  if (bytes < kRecycledMin) {
    void* const data = std::malloc(bytes + 1);  // of none, too, there is an address
    if (data == nullptr) throw std::bad_alloc();
    return {data, bytes};
  }
  {
    const std::lock_guard lock(mutex_);
    auto best = kept_.end();
    for (auto block = kept_.begin(); block != kept_.end(); ++block) {
      const bool fits = block->bytes >= bytes && block->bytes / 2 <= bytes;
      // The newest of a size: what was written last is what caches have.
      if (fits && (best == kept_.end() || block->bytes <= best->bytes)) best = block;
    }
    if (best != kept_.end()) {
      const Block found = *best;
      kept_.erase(best);
      return found;
    }
  }
  // An eighth more, as the next batch may be a little larger.
  const size_t wanted = bytes + bytes / 8;
  const size_t unit = wanted >= kHugePage ? kHugePage : kPage;
  const size_t whole = (wanted / unit + 1) * unit;
  void* const data = std::aligned_alloc(unit, whole);
  if (data == nullptr) throw std::bad_alloc();
  if (unit == kHugePage) (void)madvise(data, whole, MADV_HUGEPAGE);  // which is advice
  return {data, whole};
}

void RecycledMemory::GiveBack(Block block) noexcept {
  if (block.bytes < kRecycledMin) return std::free(block.data);
  std::list<Block> node;
  try {
    node.push_back(block);
  } catch (const std::bad_alloc&) {
    std::free(block.data);
    return;
  }
  const std::lock_guard lock(mutex_);
  kept_.splice(kept_.end(), node);
  if (kept_.size() <= kKept) return;
  std::free(kept_.front().data);
  kept_.pop_front();
}

void RecycledMemory::Forget() noexcept {
  std::list<Block> forgotten;
  {
    const std::lock_guard lock(mutex_);
    forgotten.swap(kept_);
  }
  for (const Block& block : forgotten) std::free(block.data);
}

}  // namespace quarry::python
