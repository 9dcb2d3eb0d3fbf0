#include "quarry/storage/topology_compaction.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "compaction_pace.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/compaction_progress.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/folded_lists.h"
#include "quarry/storage/growth_cost.h"
#include "quarry/storage/topology_run.h"

namespace quarry {
namespace {

constexpr uint64_t kFoldWriterBytes = 2 * kMiB;
constexpr uint64_t kFoldBytes = 16 * kMiB;  // a scanner's buffers, the writer's, and a piece of checksums
constexpr uint64_t kPieceBytes = 256 * kKiB;

// In columns of edges.
uint64_t ValuesOf(const TopologyRecord& record) {
  const uint64_t columns = 1 + (record.weighted ? 1 : 0) + (record.relation_count > 1 ? 1 : 0);
  return (record.has_csr ? 2 : 1) * columns * record.edge_count;
}

// Writes the sections in the order in which an import does, and goes on where `done` says.
class TopologyFold {
 public:
  TopologyFold(Store& store, const Topology& topology, const TopologyRecord& record, CompactionProgress& done,
               const ProgressFunction& progress, const CompactionPace& pace)
      : store_(store),
        topology_(topology),
        record_(record),
        files_(record),
        narrower_(record.relation_count),
        done_(done),
        progress_(progress),
        piece_bytes_(
            std::clamp(RoundDown(pace.piece_bytes, kPageBytes), kPageBytes, EdgeColumnScanner::kPieceBytes)),
        sync_bytes_(pace.SyncBytes(record.file_bytes)) {}

  Result<uint64_t> Write() {
    const std::vector<Part> parts = Parts();
    QUARRY_TRY(const auto writer, Open(parts));
    while (finished_ < parts.size()) {
      const Part& part = parts[finished_];
      QUARRY_RETURN_IF_ERROR(part.column ? WriteColumn(*writer, part) : WriteIndptr(*writer, part));
      QUARRY_RETURN_IF_ERROR(Count(*writer, part));
    }
    return writer->Finish({.kind = FileKind::kTopology,
                           .database_id = store_.manifest()->database_id,
                           .generation = files_.generation,
                           .row_count = record_.node_count,
                           .edge_count = record_.edge_count});
  }
  uint64_t resumed_edges() const { return resumed_edges_; }

 private:
  // A section; those of checksums come behind them.
  struct Part {
    Adjacency side = Adjacency::kCsc;
    std::optional<EdgeColumn> column;  // none: indptr
    std::string_view name;
  };

  std::vector<Part> Parts() const {
    std::vector<Part> parts;
    for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
      if (!topology_.has(side)) continue;
      const TopologySections names = SectionsOf(side);
      parts.push_back({side, EdgeColumn::kNeighbors, names.indices});
      if (record_.relation_count > 1) parts.push_back({side, EdgeColumn::kRelations, names.relations});
      if (record_.weighted) parts.push_back({side, EdgeColumn::kWeights, names.weights});
      parts.push_back({side, std::nullopt, names.indptr});
    }
    return parts;
  }

  // The file that an interrupted fold left, where it holds what its record says, else a new one.
  Result<std::unique_ptr<DataFileWriter>> Open(const std::vector<Part>& parts) {
    const std::string path = store_.path() + "/" + files_.rows;
    if (done_.rows > 0) {
      auto writer = Resume(path, parts);
      if (writer.ok() || !IsUseless(writer.status())) return writer;
      LogInfo("{}: compacting topology \"{}\" begins anew", writer.status().message(), record_.name);
      done_.rows = values_ = resumed_edges_ = 0;
      done_.finished = done_.finished_digest = finished_ = finished_digest_ = 0;
      done_.mark = {};
    }
    Discard(store_.backend(), store_.path() + "/" + files_.progress);
    QUARRY_RETURN_IF_ERROR(ClearTopologyFile(store_, files_.rows));
    return DataFileWriter::Create(store_.backend(), path, kFoldWriterBytes);
  }

  Result<std::unique_ptr<DataFileWriter>> Resume(const std::string& path, const std::vector<Part>& parts) {
    if (done_.finished >= parts.size() || !parts[done_.finished].column) {
      return MakeStatus(Code::kCorruption, "{}: it has {} sections", path, done_.finished);
    }
    QUARRY_TRY(auto writer, DataFileWriter::Reopen(store_.backend(), path, kFoldWriterBytes));
    while (finished_ < done_.finished) QUARRY_RETURN_IF_ERROR(PassOver(*writer, parts[finished_]));
    if (finished_digest_ != done_.finished_digest) {
      return MakeStatus(Code::kCorruption,
                        "{}: the checksums of its first {} sections are not those that were synced", path,
                        finished_);
    }
    writer->BeginSection(parts[finished_].name, DataFileWriter::Cover::kPages, BytesOf(parts[finished_]));
    QUARRY_RETURN_IF_ERROR(writer->Continue(done_.mark));
    values_ = resumed_edges_ = done_.rows;
    begun_ = true;
    return writer;
  }

