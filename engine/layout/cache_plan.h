// What each batch finds in memory: a cache policy run over the trace (Ginex §3.3, three passes: first uses,
// next uses, simulation), written out batch by batch. Private to this room.
//
// A plan is a cycle: the epochs of the trace are repeated, so the cache after the last batch must hold what
// it held before the first. Belady's is decided for that beforehand (belady.h); fifo and lru are simulated
// through one whole cycle to find that state, then once more from it, and rows of it that are missing at the
// end of the second round are read with the last batch.
//
// Where rows are of several tables (row_places.h), each has a cache of its own, planned on the accesses to its rows alone. What
// each may hold is decided by all of them together: a row is worth the bytes that it saves and costs the bytes that it takes,
// so only how long it waits for its next use tells rows of different lengths apart. Belady over bytes instead of rows therefore
// says what the best cache of rows of all lengths holds (DivideCache), and each table is given what it has of that.
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
#include "quarry/format/node_types.h"
#include "quarry/layout/trace.h"
#include "record_file.h"

namespace quarry {

// The batches of a trace as accesses to the rows of one table, whose numbers stand in the place of nodes; or, with `nodes`
// empty, as they are. One thread.
class RowCursor {
 public:
  // `nodes`: those with rows in the table, ascending; they outlive it.
  explicit RowCursor(const Trace& trace, std::span<const NodeTypes::Range> nodes = {})
      : cursor_(trace), nodes_(nodes) {}
  // Valid until the next call.
  Result<const TraceBatch*> Read(uint64_t batch);
  // The same of a batch that is at hand; only `nodes` of the result counts.
  const TraceBatch& RowsOf(const TraceBatch& batch);
  // Where in the batch each row of RowsOf was.
  std::span<const uint32_t> positions() const { return positions_; }

 private:
  TraceCursor cursor_;
  const std::span<const NodeTypes::Range> nodes_;
  TraceBatch rows_;
  std::vector<uint32_t> positions_;
};

// The next uses of every access of a trace, or of the trace repeated for ever.
class NextUses {
 public:
  // Writes them to `path`, in one pass backwards, with counts of them for each batch. `nodes` as RowCursor; `node_count`
  // is how many rows there are then.
  static Result<std::unique_ptr<NextUses>> Make(IoBackend& backend, const Trace& trace, uint64_t node_count,
                                                bool cyclic, const std::string& path,
                                                std::span<const NodeTypes::Range> nodes = {});
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
  // Resident before the first batch; start[i] in slot i, ascending, of several tables table by table.
  std::vector<NodeId> start;
  std::vector<uint64_t> table_rows;  // of these, by table
  std::vector<uint32_t> wrap;        // by start slot: the slot of the same row after the last batch
  std::vector<CacheSimulator::Carried> carried;  // to be read with the last batch, ascending by node
  uint64_t accesses = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;  // carried rows included
};

// `next_uses` may be null for policies that do not want them. `visit` may be empty: then it only counts.
Result<CachePlan> SimulateCache(const Trace& trace, const NextUses* next_uses,
                                const CachePlanOptions& options, const CacheStepFunction& visit);

// A table's part of a cache.
struct TableCache {
  std::span<const NodeTypes::Range> nodes;  // as RowCursor
  const NextUses* next_uses = nullptr;      // of its rows
  CachePlanOptions options;                 // policy and `cyclic` are the same for all; node_count: its rows
};

// As SimulateCache, of one or several tables, whose slots are numbered as RowPlaces has them. Nodes of no table are counted
// neither as hits nor as misses, and have no slot.
Result<CachePlan> SimulateCaches(const Trace& trace, std::span<const TableCache> tables,
                                 const CacheStepFunction& visit);

// How many rows of each table a cache of `bytes` is to hold, whose rows lie options.row_bytes apart; at most all of them.
// REQUIRES: next_uses
Result<std::vector<uint64_t>> DivideCache(const Trace& trace, std::span<const TableCache> tables,
                                          uint64_t bytes);

// What SimulateCache and NextUses hold.
uint64_t CachePlanBytes(const CachePlanOptions& options, uint64_t batch_nodes_max);

// How often each node occurs in the trace.
Result<std::vector<uint32_t>> CountAccesses(const Trace& trace, uint64_t node_count,
                                            std::span<const NodeTypes::Range> nodes = {});

}  // namespace quarry
