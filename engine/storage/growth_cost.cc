#include "quarry/storage/growth_cost.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace quarry {
namespace {

constexpr std::pair<std::string_view, std::string_view> kMeanings[] = {
    {"runs", "Runs of edges over the graph's files."},
    {"run_commits", "Commits that are in these runs."},
    {"run_edges_added", "Edges that these runs add."},
    {"run_edges_removed", "Edges that these runs take away (tombstones)."},
    {"run_bytes", "Bytes of the files of runs."},
    {"added_nodes", "Nodes that were added since the graph's files were written."},
    {"run_amplification",
     "Bytes of these runs, beside the eight of the ends of each edge that they add or remove; 0: there are "
     "none."},
    {"open_seconds", "Seconds, as predicted, that runs take whenever the graph is opened and loaded."},
    {"open_disk_seconds", "Seconds of these that the device takes."},
    {"merge_seconds", "Seconds of these that are spared where lists stay on the disk."},
    {"draw_seconds",
     "Seconds, as predicted, that runs take of each neighbor that is drawn from lists on the disk."},
    {"loaded_slowdown", "Times that sampling from memory is slower, as predicted, because of runs."},
    {"disk_slowdown", "The same of sampling from disk."},
    {"edited_share", "Edges that runs add and remove, beside all edges."},
    {"read_amplification",
     "Bytes of the graph's files and runs, beside those of one file of the same edges."},
    {"bytes_per_edited_edge", "Bytes of runs for each edge that they add or remove."},
    {"fold_seconds", "Seconds, as predicted, of folding the runs into a new file."},
    {"measured_draws", "Neighbors drawn in this process of which runs were measured; older ones count less."},
    {"measured_searches", "Neighbors of these that were looked up among edits."},
    {"measured_seconds", "Seconds of drawing them, and of opening the graph for it."},
    {"measured_run_seconds", "Seconds of these that runs took."},
    {"measured_edits", "Edges that runs added and removed where that was measured."},
    {"measured_slowdown",
     "Times that sampling took longer because of runs, as measured; 0: too little is measured."},
    {"commits", "Commits of nodes and edges, since the database was opened."},
    {"changed_edges", "Edges that these commits added and removed."},
    {"nodes_removed", "Nodes that these commits removed."},
    {"given_bytes", "Bytes of the ends of these edges, eight each."},
    {"commit_bytes", "Bytes of the runs that these commits wrote."},
    {"merge_bytes", "Bytes of runs that several were merged into, since the database was opened."},
    {"compaction_bytes", "Bytes of files that runs were folded into, since the database was opened."},
    {"write_amplification",
     "Bytes that commits, merges and compactions of edges wrote since the database was opened, beside the "
     "eight of the ends of each edge that was added or removed; 0: none was."},
};

// Beyond it, half of what is measured is forgotten: some seconds of sampling.
constexpr uint64_t kDrawsMeasuredMax = 16 * kDrawsMeasuredMin;

uint64_t EditsOf(const TopologyRecord& topology) {
  uint64_t edits = 0;
  for (const TopologyRun& run : topology.runs) edits += run.added + run.removed;
  return edits;
}

double Ratio(uint64_t bytes, uint64_t given) {
  return given == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(given);
}

}  // namespace

GrowthCost CostOf(const TopologyRecord& topology, const DeviceRecord& device) {
  GrowthCost cost = {.topology = topology.name,
                     .runs = topology.runs.size(),
                     .added_nodes = topology.added_nodes,
                     .price = PriceRuns(topology, device)};
  for (const TopologyRun& run : topology.runs) {
    cost.run_commits += run.commits;
    cost.run_edges_added += run.added;
    cost.run_edges_removed += run.removed;
    cost.run_bytes += run.file_bytes;
  }
  cost.run_amplification =
      Ratio(cost.run_bytes, kEdgeGivenBytes * (cost.run_edges_added + cost.run_edges_removed));
  return cost;
}