  // A section that is whole: its pages stay, and its checksums are read.
  Status PassOver(DataFileWriter& writer, const Part& part) {
    const uint64_t bytes = BytesOf(part), pages = CeilDiv(bytes, kPageBytes), tail = bytes % kPageBytes;
    writer.BeginSection(part.name, DataFileWriter::Cover::kCells, bytes);
    const uint64_t checksums_at = writer.position() + pages * kPageBytes;
    writer.SkipWritten(bytes - tail);
    QUARRY_TRY(const IoBuffer piece, IoBuffer::Allocate(kPieceBytes));
    if (tail > 0) {
      const std::span<std::byte> last = piece.span().first(kPageBytes);
      QUARRY_RETURN_IF_ERROR(store_.backend().ReadAt(writer.file(), checksums_at - kPageBytes, last));
      QUARRY_RETURN_IF_ERROR(writer.Append(last.first(tail)));
    }
    QUARRY_RETURN_IF_ERROR(ReadChecksums(writer.file(), checksums_at, pages, piece,
                                         [&](std::span<const std::byte> some) -> Status {
                                           for (size_t at = 0; at < some.size(); at += sizeof(uint32_t)) {
                                             uint32_t checksum = 0;
                                             std::memcpy(&checksum, some.data() + at, sizeof(checksum));
                                             QUARRY_RETURN_IF_ERROR(writer.AddChecksum(checksum));
                                           }
                                           return Status::Ok();
                                         }));
    QUARRY_RETURN_IF_ERROR(writer.EndSection());
    return Count(writer, part);
  }

  template <typename Take>
  Status ReadChecksums(const File& file, uint64_t offset, uint64_t count, const IoBuffer& piece,
                       const Take& take) {
    for (uint64_t left = count * sizeof(uint32_t); left > 0;) {
      const uint64_t bytes = std::min(left, kPieceBytes);
      const std::span<std::byte> read = piece.span().first(RoundUp(bytes, kPageBytes));
      QUARRY_RETURN_IF_ERROR(store_.backend().ReadAt(file, offset, read));
      QUARRY_RETURN_IF_ERROR(take(read.first(bytes)));
      offset += bytes;
      left -= bytes;
    }
    return Status::Ok();
  }

  // Counts a section that has just ended, and takes its checksums, as the file has them, into the digest.
  Status Count(DataFileWriter& writer, const Part& part) {
    const uint64_t pages = CeilDiv(BytesOf(part), kPageBytes);
    const uint64_t checksums_at = writer.position() - RoundUp(pages * sizeof(uint32_t), kPageBytes);
    QUARRY_TRY(const IoBuffer piece, IoBuffer::Allocate(kPieceBytes));
    ++finished_;
    return ReadChecksums(writer.file(), checksums_at, pages, piece, [&](std::span<const std::byte> some) {
      const std::array<uint64_t, 2> digests = {finished_digest_, Checksum64(some)};
      finished_digest_ = Checksum64(std::as_bytes(std::span(digests)));
      return Status::Ok();
    });
  }

  uint64_t BytesOf(const Part& part) const {
    return part.column ? topology_.edge_count() * WidthOf(part) : topology_.indptr(part.side).size_bytes();
  }
  // Bytes of a column's value in the file.
  uint64_t WidthOf(const Part& part) const {
    return part.column == EdgeColumn::kRelations ? narrower_.width() : sizeof(uint32_t);
  }

  Status WriteIndptr(DataFileWriter& writer, const Part& part) {
    const auto indptr = std::as_bytes(topology_.indptr(part.side));
    writer.BeginSection(part.name, DataFileWriter::Cover::kPages, indptr.size());
    QUARRY_RETURN_IF_ERROR(writer.Append(indptr));
    return writer.EndSection();
  }

