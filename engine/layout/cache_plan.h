// What each batch finds in memory: a cache policy run over the trace (Ginex §3.3, three passes: first uses,
// next uses, simulation), written out batch by batch. Private to this room.
//
// A plan is a cycle: the epochs of the trace are repeated, so the cache after the last batch must hold what
// it held before the first. Dynamic policies are simulated through one whole cycle to find that state, then
// once more from it; rows of it that are missing at the end of the second round are read with the last batch.
//
// Holds 8 bytes a node, the policy, and one batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/cache/cache_simulator.h"
#include "quarry/layout/trace.h"
#include "record_file.h"

namespace quarry {

// The next uses of every access of a trace, or of the trace repeated for ever.
class NextUses {
 public:
  // Writes them to `path`, in one pass backwards. `first_uses` (by node, kNeverUsed where none) is what the
  // pass finds on the way.
  static Result<std::unique_ptr<NextUses>> Make(IoBackend& backend, const Trace& trace, uint64_t node_count,
                                                bool cyclic, const std::string& path);
  Result<std::span<const uint32_t>> Read(uint64_t batch, IoBuffer& buffer) const {
    return ReadArray<uint32_t>(*file_, file_->size() - 1 - batch, buffer);
  }
  std::span<const uint32_t> first_uses() const { return first_uses_; }

 private:
  NextUses() = default;
  std::unique_ptr<RecordFile> file_;  // the last batch first
  std::vector<uint32_t> first_uses_;
};

struct CachePlanOptions {
  PolicyKind policy = PolicyKind::kBelady;
  uint64_t node_count = 0;
  uint64_t capacity = 0;              // rows
  std::span<const uint32_t> degrees;  // by node; for static-degree alone
  bool cyclic = true;                 // else: from an empty cache (static: the chosen rows), once
};

// Called for each batch in order. `nodes` and `step` are valid during the call.
using CacheStepFunction =
    std::function<Status(uint64_t batch, const TraceBatch& nodes, const CacheStep& step)>;

struct CachePlan {
  // Resident before the first batch; start[i] in slot i, ascending.
  std::vector<NodeId> start;
  std::vector<uint32_t> wrap;  // by start slot: the slot of the same row after the last batch
  std::vector<CacheSimulator::Carried> carried;  // to be read with the last batch, ascending by node
  uint64_t accesses = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;  // carried rows included
};

// `next_uses` may be null for policies that do not want them. `visit` may be empty: then it only counts.
Result<CachePlan> SimulateCache(const Trace& trace, const NextUses* next_uses,
                                const CachePlanOptions& options, const CacheStepFunction& visit);

// What SimulateCache and NextUses hold.
uint64_t CachePlanBytes(const CachePlanOptions& options, uint64_t batch_nodes_max);

// How often each node occurs in the trace.
Result<std::vector<uint32_t>> CountAccesses(const Trace& trace, uint64_t node_count);

}  // namespace quarry
