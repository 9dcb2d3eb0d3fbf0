#include "layout_report.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/layout/changed_seeds.h"
#include "quarry/layout/cost_model.h"
#include "quarry/layout/layout.h"
#include "quarry/layout/mend_price.h"
#include "quarry/layout/trace_statistics.h"
#include "quarry/storage/growth_cost.h"

namespace quarry {
namespace {

// A layout with its trace.
struct TracedLayout {
  std::unique_ptr<Layout> layout;
  std::unique_ptr<Trace> trace;
  MemoryBudget::Reservation reservation;  // for both

  static Result<TracedLayout> Open(Store& store, MemoryBudget& budget, const std::string& name) {
    TracedLayout opened;
    QUARRY_TRY(opened.layout, Layout::Open(store, name));
    if (!opened.directory().tables.empty()) {
      return MakeStatus(Code::kUnsupported,
                        "layout \"{}\" packs rows of several types, and what is explained and traced is rows "
                        "of one table: `quarry layout list` says what it reads",
                        name);
    }
    QUARRY_TRY(opened.trace, opened.layout->OpenTrace(store));
    QUARRY_TRY(
        opened.reservation,
        budget.Reserve(opened.layout->resident_bytes() + opened.trace->resident_bytes(), "an open layout"));
    return opened;
  }
  const LayoutRecord& record() const { return layout->record(); }
  const LayoutDirectory& directory() const { return layout->directory(); }
};

// Where scratch files may go. What a killed process left there is removed: nobody else has the database open.
std::string ScratchPath(Store& store) {
  constexpr std::string_view kPrefix = ".explain-";
  const std::filesystem::path folder = std::filesystem::path(store.path()) / "layouts";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with(kPrefix)) {
      Discard(store.backend(), entry.path().string());
    }
  }
  return folder / fmt::format("{}{}", kPrefix, getpid());
}

// Counters by their names.
class CounterList {
 public:
  template <typename Number>
  void Add(std::string name, Number value) {
    counters_.push_back({std::move(name), static_cast<double>(value)});
  }
  std::vector<wire::Counter> Take() { return std::move(counters_); }

 private:
  std::vector<wire::Counter> counters_;
};

// Where the rows of a cycle are served from, the nearest level first: rows that it holds, and accesses, of chunks
// also the rows that only enter the cache.
void AddLevels(const TracedLayout& layout, CounterList& counters) {
  struct Level {
    uint64_t rows = 0, served = 0;
  };
  Level segments, chunks;
  for (const SegmentEntry& segment : layout.directory().segments) segments.rows += segment.rows;
  for (const BatchEntry& batch : layout.directory().batches) {
    segments.served += batch.segment_rows;
    chunks.rows += batch.chunk_rows;
    chunks.served += batch.chunk_rows;
  }
  const Level levels[] = {{layout.record().cache_rows, layout.record().hits}, segments, chunks};
  for (size_t i = 0; i < std::size(levels); ++i) {
    counters.Add(fmt::format("levels.{}.rows", i), levels[i].rows);
    counters.Add(fmt::format("levels.{}.served", i), levels[i].served);
  }
}

void AddPath(const PathCost& cost, uint64_t epochs, const std::string& prefix, CounterList& counters) {
  const auto add = [&](std::string_view name, auto value) {
    counters.Add(fmt::format("{}.{}", prefix, name), value);
  };
  add("path", cost.path);
  add("policy", cost.policy);
  add("bytes_useful", cost.useful_bytes);
  add("bytes_read", cost.read_bytes);
  add("bytes_written", cost.written_bytes);
  add("read_amplification", cost.amplification());
  add("requests", cost.requests);
  add("seconds_per_epoch", cost.seconds);
  add("gather_bound", cost.gather_bound);
  add("processor_bound", cost.processor_bound);
  add("one_time_seconds", cost.one_time_seconds);
  add("one_time_bytes_written", cost.one_time_bytes);
  add("amortised_seconds_per_epoch", cost.AmortisedSeconds(epochs));
}

