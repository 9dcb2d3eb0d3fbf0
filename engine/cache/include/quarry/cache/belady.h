// Belady's choice (Ginex §3.3) for a trace that is known as a whole, and for one that is repeated for ever: which
// rows stay for which batch, so that no policy misses less. Decided on counts of rows, without looking at nodes.
//
// A row that is kept from one use to the next is an interval of batches, and a cache of K rows holds at most K
// intervals at any time. Belady takes them in order and gives up the one that ends last. Which rows those are
// does not matter, only how many are used next by which batch: so a round over the trace costs as much as there
// are pairs of batches, and rounds are repeated until the cache ends a cycle as it began it. Some traces never
// settle, but swing between several states. What they hit on average over such a swing is then what a single
// cycle can hit, but for a row a batch at most: kept rows are a convex function of hits (see PlanBelady).
//
// The result says for each batch how many rows it finds. Those that were used last are taken, for they are
// kept for the shortest time; so one rule a batch says which stay.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "quarry/base/status.h"

namespace quarry {

// How many rows of a batch are used next by one other batch.
struct UseCount {
  uint32_t next_use =
      0;  // number of that batch; in a cycle, uses of the next round go on beyond the last batch
  uint32_t rows = 0;
};

// Reads the use counts of a batch, ascending by next use; rows that are never used again are left out. The
// result is valid until the next call.
using UseCountReader = std::function<Result<std::span<const UseCount>>(uint64_t batch)>;

// Which rows are kept for a batch: those whose use before lies fewer than `batches` back, and `rows` of those
// for which it lies exactly so far back.
struct KeepRule {
  uint32_t batches = 0;
  uint32_t rows = 0;
  bool operator==(const KeepRule&) const = default;
};

struct BeladyOptions {
  uint64_t batch_count = 0;
  uint64_t capacity = 0;     // rows
  bool cyclic = true;        // else: from an empty cache, once
  uint64_t rounds_max = 64;  // about so many, while a cycle does not settle
};

struct BeladyPlan {
  std::vector<KeepRule> rules;  // by batch
  uint64_t hits = 0;            // of a round
};

// Errors are those of `counts`. Holds about 100 bytes a batch.
Result<BeladyPlan> PlanBelady(const UseCountReader& counts, const BeladyOptions& options);

}  // namespace quarry
