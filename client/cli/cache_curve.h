// What every cache policy finds in memory at every size, of a trace: `quarry layout trace`, `quarry plot
// cache`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/database.h"
#include "quarry/layout/trace_statistics.h"

namespace quarry::cli {

struct CacheCurve {
  TraceStatistics statistics;
  std::vector<HitRatio> hits;  // by size, then by policy as in kAllPolicies
};

struct CacheCurveOptions {
  std::vector<uint64_t> cache_rows;  // the sizes
  uint64_t batch_nodes_max = 0;      // from the layout's directory
  unsigned threads = 1;
  std::string scratch_path;  // a file that must not exist; nothing is left of it
};

// The curve of `trace`, which is open and counted, of the layout `record`. Draws on the database's budget
// while it runs.
Result<CacheCurve> MeasureCacheCurve(Database& database, const LayoutRecord& record, const Trace& trace,
                                     const CacheCurveOptions& options, const ProgressFunction& progress);

}  // namespace quarry::cli