  Status WriteColumn(DataFileWriter& writer, const Part& part) {
    const uint64_t width = WidthOf(part), values_per_page = kPageBytes / width;
    uint64_t appended = 0;               // values
    if (std::exchange(begun_, false)) {  // by Resume
      appended = done_.mark.section_bytes / width;
    } else {
      writer.BeginSection(part.name, DataFileWriter::Cover::kPages, BytesOf(part));
    }
    QUARRY_TRY(const auto scanner,
               EdgeColumnScanner::Make(store_.backend(), topology_, part.side, *part.column, piece_bytes_));
    uint64_t known = appended;  // values of a column that was begun are read again up to its mark
    uint64_t synced = appended;
    while (true) {
      QUARRY_TRY(std::span<const uint32_t> values, scanner->Next());
      if (values.empty()) break;
      const uint64_t skipped = std::min<uint64_t>(known, values.size());
      known -= skipped;
      values = values.subspan(skipped);
      const uint64_t wanted = RoundUp(synced + sync_bytes_ / width, values_per_page);
      if (appended + values.size() >= wanted && wanted < topology_.edge_count()) {
        const uint64_t pages_end = RoundDown(appended + values.size(), values_per_page);
        if (pages_end > appended) {
          const std::span<const uint32_t> first = values.first(pages_end - appended);
          QUARRY_RETURN_IF_ERROR(Append(writer, part, first));
          values = values.subspan(first.size());
          appended = synced = pages_end;
          QUARRY_RETURN_IF_ERROR(Keep(writer));
        }
      }
      QUARRY_RETURN_IF_ERROR(Append(writer, part, values));
      appended += values.size();
    }
    return writer.EndSection();
  }

  Status Append(DataFileWriter& writer, const Part& part, std::span<const uint32_t> values) {
    if (values.empty()) return Status::Ok();
    QUARRY_RETURN_IF_ERROR(writer.Append(part.column == EdgeColumn::kRelations ? narrower_.Narrow(values)
                                                                               : std::as_bytes(values)));
    KillPoint("topology: part of the file written");
    values_ += values.size();
    if (!progress_) return Status::Ok();
    return progress_("compacting edges", values_, ValuesOf(record_));
  }

  // The runs that are in it are durable since their commits.
  Status Keep(DataFileWriter& writer) {
    const ScopedSpan span("sync what is written", values_);
    CompactionProgress progress = done_;
    progress.rows = values_;
    progress.finished = finished_;
    progress.finished_digest = finished_digest_;
    QUARRY_TRY(progress.mark, writer.Sync());
    QUARRY_RETURN_IF_ERROR(WriteCompactionProgress(store_.backend(), store_.path(),
                                                   store_.manifest()->database_id, files_, progress));
    done_ = progress;
    KillPoint("compaction: progress there");
    return Status::Ok();
  }

