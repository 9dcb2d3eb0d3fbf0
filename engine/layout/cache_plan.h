// What each batch finds in memory: a cache policy run over the trace (Ginex §3.3, three passes: first uses,
// next uses, simulation), written out batch by batch. Private to this room.
//
// A plan is a cycle: the epochs of the trace are repeated, so the cache after the last batch must hold what
// it held before the first. Belady's is decided for that beforehand (belady.h); fifo and lru are simulated
// through one whole cycle to find that state, then once more from it, and rows of it that are missing at the
// end of the second round are read with the last batch.
//
// Holds 8 bytes a node, the policy, and one batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "quarry/cache/belady.h"
#include "quarry/cache/cache_simulator.h"
#include "quarry/layout/trace.h"
#include "record_file.h"

namespace quarry {

// The next uses of every access of a trace, or of the trace repeated for ever.
class NextUses {
 public:
  // Writes them to `path`, in one pass backwards, with counts of them for each batch.
  static Result<std::unique_ptr<NextUses>> Make(IoBackend& backend, const Trace& trace, uint64_t node_count,
                                                bool cyclic, const std::string& path);
  Result<std::span<const uint32_t>> Read(uint64_t batch, IoBuffer& buffer) const {
    const uint64_t record = file_->size() - 1 - batch, counts_bytes = count_sizes_[record] * sizeof(UseCount);
    QUARRY_TRY(const std::span<const std::byte> bytes,
               file_->Read(record, counts_bytes, file_->bytes(record) - counts_bytes, buffer));
    return std::span(reinterpret_cast<const uint32_t*>(bytes.data()), bytes.size() / sizeof(uint32_t));
  }
  Result<std::span<const UseCount>> ReadCounts(uint64_t batch, IoBuffer& buffer) const {
    const uint64_t record = file_->size() - 1 - batch;
    QUARRY_TRY(const std::span<const std::byte> bytes,
               file_->Read(record, 0, count_sizes_[record] * sizeof(UseCount), buffer));
    return std::span(reinterpret_cast<const UseCount*>(bytes.data()), bytes.size() / sizeof(UseCount));
  }
  // How many there are, of all batches.
  uint64_t counts() const { return std::reduce(count_sizes_.begin(), count_sizes_.end(), uint64_t{0}); }
  // Accesses of the `count` nodes that are used most.
  uint64_t UsesOfTop(uint64_t count) const;

 private:
  NextUses() = default;
  std::unique_ptr<RecordFile> file_;   // the last batch first; of each, counts and then next uses
  std::vector<uint32_t> count_sizes_;  // by record
  std::vector<uint64_t> nodes_by_uses_;
};

struct CachePlanOptions {
  PolicyKind policy = PolicyKind::kBelady;
  uint64_t node_count = 0;
  uint64_t capacity = 0;              // rows
  std::span<const uint32_t> degrees;  // by node; for static-degree alone
  bool cyclic = true;                 // else: from an empty cache (static: the chosen rows), once
  uint64_t row_bytes = 0;  // for belady: what a miss reads. Where changes of the cache would cost more bytes
                           // than they save, the rows that are used most stay for good. 0: only misses count
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
