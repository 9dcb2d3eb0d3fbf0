#include "fifo_rows.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {

FifoRows::FifoRows(const Options& options)
    : options_(options),
      policy_(CachePolicy::Make(PolicyKind::kFifo, options.node_count, options.capacity, {}, {})),
      slots_(CeilDiv(options.node_count, uint64_t{options.buffers}), kNoSlot),
      resident_(options.batch_nodes_max) {
  assert(options.capacity < kNoSlot);
  change_.admitted.reserve(options.batch_nodes_max);
  change_.evicted.reserve(options.batch_nodes_max);
}

uint64_t FifoRows::Bytes(const Options& options) {
  return CachePolicy::MemoryBytes(PolicyKind::kFifo, options.node_count, options.capacity,
                                  options.batch_nodes_max) +
         CeilDiv(options.node_count, uint64_t{options.buffers}) * sizeof(uint32_t) +
         options.batch_nodes_max * (sizeof(uint8_t) + sizeof(uint32_t) + sizeof(NodeId));
}

uint64_t FifoRows::Step(std::span<const NodeId> nodes, std::span<uint32_t> found,
                        std::span<uint32_t> entered) {
  if (slots_.empty()) {
    std::fill_n(found.begin(), nodes.size(), kNoSlot);
    std::fill_n(entered.begin(), nodes.size(), kNoSlot);
    return 0;
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    found[i] = slots_[nodes[i] / options_.buffers];
    entered[i] = kNoSlot;
    resident_[i] = found[i] == kNoSlot ? 0 : 1;
  }
  policy_->Step({.batch = batch_++,
                 .nodes = nodes,
                 .next_uses = {},
                 .resident = std::span(resident_).first(nodes.size())},
                change_);
  // The slots never taken first, then those of what leaves, in its order.
  size_t left = 0;
  for (const uint32_t position : change_.admitted) {
    if (taken_ < options_.capacity) {
      entered[position] = static_cast<uint32_t>(taken_++);
    } else {
      entered[position] = std::exchange(slots_[change_.evicted[left++] / options_.buffers], kNoSlot);
    }
    slots_[nodes[position] / options_.buffers] = entered[position];
  }
  assert(left == change_.evicted.size());
  return left;
}

}  // namespace quarry
