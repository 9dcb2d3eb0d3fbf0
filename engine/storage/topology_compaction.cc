#include "quarry/storage/topology_compaction.h"

#include <algorithm>
#include <filesystem>

#include "quarry/base/kill_point.h"
#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/topology_run.h"

namespace quarry {
namespace {

constexpr uint64_t kFoldWriterBytes = 2 * kMiB;
constexpr uint64_t kFoldBytes = 16 * kMiB;  // a scanner's buffers, and the writer's

class TopologyFold {
 public:
  TopologyFold(Store& store, const Topology& topology, const TopologyRecord& record,
               const ProgressFunction& progress)
      : store_(store), topology_(topology), record_(record), progress_(progress) {}

  // Sections in the order in which an import writes them.
  Result<uint64_t> Write(const std::string& file, uint64_t generation) {
    QUARRY_TRY(const auto writer,
               DataFileWriter::Create(store_.backend(), store_.path() + "/" + file, kFoldWriterBytes));
    for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
      if (!topology_.has(side)) continue;
      const TopologySections names = SectionsOf(side);
      QUARRY_RETURN_IF_ERROR(WriteColumn(*writer, side, EdgeColumn::kNeighbors, names.indices));
      if (record_.weighted) {
        QUARRY_RETURN_IF_ERROR(WriteColumn(*writer, side, EdgeColumn::kWeights, names.weights));
      }
      const auto indptr = std::as_bytes(topology_.indptr(side));
      writer->BeginSection(names.indptr, DataFileWriter::Cover::kPages, indptr.size());
      QUARRY_RETURN_IF_ERROR(writer->Append(indptr));
      QUARRY_RETURN_IF_ERROR(writer->EndSection());
    }
    return writer->Finish({.kind = FileKind::kTopology,
                           .database_id = store_.manifest()->database_id,
                           .generation = generation,
                           .row_count = record_.node_count,
                           .edge_count = record_.edge_count});
  }

 private:
  Status WriteColumn(DataFileWriter& writer, Adjacency side, EdgeColumn column, std::string_view name) {
    QUARRY_TRY(const auto scanner, EdgeColumnScanner::Make(store_.backend(), topology_, side, column));
    writer.BeginSection(name, DataFileWriter::Cover::kPages, topology_.edge_count() * sizeof(uint32_t));
    while (true) {
      QUARRY_TRY(const std::span<const uint32_t> values, scanner->Next());
      if (values.empty()) break;
      QUARRY_RETURN_IF_ERROR(writer.Append(std::as_bytes(values)));
      KillPoint("topology: part of the file written");
      done_ += values.size();
      const uint64_t columns = (record_.has_csr ? 2 : 1) * (record_.weighted ? 2 : 1);
      if (progress_)
        QUARRY_RETURN_IF_ERROR(progress_("compacting edges", done_, columns * record_.edge_count));
    }
    return writer.EndSection();
  }

  Store& store_;
  const Topology& topology_;
  const TopologyRecord& record_;
  const ProgressFunction& progress_;
  uint64_t done_ = 0;
};

Status CheckFoldSpace(const Store& store, const TopologyRecord& record) {
  std::error_code error;
  const auto space = std::filesystem::space(store.path(), error);
  uint64_t bytes = record.file_bytes;
  for (const TopologyRun& run : record.runs) bytes += run.file_bytes;
  if (error || space.available >= bytes) return Status::Ok();
  return MakeStatus(Code::kNoSpace, "{}: {} free, and compacting topology \"{}\" writes {}", store.path(),
                    FormatBytes(space.available), record.name, FormatBytes(bytes));
}

// The first of the last runs that become one.
size_t FirstToMerge(std::span<const TopologyRun> runs) {
  size_t first = runs.size() - 1;
  uint64_t behind = runs[first].added + runs[first].removed;
  while (first > 0) {
    const uint64_t edges = runs[first - 1].added + runs[first - 1].removed;
    if (edges > 4 * behind) break;
    behind += edges;
    --first;
  }
  return first + 1 < runs.size() ? first : 0;
}

Result<TopologyRun> WriteMerged(Store& store, const TopologyRecord& record,
                                std::span<const TopologyRun> merged, const TopologyRun& run) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  QUARRY_TRY(const auto writer, TopologyRunWriter::Create(store.backend(), store.path(), record, run));
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    if (side == Adjacency::kCsr && !record.has_csr) continue;
    QUARRY_TRY(const ListEdits edits,
               LoadRuns(store.backend(), store.path(), record, merged, manifest->database_id, side));
    QUARRY_RETURN_IF_ERROR(writer->Add(side, edits));
  }
  return writer->Finish(manifest->database_id);
}

}  // namespace