  Store& store_;
  const Topology& topology_;
  const TopologyRecord& record_;
  const CompactionFiles files_;
  RelationNarrower narrower_;
  CompactionProgress& done_;  // what is written for good
  const ProgressFunction& progress_;
  const uint64_t piece_bytes_, sync_bytes_;
  uint64_t values_ = 0;  // appended, of all columns
  uint64_t resumed_edges_ = 0;
  bool begun_ = false;     // the section that is written next
  uint64_t finished_ = 0;  // sections, and a digest of their checksums
  uint64_t finished_digest_ = 0;
};

// The topology as it was when the interrupted fold began: without what was committed since. False where that cannot be told,
// because runs of both times were merged, or the file is another.
bool GoBackTo(const CompactionProgress& progress, TopologyRecord& topology) {
  if (progress.edge_count == 0 || progress.node_count > topology.node_count ||
      topology.node_count - progress.node_count > topology.added_nodes) {
    return false;
  }
  DropNewerRuns(progress.timestamp, topology);
  topology.added_nodes -= topology.node_count - progress.node_count;
  topology.node_count = progress.node_count;
  return topology.timestamp() == progress.timestamp && topology.edge_count == progress.edge_count &&
         !IsFolded(topology);
}

// What there is of an interrupted fold that can be gone on with; `record` is then the topology of its beginning.
Result<CompactionProgress> FindProgress(Store& store, TopologyRecord& record) {
  const auto found =
      ReadCompactionProgress(store.backend(), store.path(), store.manifest()->database_id, record);
  if (!found.ok() && !IsUseless(found.status())) return found.status();
  if (found.ok()) {
    TopologyRecord then = record;
    if (GoBackTo(*found, then)) {
      record = std::move(then);
      return *found;
    }
  }
  return CompactionProgress{.generation = record.generation + 1,
                            .timestamp = record.timestamp(),
                            .node_count = record.node_count,
                            .edge_count = record.edge_count};
}

Status CheckFoldSpace(const Store& store, const TopologyRecord& record) {
  std::error_code error;
  const auto space = std::filesystem::space(store.path(), error);
  uint64_t bytes = record.file_bytes;
  for (const TopologyRun& run : record.runs) bytes += run.file_bytes;
  if (error || space.available >= bytes) return Status::Ok();
  return MakeStatus(Code::kNoSpace, "{}: {} free, and compacting topology \"{}\" writes {}", store.path(),
                    FormatBytes(space.available), record.name, FormatBytes(bytes));
}

// What is worth it stays for the next one; what does not hold does not.
Status GiveUp(Store& store, const TopologyRecord& record, const CompactionProgress& done, const Status& why) {
  const CompactionFiles files(record);
  if (why.code() != Code::kCorruption && done.rows * 10 > ValuesOf(record)) {
    return MakeStatus(
        why.code(),
        "{}; {} % of the edges of topology \"{}\" stay compacted: the next compaction goes on from "
        "there",
        why.message(), done.rows * 100 / ValuesOf(record), record.name);
  }
  Discard(store.backend(), store.path() + "/" + files.progress);
  Discard(store.backend(), store.path() + "/" + files.rows);
  return why;
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
  return CompactTopology(store, budget, name, dry_run, progress, CompactionPace());
}

Result<TopologyCompactionReport> CompactTopology(Store& store, MemoryBudget& budget, const std::string& name,
                                                 bool dry_run, const ProgressFunction& progress,
                                                 const CompactionPace& pace) {
  const double start = MonotonicSeconds();
  // Before the snapshot, so that no merge of its runs comes between.
  const std::shared_ptr<Store::RunsHold> held = dry_run ? nullptr : store.HoldRuns(Store::RunsRight::kFold);
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  const TopologyRecord* const found = snapshot->FindTopology(name);
  if (found == nullptr) return store.OpenTopology(name).status();
  TopologyRecord record = *found;
  QUARRY_TRY(CompactionProgress done, FindProgress(store, record));
  if (held != nullptr) held->folds_until = record.timestamp();
  TopologyCompactionReport report = {.runs = record.runs.size(),
                                     .nodes_added = record.added_nodes,
                                     .edge_count = record.edge_count,
                                     .bytes = record.file_bytes,
                                     .timestamp = record.timestamp(),
                                     .generation = record.generation + (IsFolded(record) ? 0 : 1),
                                     .resumed_edges = done.rows};
  for (const TopologyRun& run : record.runs) {
    report.edges_added += run.added;
    report.edges_removed += run.removed;
  }
  if (dry_run || IsFolded(record)) return report;
  if (held == nullptr) {
    return MakeStatus(Code::kBusy, "{}: edges are being compacted: wait for it", store.path());
  }
  QUARRY_RETURN_IF_ERROR(CheckFoldSpace(store, record));
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(Topology::ResidentBytes(record) + kFoldBytes, "compacting a topology"));
  QUARRY_TRY(const FoldedLists lists, FoldedLists::Of(store, record, CompactionFiles(record).generation));
  Snapshot then = *snapshot;  // with the edges and nodes that the file will have
  *std::ranges::find(then.topologies, name, &TopologyRecord::name) = record;
  QUARRY_TRY(std::unique_ptr<Topology> topology, store.OpenTopology(then, name));
  const CompactionFiles files(record);
  TopologyRecord next = record;
  next.generation = files.generation;
  next.file = files.rows;
  next.folded = record.timestamp();
  next.runs.clear();
  next.added_nodes = 0;
  QUARRY_RETURN_IF_ERROR(store.PrepareToWrite());
  const ScopedSpan span("compact a topology");
  TopologyFold fold(store, *topology, record, done, progress, pace);
  const auto written = fold.Write();
  topology.reset();
  if (!written.ok()) return GiveUp(store, record, done, written.status());
  report.resumed_edges = fold.resumed_edges();
  report.bytes = next.file_bytes = *written;
  KillPoint("topology: file written, not named");
  // After an error the file may be named: it stays, the next open knows, and nobody goes on with it.
  const Status switched = store.SwitchTopology(record, next, lists.rows());
  Discard(store.backend(), store.path() + "/" + files.progress);
  QUARRY_RETURN_IF_ERROR(switched);
  store.growth().Add(name, {.compaction_bytes = *written});
  report.seconds = MonotonicSeconds() - start;
  return report;
}

}  // namespace quarry
