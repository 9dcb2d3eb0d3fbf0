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
