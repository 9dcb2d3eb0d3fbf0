#include "quarry/layout/trace_statistics.h"

#include <algorithm>
#include <atomic>

#include "cache_plan.h"
#include "quarry/base/exhaustion.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "scratch_file.h"

namespace quarry {
namespace {

uint64_t UsesOf(std::span<const NodeId> nodes, const TraceStatistics& statistics) {
  uint64_t uses = 0;
  for (const NodeId node : nodes) uses += statistics.uses[node];
  return uses;
}

// Simulates policies at sizes, each by one of several threads.
class HitCurve {
 public:
  HitCurve(const Trace& trace, const TraceStatistics& statistics, const HitCurveOptions& options,
           const ProgressFunction& progress)
      : trace_(trace), statistics_(statistics), options_(options), progress_(progress) {
    for (const uint64_t rows : options.cache_rows) {
      for (const PolicyKind policy : kAllPolicies) points_.push_back({policy, rows});
    }
    simulated_ = static_cast<uint64_t>(
        std::ranges::count_if(points_, [](const HitRatio& point) { return !IsStatic(point.policy); }));
  }

  Result<std::vector<HitRatio>> Run(IoBackend& backend) {
    const ScratchFile scratch(backend, options_.scratch_path);
    QUARRY_TRY(next_uses_,
               NextUses::Make(backend, trace_, statistics_.uses.size(), /*cyclic=*/true, scratch.path()));
    scratch.Remove();
    QUARRY_RETURN_IF_ERROR(RunOnThreads("simulate", options_.threads, [this](unsigned) { return Work(); }));
    for (HitRatio& point : points_) {
      if (statistics_.accesses > 0) {
        point.ratio = static_cast<double>(point.hits) / static_cast<double>(statistics_.accesses);
      }
    }
    return std::move(points_);
  }

 private:
  // The first error, of whichever thread.
  Status Work() {
    Status status;
    for (size_t point = next_++; status.ok() && point < points_.size(); point = next_++) {
      status = CatchExhaustion("simulating caches", [&] { return Measure(points_[point]); });
    }
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = status;
    return error_;
  }

  Status Measure(HitRatio& point) {
    switch (point.policy) {
      case PolicyKind::kNone:
        return Status::Ok();
      case PolicyKind::kStaticDegree:
        point.hits = UsesOf(TopNodes(options_.degrees, point.cache_rows), statistics_);
        return Status::Ok();
      case PolicyKind::kStaticFrequency:
        point.hits = UsesOf(TopNodes(statistics_.uses, point.cache_rows), statistics_);
        return Status::Ok();
      default:
        return Simulate(point);
    }
  }

  Status Simulate(HitRatio& point) {
    uint64_t misses = 0;
    std::vector<NodeId> last_misses;
    const auto visit = [&](uint64_t batch, const TraceBatch& nodes, const CacheStep& step) -> Status {
      misses += step.misses;
      for (size_t i = 0; batch + 1 == trace_.batch_count() && i < step.slots.size(); ++i) {
        if (step.slots[i] == kNoSlot) last_misses.push_back(nodes.nodes[i]);
      }
      return ReportBatch();
    };
    QUARRY_TRY(const CachePlan plan, SimulateCache(trace_, next_uses_.get(),
                                                   {.policy = point.policy,
                                                    .node_count = statistics_.uses.size(),
                                                    .capacity = point.cache_rows},
                                                   visit));
    // What must be read to close the cycle is a miss, once.
    std::ranges::sort(last_misses);
    misses += static_cast<uint64_t>(std::ranges::count_if(plan.carried, [&](const auto& carried) {
      return !std::ranges::binary_search(last_misses, carried.node);
    }));
    point.hits = statistics_.accesses - misses;
    return Status::Ok();
  }

  Status ReportBatch() {
    MutexLock lock(mutex_);
    if (!error_.ok()) return error_;
    ++batches_done_;
    return progress_ ? progress_("simulating caches", batches_done_, simulated_ * trace_.batch_count())
                     : Status::Ok();
  }

  const Trace& trace_;
  const TraceStatistics& statistics_;
  const HitCurveOptions& options_;
  const ProgressFunction& progress_;
  std::unique_ptr<NextUses> next_uses_;
  std::vector<HitRatio> points_;  // each written by whose turn it is
  uint64_t simulated_ = 0;        // points that take a simulation
  std::atomic<size_t> next_{0};
  Mutex mutex_;
  uint64_t batches_done_ QUARRY_GUARDED_BY(mutex_) = 0;
  Status error_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace

double TraceStatistics::ShareOfTop(uint64_t count) const {
  if (accesses == 0) return 0;
  return static_cast<double>(UsesOf(TopNodes(uses, count), *this)) / static_cast<double>(accesses);
}

Result<TraceStatistics> MeasureTrace(const Trace& trace, uint64_t node_count,
                                     const ProgressFunction& progress) {
  TraceStatistics statistics{.batch_count = trace.batch_count()};
  statistics.uses.resize(node_count);
  TraceCursor cursor(trace);
  for (uint64_t batch = 0; batch < trace.batch_count(); ++batch) {
    QUARRY_TRY(const TraceBatch* const nodes, cursor.Read(batch));
    for (const NodeId node : nodes->nodes) ++statistics.uses[node];
    statistics.accesses += nodes->nodes.size();
    statistics.batch_nodes_max =
        std::max(statistics.batch_nodes_max, static_cast<uint32_t>(nodes->nodes.size()));
    if (progress) QUARRY_RETURN_IF_ERROR(progress("counting accesses", batch + 1, trace.batch_count()));
  }
  statistics.distinct_rows =
      node_count - static_cast<uint64_t>(std::ranges::count(statistics.uses, uint32_t{0}));
  return statistics;
}

Result<std::vector<HitRatio>> MeasureHitCurve(IoBackend& backend, const Trace& trace,
                                              const TraceStatistics& statistics,
                                              const HitCurveOptions& options,
                                              const ProgressFunction& progress) {
  return HitCurve(trace, statistics, options, progress).Run(backend);
}

uint64_t HitCurveBytes(const HitCurveOptions& options, uint64_t node_count, uint64_t batch_nodes_max) {
  uint64_t simulation_bytes = 0;
  for (const uint64_t rows : options.cache_rows) {
    for (const PolicyKind policy : kAllPolicies) {
      const CachePlanOptions plan{.policy = policy, .node_count = node_count, .capacity = rows};
      simulation_bytes = std::max(simulation_bytes, CachePlanBytes(plan, batch_nodes_max));
    }
  }
  return options.threads * simulation_bytes;  // of which one is enough to find next uses
}

}  // namespace quarry
