// Memory of arrays that are made and forgotten batch by batch. A fresh array of tens of MiB costs more in page faults
// than the rows that are gathered into it, so what a dead array leaves is given to the next of about its size.
//
// One for the process, and any thread; it is never destroyed, since arrays may outlive the interpreter's end. Small blocks
// come from malloc as ever. What is kept for the next is at most kKept blocks, until a stream is closed.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <list>
#include <mutex>
#include <new>
#include <vector>

namespace quarry::python {

class RecycledMemory {
 public:
  struct Block {
    void* data;
    size_t bytes;
  };

  static RecycledMemory& Instance();
  // At least `bytes`, with anything in them. Throws std::bad_alloc.
  Block Take(size_t bytes);
  void GiveBack(Block block) noexcept;
  // Frees what is kept.
  void Forget() noexcept;

 private:
  // Enough for x, edge_index, n_id and e_id of four batches: one that dies while the caller gets the next and two are
  // made ahead. All four die at the end of a pass, and the next pass wants as many.
  static constexpr size_t kKept = 16;

  std::mutex mutex_;
  std::list<Block> kept_;  // the oldest first
};

// NumPy and Torch call the owner of an array when its last view dies.
template <typename T>
nanobind::ndarray<nanobind::numpy, T> RecycledArray(const std::vector<size_t>& shape) {
  size_t bytes = sizeof(T);
  for (const size_t side : shape) {
    if (__builtin_mul_overflow(bytes, side, &bytes)) throw std::bad_alloc();
  }
  auto* const block = new RecycledMemory::Block(RecycledMemory::Instance().Take(bytes));
  const nanobind::capsule owner(block, [](void* held) noexcept {
    auto* const owned = static_cast<RecycledMemory::Block*>(held);
    RecycledMemory::Instance().GiveBack(*owned);
    delete owned;
  });
  return nanobind::ndarray<nanobind::numpy, T>(block->data, shape.size(), shape.data(), owner);
}

}  // namespace quarry::python
