// Memory of arrays that are made and forgotten batch by batch. A fresh array of tens of MiB costs more in page faults
// than the rows that are gathered into it, so what a dead array leaves is given to the next of about its size.
//
// One for the process, and any thread. What is kept for the next is at most kKept blocks; it is never given back, since
// arrays may outlive the interpreter's end.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>

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

 private:
  // Enough for x, edge_index and n_id of one batch, which die while the next batch has its own.
  static constexpr size_t kKept = 4;

  std::mutex mutex_;
  std::list<Block> kept_;  // the oldest first
};

}  // namespace quarry::python
