#include "inspection.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "quarry/layout/cost_model.h"
#include "quarry/storage/growth_cost.h"
#include "quarry/storage/topology_run.h"
#include "table_scan.h"

namespace quarry {
namespace {

constexpr std::string_view kSplitNames[] = {"none", "train", "valid", "test"};  // by enum Split

// Without what cannot be read: others may write to the folder.
uint64_t BytesInFolder(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const uint64_t file_bytes = entry->file_size(ignored);
    if (!ignored) bytes += file_bytes;
  }
  return bytes;
}

// The disk space of the page file of an embedding table, which has holes, and of its page maps.
uint64_t DiskBytes(const Store& store, const EmbeddingRecord& table) {
  uint64_t bytes = 0;
  for (const std::string& file : table.files()) {
    struct stat status {};
    if (stat((store.path() + "/" + file).c_str(), &status) != 0) continue;
    bytes += static_cast<uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

Status CountSplits(Store& store, MemoryBudget& budget, const std::shared_ptr<const Snapshot>& snapshot,
                   std::vector<wire::Counter>& counters) {
  if (snapshot->FindTable("split") == nullptr) return Status::Ok();
  QUARRY_TRY(TableScan scan, TableScan::Open(store, budget, snapshot, "split"));
  std::array<uint64_t, std::size(kSplitNames)> counts{};
  while (true) {
    QUARRY_TRY(const std::span<const std::byte> rows, scan.Next());
    if (rows.empty()) break;
    for (size_t at = 0; at < rows.size(); at += scan.geometry().row_bytes) {
      const auto split = std::to_integer<size_t>(rows[at]);
      if (split < counts.size()) ++counts[split];
    }
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    counters.push_back({fmt::format("splits.{}", kSplitNames[i]), static_cast<double>(counts[i])});
  }
  return Status::Ok();
}

// As training counts them: the manifest says what an import found.
Status CountLabels(Store& store, MemoryBudget& budget, const std::shared_ptr<const Snapshot>& snapshot,
                   std::vector<wire::Counter>& counters) {
  if (snapshot->FindTable("label") == nullptr) return Status::Ok();
  QUARRY_TRY(TableScan scan, TableScan::Open(store, budget, snapshot, "label"));
  int64_t largest = -1;
  while (true) {
    QUARRY_TRY(const std::span<const std::byte> rows, scan.Next());
    if (rows.empty()) break;
    for (size_t at = 0; at + sizeof(largest) <= rows.size(); at += scan.geometry().row_bytes) {
      int64_t label = 0;
      std::memcpy(&label, rows.data() + at, sizeof(label));
      largest = std::max(largest, label);
    }
  }
  counters.push_back({"classes", static_cast<double>(largest + 1)});
  return Status::Ok();
}

// What runs cost, and the nodes that came with each: those of a damaged run are not told.
void AddGrowth(Store& store, const Snapshot& snapshot, std::vector<wire::Counter>& counters) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const TopologyRecord& topology : snapshot.topologies) {
    ForEachFigure(CostOf(topology, DeviceOf(*manifest)), [&](std::string_view name, auto value) {
      counters.push_back({fmt::format("growth.{}.{}", topology.name, name), static_cast<double>(value)});
    });
    const auto nodes = NodesOfRuns(store.backend(), store.path(), topology, manifest->database_id);
    for (size_t i = 0; nodes.ok() && i < nodes->size(); ++i) {
      counters.push_back(
          {fmt::format("nodes_of_runs.{}.{}", topology.name, i), static_cast<double>((*nodes)[i])});
    }
  }
}

}  // namespace

Result<wire::MaintenanceReport> Inspect(Store& store, MemoryBudget& budget) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  wire::MaintenanceReport report;
  const auto add = [&](std::string name, uint64_t value) {
    report.counters.push_back({std::move(name), static_cast<double>(value)});
  };
  add("timestamp", snapshot->timestamp);
  add("disk_bytes.catalog", BytesInFolder(store.path() + "/catalog"));
  QUARRY_RETURN_IF_ERROR(CountSplits(store, budget, snapshot, report.counters));
  QUARRY_RETURN_IF_ERROR(CountLabels(store, budget, snapshot, report.counters));
  for (const TableRecord& table : snapshot->tables) {
    QUARRY_TRY(const std::unique_ptr<RowOverlay> overlay, store.OpenOverlay(table.name, snapshot));
    if (overlay->empty()) continue;
    add("changed_rows." + table.name, overlay->TouchedRows().size());
    add("changed_rows_bytes." + table.name, overlay->resident_bytes());
  }
  AddGrowth(store, *snapshot, report.counters);
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const EmbeddingRecord& table : manifest->embeddings) {
    add("disk_bytes.embeddings." + table.name, DiskBytes(store, table));
  }
  return report;
}

}  // namespace quarry