Result<std::vector<PathCost>> PricePaths(Store& store, MemoryBudget& budget, const TracedLayout& layout,
                                         const ProgressFunction& progress) {
  const LayoutRecord& record = layout.record();
  CostModelOptions options{.device = DeviceOf(*store.manifest()),
                           .processors = ProcessorCount(),
                           .cache_rows = record.cache_rows,
                           .batches_per_epoch = layout.directory().batches_per_epoch,
                           .policy = record.policy,
                           .batches_per_segment = record.batches_per_segment,
                           .hash_functions = record.hash_functions,
                           .seed = record.spec.seed,
                           .scratch_path = ScratchPath(store)};
  {
    QUARRY_TRY(const std::unique_ptr<FeatureTable> table, store.OpenTable(record.spec.feature_table));
    options.geometry = table->geometry();
    options.block_bytes = table->block_bytes();
  }
  for (const BatchEntry& batch : layout.directory().batches) {
    options.planned_block_bytes += RoundUp(batch.block_bytes, kPageBytes);
  }
  std::vector<uint32_t> degrees;
  if (options.policy == PolicyKind::kStaticDegree) {
    QUARRY_TRY(degrees, CountUses(store, budget, record));
    options.degrees = degrees;
  }
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(
                 CostModelBytes(options, layout.directory().nodes_max()) + degrees.size() * sizeof(uint32_t),
                 "explaining a layout"));
  const ScopedSpan span("price the ways of reading");
  return PredictPaths(store.backend(), *layout.trace, options, progress);
}

// What has become of the graph since the layout was planned, and what its runs cost whoever samples it: layouts that are
// built, and passes that are sampled live.
Status AddGraph(Store& store, MemoryBudget& budget, const TracedLayout& layout, CounterList& counters,
                const ProgressFunction& progress) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  const TopologyRecord* const topology = snapshot->FindTopology(layout.record().spec.topology);
  if (topology == nullptr) return Status::Ok();
  QUARRY_TRY(const ChangedSeeds changed,
             CountChangedSeeds(store, budget, *layout.layout, *snapshot, progress));
  const DeviceRecord device = DeviceOf(*store.manifest());
  const auto add = [&](std::string_view name, auto value) {
    counters.Add(fmt::format("graph.{}", name), value);
  };
  ForEachFigure(CostOf(*topology, device), add);
  add("edges_changed", topology->ChangedSince(layout.record().timestamp));
  add("lists_known", changed.known ? 1 : 0);
  add("lists_changed", changed.lists);
  add("seeds", changed.seeds);
  add("seeds_changed", changed.seeds_changed);
  add("batches_changed", changed.batches.size());
  const MendPrice mend = changed.batches.empty()
                             ? MendPrice()
                             : PriceMend(MendCountsOf(*layout.layout, *store.manifest(), changed), device);
  add("mend_seconds", mend.mend_seconds);
  add("anew_seconds", mend.build_seconds);
  add("mends", mend.mends() ? 1 : 0);
  return Status::Ok();
}

// The path that the layout is.
size_t OwnPath(const std::vector<PathCost>& paths, const LayoutRecord& record) {
  const AccessPath own =
      record.batches_per_segment > 0 ? AccessPath::kSegmentCaches : AccessPath::kPackedChunks;
  const auto found = std::ranges::find_if(
      paths, [&](const PathCost& cost) { return cost.path == own && cost.policy == record.policy; });
  return static_cast<size_t>(found - paths.begin());
}

// The share of accesses that go to the `percent` % of the nodes that are used most.
double ShareOfTopPercent(const TraceStatistics& statistics, uint64_t percent) {
  return statistics.ShareOfTop(statistics.uses.size() * percent / 100);
}