void GrowthMeasured::Add(const GrowthMeasured& more) {
  const uint64_t edits = std::max(measured_edits, more.measured_edits);
  ForEachField(*this, more, [](std::string_view, auto& sum, const auto& one) { sum += one; });
  measured_edits = edits;
  if (measured_draws > kDrawsMeasuredMax) {
    measured_draws /= 2;
    measured_searches /= 2;
    measured_seconds /= 2;
    measured_run_seconds /= 2;
  }
  measured_slowdown = SlowdownOf(*this);
}

double SlowdownOf(const GrowthMeasured& measured) {
  if (measured.measured_draws < kDrawsMeasuredMin) return 0;
  const double without = measured.measured_seconds - measured.measured_run_seconds;
  // A clock is not exact: half of a nanosecond a draw is less than any takes.
  return measured.measured_seconds / std::max(without, 0.5e-9 * static_cast<double>(measured.measured_draws));
}

bool PaysToFold(const TopologyRecord& topology, const DeviceRecord& device, const GrowthMeasured& measured,
                double slowdown_max) {
  const double slowdown = SlowdownOf(measured);
  if (slowdown == 0 || EditsOf(topology) > 2 * measured.measured_edits) {
    return PaysToFold(topology, device, slowdown_max);
  }
  return !topology.runs.empty() && slowdown > slowdown_max;
}

struct GrowthTally::Sums {
  explicit Sums(uint64_t the_generation) : generation(the_generation) {}
  const uint64_t generation;  // of the topology's file
  Mutex mutex;
  GrowthMeasured measured QUARRY_GUARDED_BY(mutex);
};

std::shared_ptr<RunsMeter> GrowthTally::MeterOf(const TopologyRecord& record, const OpeningSeconds& opening) {
  auto meter = std::make_shared<RunsMeter>();
  meter->edits_ = EditsOf(record);
  meter->opening_ = opening;
  MutexLock lock(mutex_);
  std::shared_ptr<Sums>& sums = measured_[record.name];
  if (sums == nullptr || sums->generation < record.generation)
    sums = std::make_shared<Sums>(record.generation);
  // Whoever has a snapshot of before the fold measures what is no longer there.
  meter->sums_ = sums->generation == record.generation ? sums : std::make_shared<Sums>(record.generation);
  return meter;
}

GrowthMeasured GrowthTally::Measured(const TopologyRecord& topology) const {
  std::shared_ptr<Sums> sums;
  {
    MutexLock lock(mutex_);
    const auto found = measured_.find(topology.name);
    if (found == measured_.end() || found->second->generation != topology.generation) return {};
    sums = found->second;
  }
  MutexLock lock(sums->mutex);
  return sums->measured;
}

void RunsMeter::Add(uint64_t draws, double seconds, uint64_t searches, double search_seconds) {
  GrowthMeasured more = {.measured_draws = draws,
                         .measured_searches = searches,
                         .measured_seconds = seconds,
                         .measured_run_seconds = search_seconds,
                         .measured_edits = edits_};
  if (!opening_counted_.exchange(true)) {
    more.measured_seconds += opening_.all;
    more.measured_run_seconds += opening_.runs;
  }
  MutexLock lock(sums_->mutex);
  sums_->measured.Add(more);
}

void GrowthWritten::Add(const GrowthWritten& more) {
  ForEachField(*this, more, [](std::string_view, auto& sum, const auto& one) { sum += one; });
  write_amplification = Ratio(commit_bytes + merge_bytes + compaction_bytes, given_bytes);
}

void GrowthTally::Add(std::string_view topology, const GrowthWritten& written) {
  MutexLock lock(mutex_);
  written_[std::string(topology)].Add(written);
}

GrowthWritten GrowthTally::Of(std::string_view topology) const {
  MutexLock lock(mutex_);
  const auto found = written_.find(topology);
  return found == written_.end() ? GrowthWritten() : found->second;
}

std::string_view MeaningOfFigure(std::string_view name) {
  const auto found =
      std::ranges::find(kMeanings, name, &std::pair<std::string_view, std::string_view>::first);
  assert(found != std::end(kMeanings));
  return found == std::end(kMeanings) ? std::string_view() : found->second;
}

}  // namespace quarry