Status ClearTopologyFile(Store& store, const std::string& file) {
  QUARRY_RETURN_IF_ERROR(store.PrepareToWrite());
  std::error_code error;
  if (!std::filesystem::exists(store.path() + "/" + file, error)) return Status::Ok();
  QUARRY_RETURN_IF_ERROR(store.UpdateManifest([](Manifest&) { return Status::Ok(); }));
  Discard(store.backend(), store.path() + "/" + file);
  return Status::Ok();
}

Result<TopologyCompactionReport> CompactTopology(Store& store, MemoryBudget& budget, const std::string& name,
                                                 bool dry_run, const ProgressFunction& progress) {
  const double start = MonotonicSeconds();
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  const TopologyRecord* const found = snapshot->FindTopology(name);
  if (found == nullptr) return store.OpenTopology(name).status();
  const TopologyRecord record = *found;
  TopologyCompactionReport report = {.runs = record.runs.size(),
                                     .nodes_added = record.added_nodes,
                                     .edge_count = record.edge_count,
                                     .bytes = record.file_bytes,
                                     .timestamp = record.timestamp(),
                                     .generation = record.generation + (IsFolded(record) ? 0 : 1)};
  for (const TopologyRun& run : record.runs) {
    report.edges_added += run.added;
    report.edges_removed += run.removed;
  }
  if (dry_run || IsFolded(record)) return report;
  const std::shared_ptr<const void> held = store.HoldRuns(Store::RunsRight::kReplace);
  if (held == nullptr) {
    return MakeStatus(Code::kBusy, "{}: edges are being compacted: wait for it", store.path());
  }
  QUARRY_RETURN_IF_ERROR(CheckFoldSpace(store, record));
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(Topology::ResidentBytes(record) + kFoldBytes, "compacting a topology"));
  QUARRY_TRY(std::unique_ptr<Topology> topology, store.OpenTopology(*snapshot, name));
  TopologyRecord next = record;
  next.generation = report.generation;
  next.file = fmt::format("topology/{}-{}.qtp", name, next.generation);
  next.folded = record.timestamp();
  next.runs.clear();
  next.added_nodes = 0;
  QUARRY_RETURN_IF_ERROR(ClearTopologyFile(store, next.file));
  const ScopedSpan span("compact a topology");
  const auto written = TopologyFold(store, *topology, record, progress).Write(next.file, next.generation);
  topology.reset();
  if (!written.ok()) {
    Discard(store.backend(), store.path() + "/" + next.file);
    return written.status();
  }
  report.bytes = next.file_bytes = *written;
  KillPoint("topology: file written, not named");
  // After an error the file may be named: it stays, and the next open knows.
  QUARRY_RETURN_IF_ERROR(store.SwitchTopology(record, next));
  report.seconds = MonotonicSeconds() - start;
  return report;
}

Status MergeRuns(Store& store, MemoryBudget& budget, const std::string& name) {
  const std::shared_ptr<const void> held = store.HoldRuns(Store::RunsRight::kReplace);
  if (held == nullptr) return Status::Ok();
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  const TopologyRecord* const record = snapshot->FindTopology(name);
  if (record == nullptr || record->runs.size() <= kTopologyRunsMax) return Status::Ok();
  const std::span<const TopologyRun> merged = std::span(record->runs).subspan(FirstToMerge(record->runs));
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(RunsResidentBytes(*record) + kFoldBytes, "merging runs of edges"));
  // Commits that come meanwhile take the numbers after the last one's, and so this run is told apart by both ends.
  TopologyRun run = merged.back();
  run.file = fmt::format("topology/{}-{}-{}-{}.qtr", name, record->generation, merged.front().generation,
                         run.generation);
  run.edges_before = merged.front().edges_before;
  run.lists = run.commits = 0;
  for (const TopologyRun& one : merged) run.commits += one.commits;
  QUARRY_RETURN_IF_ERROR(ClearTopologyFile(store, run.file));
  const ScopedSpan span("merge runs");
  const auto written = WriteMerged(store, *record, merged, run);
  if (!written.ok()) {
    Discard(store.backend(), store.path() + "/" + run.file);
    return written.status();
  }
  TopologyRecord next = *record;
  next.runs.resize(next.runs.size() - merged.size());
  next.runs.push_back(*written);
  KillPoint("topology: runs merged, not named");
  return store.SwitchTopology(*record, next);
}

}  // namespace quarry