void AddStatistics(const TraceStatistics& statistics, CounterList& counters) {
  const double batches = static_cast<double>(std::max<uint64_t>(1, statistics.batch_count));
  counters.Add("batches", statistics.batch_count);
  counters.Add("nodes", statistics.uses.size());
  counters.Add("accesses", statistics.accesses);
  counters.Add("distinct_rows", statistics.distinct_rows);
  counters.Add("input_nodes_mean", static_cast<double>(statistics.accesses) / batches);
  counters.Add("input_nodes_max", statistics.batch_nodes_max);
  for (const uint64_t percent : {1, 5, 10, 20}) {
    counters.Add(fmt::format("top_shares.{}", percent), ShareOfTopPercent(statistics, percent));
  }
  double before = 0;
  for (uint64_t decile = 0; decile < 10; ++decile) {
    const double share = ShareOfTopPercent(statistics, 10 * (decile + 1));
    counters.Add(fmt::format("decile_shares.{}", decile), share - std::exchange(before, share));
  }
}

}  // namespace

Result<wire::MaintenanceReport> ExplainLayout(Store& store, MemoryBudget& budget,
                                              const wire::ExplainLayout& explain,
                                              const ProgressFunction& progress) {
  QUARRY_TRY(const TracedLayout layout, TracedLayout::Open(store, budget, explain.name));
  QUARRY_TRY(const std::vector<PathCost> paths, PricePaths(store, budget, layout, progress));
  const PathChoice choice = ChoosePath(paths, explain.epochs);
  CounterList counters;
  counters.Add("best", choice.best);
  counters.Add("own", OwnPath(paths, layout.record()));
  AddLevels(layout, counters);
  for (size_t i = 0; i < paths.size(); ++i) {
    AddPath(paths[i], explain.epochs, fmt::format("paths.{}", i), counters);
  }
  QUARRY_RETURN_IF_ERROR(AddGraph(store, budget, layout, counters, progress));
  return wire::MaintenanceReport{.counters = counters.Take(), .notes = {choice.why}};
}

Result<wire::MaintenanceReport> TraceLayout(Store& store, MemoryBudget& budget,
                                            const wire::TraceLayout& trace,
                                            const ProgressFunction& progress) {
  QUARRY_TRY(const TracedLayout layout, TracedLayout::Open(store, budget, trace.name));
  const LayoutDirectory& directory = layout.directory();
  const uint64_t node_count = store.manifest()->node_count;
  QUARRY_TRY(const std::vector<uint32_t> degrees, CountUses(store, budget, layout.record()));
  HitCurveOptions options = {
      .degrees = degrees, .threads = ProcessorCount(), .scratch_path = ScratchPath(store)};
  for (const uint64_t bytes : trace.cache_bytes) {
    options.cache_rows.push_back(std::min(bytes / directory.row_stride, directory.node_count));
  }
  constexpr uint64_t kBytesPerNode = 2 * sizeof(uint32_t);  // degrees, uses
  QUARRY_TRY(
      const MemoryBudget::Reservation reservation,
      budget.Reserve(HitCurveBytes(options, node_count, directory.nodes_max()) + node_count * kBytesPerNode,
                     "simulating caches"));
  CounterList counters;
  TraceStatistics statistics;
  {
    const ScopedSpan span("count uses");
    QUARRY_TRY(statistics, MeasureTrace(*layout.trace, node_count, progress));
  }
  AddStatistics(statistics, counters);
  const ScopedSpan span("simulate caches");
  QUARRY_TRY(const std::vector<HitRatio> hits,
             MeasureHitCurve(store.backend(), *layout.trace, statistics, options, progress));
  auto hit = hits.begin();
  for (size_t i = 0; i < options.cache_rows.size(); ++i) {
    counters.Add(fmt::format("hit_ratios.{}.cache_rows", i), options.cache_rows[i]);
    for (const PolicyKind policy : kAllPolicies) {
      counters.Add(fmt::format("hit_ratios.{}.{}", i, NameOf(policy)), (hit++)->ratio);
    }
  }
  return wire::MaintenanceReport{.counters = counters.Take()};
}

}  // namespace quarry
