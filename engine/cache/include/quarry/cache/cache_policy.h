// CachePolicy: which feature rows stay in memory from one mini-batch to the next, decided on a known trace.
//
// A policy sees the batches in order and says what enters and what leaves after each; a batch is served whole
// from the state before it (a batch's misses never evict its own hits). Policies are pure decisions over node
// ids: slots, copies and files are the simulator's (cache_simulator.h) and the layout's business.
//
//   none              nothing stays
//   static-degree     the nodes of largest out-degree, for good (PaGraph)
//   static-frequency  the nodes that the trace uses most often, for good (DiskGNN)
//   fifo              every miss enters, the row that entered first leaves (BGL §3.2)
//   lru               every miss enters, the row that was used longest ago leaves
//   belady            of what is there and what was just read, the rows stay that were chosen by knowing all
//                     that comes (belady.h; Ginex §3.3, bypass allowed): no policy misses less
//
// One thread owns a policy. Deterministic: ties are broken by the order of nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/cache/belady.h"
#include "quarry/format/road_spec.h"
#include "quarry/format/types.h"

namespace quarry {

// No further use in the trace.
inline constexpr uint32_t kNeverUsed = 0xffffffff;

// One batch, as a policy sees it.
struct BatchAccess {
  uint32_t batch = 0;                   // its number, ascending from call to call
  std::span<const NodeId> nodes;        // unique
  std::span<const uint32_t> next_uses;  // by position: the next batch that uses the node, above `batch`, or
                                        // kNeverUsed; empty unless the policy wants them
  std::span<const uint8_t> resident;    // by position: 1 where the row was there before the batch
};

// What changes after a batch.
struct CacheChange {
  std::vector<uint32_t> admitted;  // positions in nodes, of rows that were not resident; ascending
  std::vector<NodeId> evicted;     // were resident before the batch, and are no longer
};

class CachePolicy {
 public:
  // `capacity` rows. `start` is what is resident before the first batch (at most capacity, unique). Static
  // policies keep `start` for good; that of `none` is empty. fifo and lru take it for rows that came, or were
  // used, in this order. belady follows `rules` (else empty) for one round, in which `start` must be the rows
  // that it keeps for the next one; from an empty cache it comes to hold them.
  static std::unique_ptr<CachePolicy> Make(PolicyKind kind, uint64_t node_count, uint64_t capacity,
                                           std::span<const NodeId> start, std::span<const KeepRule> rules);
  // What a policy holds at most; belady its rules besides.
  static uint64_t MemoryBytes(PolicyKind kind, uint64_t node_count, uint64_t capacity,
                              uint64_t batch_nodes_max);
  virtual ~CachePolicy() = default;
  // Fills `change` (cleared first) with what happens after this batch. Afterwards at most `capacity` rows are
  // resident.
  virtual void Step(const BatchAccess& access, CacheChange& change) = 0;
};

constexpr bool WantsNextUses(PolicyKind kind) { return kind == PolicyKind::kBelady; }
constexpr bool IsStatic(PolicyKind kind) { return kind <= PolicyKind::kStaticFrequency; }

// The `count` nodes with the largest scores, ascending by id; ties go to the smaller id, and scores of zero
// are left out. Takes O(nodes): scores are counted, not sorted.
std::vector<NodeId> TopNodes(std::span<const uint32_t> scores, uint64_t count);

}  // namespace quarry
