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
    owned_ = std::make_unique<Owned>(bytes);
  }

  T* data() const { return static_cast<T*>(owned_->block.data); }

  // Either gives the memory back when its last view dies.
  nanobind::object ToNumpy() && {
    T* const elements = data();
    const nanobind::capsule owner(owned_.get(),
                                  [](void* held) noexcept { delete static_cast<Owned*>(held); });
    (void)owned_.release();
    return nanobind::cast(nanobind::ndarray<nanobind::numpy, T>(elements, Dims, shape_.data(), owner));
  }
  // A DLPack capsule, for one who takes it once. nanobind's own has three objects of Python's behind it, and wants the
  // lock where it is let go; this one is the memory's owner itself.
  nanobind::object ToDlpack() && {
    Owned& owned = *owned_;
    int64_t stride = 1;
    for (size_t side = Dims; side-- > 0;) {
      owned.sides[side] = static_cast<int64_t>(shape_[side]);
      owned.strides[side] = stride;
      stride *= owned.sides[side];
    }
    owned.tensor = {.data = owned.block.data,
                    .device = {nanobind::device::cpu::value, 0},
                    .ndim = static_cast<int32_t>(Dims),
                    .dtype = nanobind::dtype<T>(),
                    .shape = owned.sides.data(),
                    .strides = owned.strides.data()};
    owned.deleter = [](DlpackTensor* tensor) { delete static_cast<Owned*>(tensor); };
    const nanobind::object capsule =
        nanobind::steal(PyCapsule_New(static_cast<DlpackTensor*>(&owned), kDlpackName, [](PyObject* untaken) {
          if (PyCapsule_IsValid(untaken, kDlpackName) == 0) return;  // whoever took it has renamed it
          auto* const tensor = static_cast<DlpackTensor*>(PyCapsule_GetPointer(untaken, kDlpackName));
          tensor->deleter(tensor);
        }));
    if (!capsule.is_valid()) throw nanobind::python_error();
    (void)owned_.release();
    return capsule;
  }

 private:
  static constexpr const char* kDlpackName = "dltensor";

  // DLManagedTensor, as DLPack has it.
  struct DlpackTensor {
    nanobind::dlpack::dltensor tensor;
    void* context = nullptr;
    void (*deleter)(DlpackTensor*) = nullptr;
  };
  struct Owned : DlpackTensor {
    explicit Owned(size_t bytes) : block(RecycledMemory::Instance().Take(bytes)) {}
    ~Owned() { RecycledMemory::Instance().GiveBack(block); }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    RecycledMemory::Block block;
    std::array<int64_t, Dims> sides{}, strides{};
  };

  std::array<size_t, Dims> shape_;
  std::unique_ptr<Owned> owned_;
};

}  // namespace quarry::python
