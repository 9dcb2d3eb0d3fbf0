#include "memory.h"

#include <nanobind/stl/vector.h>
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

// NumPy and Torch call the owner of an array when its last view dies.
template <typename T>
nb::ndarray<nb::numpy, T> Array(const std::vector<size_t>& shape) {
  size_t bytes = sizeof(T);
  for (const size_t side : shape) {
    if (__builtin_mul_overflow(bytes, side, &bytes)) throw std::bad_alloc();
  }
  auto* const block = new RecycledMemory::Block(RecycledMemory::Instance().Take(bytes));
  const nb::capsule owner(block, [](void* held) noexcept {
    auto* const owned = static_cast<RecycledMemory::Block*>(held);
    RecycledMemory::Instance().GiveBack(*owned);
    delete owned;
  });
  return nb::ndarray<nb::numpy, T>(block->data, shape.size(), shape.data(), owner);
}

}  // namespace

RecycledMemory& RecycledMemory::Instance() {
  static auto* const instance = new RecycledMemory;
  return *instance;
}

RecycledMemory::Block RecycledMemory::Take(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    auto best = kept_.end();
    for (auto block = kept_.begin(); block != kept_.end(); ++block) {
      const bool fits = block->bytes >= bytes && block->bytes / 2 <= bytes;
      if (fits && (best == kept_.end() || block->bytes < best->bytes)) best = block;
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

void BindMemory(nb::module_& module) {
  module.def("empty_float32", Array<float>, nb::arg("shape"));
  module.def("empty_int64", Array<int64_t>, nb::arg("shape"));
}

}  // namespace quarry::python
