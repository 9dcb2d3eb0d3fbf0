#include "quarry/cache/cache_simulator.h"

#include <cassert>

namespace quarry {

CacheSimulator::CacheSimulator(PolicyKind kind, uint64_t node_count, uint64_t capacity,
                               std::span<const NodeId> start, std::span<const uint32_t> start_next_uses)
    : policy_(CachePolicy::Make(kind, node_count, capacity, start, start_next_uses)),
      slots_(node_count, kNoSlot),
      resident_count_(start.size()) {
  assert(start.size() <= capacity && capacity < kNoSlot);
  for (uint32_t slot = 0; slot < start.size(); ++slot) slots_[start[slot]] = slot;
  free_slots_.reserve(capacity);
  for (uint64_t slot = capacity; slot-- > start.size();) free_slots_.push_back(static_cast<uint32_t>(slot));
}

void CacheSimulator::Step(uint32_t batch, std::span<const NodeId> nodes, std::span<const uint32_t> next_uses,
                          CacheStep& step) {
  step.slots.resize(nodes.size());
  resident_.resize(nodes.size());
  uint64_t hits = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const uint32_t slot = slots_[nodes[i]];
    step.slots[i] = slot;
    resident_[i] = slot != kNoSlot;
    hits += slot != kNoSlot;
  }
  step.misses = nodes.size() - hits;
  policy_->Step({.batch = batch, .nodes = nodes, .next_uses = next_uses, .resident = resident_}, change_);

  for (const NodeId node : change_.evicted) {
    free_slots_.push_back(slots_[node]);
    slots_[node] = kNoSlot;
  }
  step.admitted.clear();
  for (const uint32_t position : change_.admitted) {
    const uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[nodes[position]] = slot;
    step.admitted.push_back({position, slot});
  }
  resident_count_ += change_.admitted.size() - change_.evicted.size();
  step.evicted.swap(change_.evicted);
}

void CacheSimulator::Close(std::span<const NodeId> target, std::vector<Carried>& carried) {
  size_t next = 0;
  for (size_t node = 0; node < slots_.size(); ++node) {
    if (next < target.size() && target[next] == node) {
      ++next;
    } else if (slots_[node] != kNoSlot) {
      free_slots_.push_back(slots_[node]);
      slots_[node] = kNoSlot;
    }
  }
  assert(next == target.size() && "the target is not ascending");
  for (const NodeId node : target) {
    if (slots_[node] != kNoSlot) continue;
    slots_[node] = free_slots_.back();
    free_slots_.pop_back();
    carried.push_back({node, slots_[node]});
  }
  resident_count_ = target.size();
}

std::vector<NodeId> CacheSimulator::Residents() const {
  std::vector<NodeId> nodes;
  nodes.reserve(resident_count_);
  for (size_t node = 0; node < slots_.size(); ++node) {
    if (slots_[node] != kNoSlot) nodes.push_back(static_cast<NodeId>(node));
  }
  return nodes;
}

}  // namespace quarry
