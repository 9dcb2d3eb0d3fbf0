#include "quarry/cache/cache_simulator.h"

#include <cassert>
#include <utility>

namespace quarry {

CacheSimulator::CacheSimulator(PolicyKind kind, uint64_t node_count, uint64_t capacity,
                               std::span<const NodeId> start, std::span<const KeepRule> rules)
    : policy_(CachePolicy::Make(kind, node_count, capacity, start, rules)),
      slots_(node_count, kNoSlot),
      resident_count_(start.size()) {
  assert(start.size() <= capacity && capacity < kNoSlot);
  for (uint32_t slot = 0; slot < start.size(); ++slot) slots_[start[slot]] = slot;
  for (uint64_t slot = capacity; slot-- > start.size();) {
    free_.push_back(static_cast<uint32_t>(slot));
  }
}

uint32_t CacheSimulator::TakeSlot(NodeId node) {
  const uint32_t slot = free_.back();
  free_.pop_back();
  return slots_[node] = slot;
}

void CacheSimulator::FreeSlotOf(NodeId node) {
  const uint32_t slot = std::exchange(slots_[node], kNoSlot);
  free_.push_back(slot);
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

  for (const NodeId node : change_.evicted) FreeSlotOf(node);
  step.admitted.clear();
  for (const uint32_t position : change_.admitted) {
    step.admitted.push_back({position, TakeSlot(nodes[position])});
  }
  resident_count_ += change_.admitted.size() - change_.evicted.size();
  step.evicted.swap(change_.evicted);
}

void CacheSimulator::Close(std::span<const NodeId> target, std::vector<Carried>& carried) {
  std::vector<bool> wanted(slots_.size());
  for (const NodeId node : target) wanted[node] = true;
  for (size_t node = 0; node < slots_.size(); ++node) {
    if (!wanted[node] && slots_[node] != kNoSlot) FreeSlotOf(static_cast<NodeId>(node));
  }
  for (size_t node = 0; node < slots_.size(); ++node) {
    if (!wanted[node] || slots_[node] != kNoSlot) continue;
    carried.push_back({static_cast<NodeId>(node), TakeSlot(static_cast<NodeId>(node))});
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
