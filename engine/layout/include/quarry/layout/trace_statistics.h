// Statistics of an access trace: how unevenly nodes are used, and how much reading each cache policy would
// save at each size of memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/cache/cache_policy.h"
#include "quarry/layout/layout.h"
#include "quarry/layout/trace.h"
#include "quarry/storage/store.h"

namespace quarry {

struct TraceStatistics {
  uint64_t batch_count = 0;
  uint64_t accesses = 0;       // input nodes, summed over batches
  uint64_t distinct_rows = 0;  // nodes that are used at all
  uint32_t batch_nodes_max = 0;
  std::vector<uint32_t> uses;  // by node of the graph

  // The share of accesses that go to the `count` nodes that are used most.
  double ShareOfTop(uint64_t count) const;
};

// One pass. Holds 4 bytes a node, and one batch.
Result<TraceStatistics> MeasureTrace(const Trace& trace, uint64_t node_count,
                                     const ProgressFunction& progress);

struct HitRatio {
  PolicyKind policy = PolicyKind::kNone;
  uint64_t cache_rows = 0;
  uint64_t hits = 0;
  double ratio = 0;  // hits / accesses
};

struct HitCurveOptions {
  std::vector<uint64_t> cache_rows;   // the sizes
  std::span<const uint32_t> degrees;  // by node: CountUses
  unsigned threads = 1;
  // Path of a scratch file that must not exist; nothing is left of it.
  std::string scratch_path;
};

// What every policy finds in memory at every size, as a layout would cache: the trace is a cycle, and rows
// that are read to close it are misses. By size, then by policy as in kAllPolicies. Static policies are
// counted, the others simulated: 2 to 6 s each for 65 million accesses. Holds HitCurveBytes. The errors of
// the trace, and kCancelled when `progress` says so.
Result<std::vector<HitRatio>> MeasureHitCurve(IoBackend& backend, const Trace& trace,
                                              const TraceStatistics& statistics,
                                              const HitCurveOptions& options,
                                              const ProgressFunction& progress);
uint64_t HitCurveBytes(const HitCurveOptions& options, uint64_t node_count, uint64_t batch_nodes_max);

// By node: how many neighbor lists of the layout's topology hold it, in the direction of its samples: what
// static-degree goes by. Draws on `budget` while it runs.
Result<std::vector<uint32_t>> CountUses(Store& store, MemoryBudget& budget, const LayoutRecord& layout);

}  // namespace quarry
