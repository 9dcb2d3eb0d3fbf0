// Memory of arrays that are made and forgotten batch by batch. A fresh array of tens of MiB costs more in page faults
// than the rows that are gathered into it, so what a dead array leaves is given to the next of about its size.
//
// One for the process, and any thread; it is never destroyed, since arrays may outlive the interpreter's end. Small blocks
// come from malloc as ever. What is kept for the next is at most kKept blocks, until a stream is closed.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <new>

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

// An array of such memory that any thread may make and fill, without the interpreter's lock; what Python sees of it is
// made with the lock.
template <typename T, size_t Dims>
class RecycledArray {
 public:
  explicit RecycledArray(const std::array<size_t, Dims>& shape) : shape_(shape) {
    size_t bytes = sizeof(T);
    for (const size_t side : shape) {
      if (__builtin_mul_overflow(bytes, side, &bytes)) throw std::bad_alloc();
    }
    block_.reset(new Owned(RecycledMemory::Instance().Take(bytes)));
  }

  T* data() const { return static_cast<T*>(block_->block.data); }

  // A NumPy array by nanobind::numpy, without a framework a DLPack capsule. Either calls its owner when the last view dies.
  template <typename... Framework>
  nanobind::object ToPython() && {
    T* const elements = data();
    const nanobind::capsule owner(block_.get(),
                                  [](void* held) noexcept { delete static_cast<Owned*>(held); });
    (void)block_.release();
    return nanobind::cast(nanobind::ndarray<Framework..., T>(elements, Dims, shape_.data(), owner));
  }

 private:
  struct Owned {
    explicit Owned(RecycledMemory::Block taken) : block(taken) {}
    ~Owned() { RecycledMemory::Instance().GiveBack(block); }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    RecycledMemory::Block block;
  };

  std::array<size_t, Dims> shape_;
  std::unique_ptr<Owned> block_;
};

}  // namespace quarry::python
