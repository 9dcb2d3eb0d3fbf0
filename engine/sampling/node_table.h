// NodeTable: node id -> local id of one block, by open addressing.
//
// Its memory follows the batch, not the graph: 16 to 32 bytes a node, one huge-page buffer kept between
// batches. A table addressed by node id would make sampling 5 to 25 % faster (2 M nodes, 120 to 850 thousand
// of them in a batch), but takes 4 bytes for each node of the graph in every sampler.
#pragma once

#include <cstdint>
#include <span>

#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/io/buffer.h"

namespace quarry {

// One thread.
class NodeTable {
 public:
  // What a table of `nodes` holds at most.
  static uint64_t MemoryBytes(uint64_t nodes);

  // Forgets everything.
  void Clear();

  // Makes room for `more` nodes beside `nodes`, the contents so far in the order of their local ids.
  // kOutOfBudget when the system refuses the memory.
  Status Reserve(std::span<const NodeId> nodes, uint64_t more);

  // Replaces each id by its local id. Ids met for the first time get the local ids from `next_local` on and
  // are written to `fresh` in that order; returns how many. REQUIRES: room for ids.size() was reserved;
  // `fresh` holds ids.size() + 1.
  uint32_t Renumber(std::span<uint32_t> ids, uint32_t next_local, NodeId* fresh);

  uint64_t memory_bytes() const { return memory_.mapped_bytes(); }

 private:
  static uint64_t SlotCount(uint64_t nodes);
  uint64_t* slots() const { return reinterpret_cast<uint64_t*>(memory_.data()); }
  uint32_t SlotOf(NodeId node) const { return (node * kMultiplier) >> shift_; }

  // Fibonacci hashing: dense ids, which neighbors often have, spread evenly, and it costs one multiplication.
  static constexpr uint32_t kMultiplier = 0x9e3779b1;

  IoBuffer memory_;  // slots: local id << 32 | (id + 1); 0 = empty
  uint64_t slot_count_ = 0;
  uint32_t shift_ = 32;
};

}  // namespace quarry
