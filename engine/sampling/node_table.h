// NodeTable: node -> local id of the block being made. Open addressing with linear probing, 8 bytes an entry,
// at most half full, so its memory follows the batch and not the graph. One thread owns a table.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/io/buffer.h"

namespace quarry {

class NodeTable {
 public:
  // Forgets everything. Keeps the memory.
  void Clear() { std::memset(entries_, 0xff, capacity_ * sizeof(uint64_t)); }

  // Makes room for `count` nodes in all, of which `known` are in it now.
  Status Reserve(uint64_t count, uint64_t known) {
    if (2 * count <= capacity_) return Status::Ok();
    const uint64_t capacity = std::bit_ceil(2 * count);
    QUARRY_TRY(IoBuffer memory, IoBuffer::Allocate(capacity * sizeof(uint64_t)));
    IoBuffer old_memory = std::exchange(memory_, std::move(memory));
    const uint64_t* old = std::exchange(entries_, reinterpret_cast<uint64_t*>(memory_.data()));
    const uint64_t old_capacity = std::exchange(capacity_, capacity);
    shift_ = static_cast<unsigned>(64 - std::countr_zero(capacity));
    Clear();
    for (uint64_t i = 0; known > 0 && i < old_capacity; i++) {
      if (old[i] != kEmpty) FindOrInsert(static_cast<NodeId>(old[i] >> 32), static_cast<uint32_t>(old[i]));
    }
    return Status::Ok();
  }

  void Prefetch(NodeId node) const { __builtin_prefetch(entries_ + Home(node), 1); }

  // The local id of `node`, which becomes `next` when it was not there. REQUIRES: Reserve'd.
  uint32_t FindOrInsert(NodeId node, uint32_t next) {
    for (uint64_t i = Home(node);; i = (i + 1) & (capacity_ - 1)) {
      if (entries_[i] == kEmpty) {
        entries_[i] = uint64_t{node} << 32 | next;
        return next;
      }
      if (entries_[i] >> 32 == node) return static_cast<uint32_t>(entries_[i]);
    }
  }

  uint64_t memory_bytes() const { return memory_.mapped_bytes(); }
  static uint64_t MemoryBytes(uint64_t count) { return std::bit_ceil(2 * count) * sizeof(uint64_t); }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // node ids end below kNoNode, so no entry looks like this

  // Fibonacci hashing: the upper bits of a product with 2^64 / golden ratio.
  uint64_t Home(NodeId node) const { return (node * 0x9e3779b97f4a7c15U) >> shift_; }

  IoBuffer memory_;
  uint64_t* entries_ = nullptr;
  uint64_t capacity_ = 0;  // a power of two
  unsigned shift_ = 63;
};

}  // namespace quarry
