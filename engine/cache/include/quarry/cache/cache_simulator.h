// CacheSimulator: runs a policy over a trace and gives every resident row a slot, so that what it decided can
// be executed later without a lookup (Ginex §3.4's changesets, with addresses).
// A row stays in its slot for as long as it is resident.
//
// One thread. Holds 4 bytes a node beside the policy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/cache/cache_policy.h"

namespace quarry {

inline constexpr uint32_t kNoSlot = 0xffffffff;

// A row of the batch that enters the cache after it.
struct Admission {
  uint32_t position = 0;  // in the batch's nodes
  uint32_t slot = 0;
};

struct CacheStep {
  std::vector<uint32_t> slots;      // by position: where the row is during the batch, kNoSlot = a miss
  std::vector<Admission> admitted;  // after the batch; slots freed by the same batch's evictions are reused
  std::vector<NodeId> evicted;
  uint64_t misses = 0;
};

class CacheSimulator {
 public:
  // As CachePolicy::Make; start[i] gets slot i.
  CacheSimulator(PolicyKind kind, uint64_t node_count, uint64_t capacity, std::span<const NodeId> start,
                 std::span<const KeepRule> rules);

  // Serves one batch. `next_uses` as in BatchAccess.
  void Step(uint32_t batch, std::span<const NodeId> nodes, std::span<const uint32_t> next_uses,
            CacheStep& step);

  // After the last Step: makes the resident set equal `target` (at most capacity, unique), so that a trace
  // can be repeated: evicts what is not in it, and appends to `carried` the nodes of `target` that are not
  // resident, ascending, with the slots that they get. The caller reads those with the last batch. No Step
  // may follow.
  struct Carried {
    NodeId node = 0;
    uint32_t slot = 0;
  };
  void Close(std::span<const NodeId> target, std::vector<Carried>& carried);

  uint32_t SlotOf(NodeId node) const { return slots_[node]; }  // kNoSlot = not resident
  std::vector<NodeId> Residents() const;                       // ascending
  uint64_t resident_count() const { return resident_count_; }

 private:
  uint32_t TakeSlot(NodeId node);
  void FreeSlotOf(NodeId node);

  std::unique_ptr<CachePolicy> policy_;
  std::vector<uint32_t> slots_;  // by node
  std::vector<uint32_t> free_;   // slots, taken from the back
  uint64_t resident_count_ = 0;
  CacheChange change_;
  std::vector<uint8_t> resident_;
};

}  // namespace quarry
