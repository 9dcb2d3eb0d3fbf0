#include "cache_curve.h"

#include "quarry/base/trace.h"

namespace quarry::cli {

Result<CacheCurve> MeasureCacheCurve(Database& database, const LayoutRecord& record, const Trace& trace,
                                     const CacheCurveOptions& options, const ProgressFunction& progress) {
  const uint64_t node_count = database.manifest()->node_count;
  QUARRY_TRY(const std::vector<uint32_t> degrees, CountUses(database.store(), database.budget(), record));
  const HitCurveOptions curve = {.cache_rows = options.cache_rows,
                                 .degrees = degrees,
                                 .threads = options.threads,
                                 .scratch_path = options.scratch_path};
  constexpr uint64_t kBytesPerNode = 2 * sizeof(uint32_t);  // degrees, uses
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             database.budget().Reserve(
                 HitCurveBytes(curve, node_count, options.batch_nodes_max) + node_count * kBytesPerNode,
                 "simulating caches"));
  CacheCurve measured;
  {
    const ScopedSpan span("count uses");
    QUARRY_TRY(measured.statistics, MeasureTrace(trace, node_count, progress));
  }
  const ScopedSpan span("simulate caches");
  QUARRY_TRY(measured.hits, MeasureHitCurve(database.backend(), trace, measured.statistics, curve, progress));
  return measured;
}

}  // namespace quarry::cli
