#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/format/topology.h"
#include "quarry/format/types.h"
#include "quarry/storage/layout_files.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/partition_files.h"
#include "quarry/storage/times.h"
#include "quarry/storage/version_file.h"
#include "quarry/verify/verify.h"
#include "verify_scan.h"

namespace quarry {
namespace {

// Looks at the values of a label or split table, whose meaning the engine knows.
class ValueCheck {
 public:
  ValueCheck(Verification& run, const Manifest& manifest, const TableRecord& record, std::string path)
      : run_(run), manifest_(manifest), path_(std::move(path)) {
    label_ = record.name == "label";
    split_ = record.name == "split";
    grown_ = record.added_rows > 0;
    const ElementType expected = label_ ? ElementType::kInt64 : ElementType::kUint8;
    if ((label_ || split_) && (record.element_type != expected || record.dim != 1)) {
      AddFault(run, "{}: {} x {} where a table \"{}\" is {} x 1", path_, ElementTypeName(record.element_type),
               record.dim, record.name, ElementTypeName(expected));
      label_ = split_ = false;
    }
  }

  bool wanted() const { return label_ || split_; }

  void Row(uint64_t row, const std::byte* bytes) {
    int64_t value = 0;
    std::memcpy(&value, bytes, label_ ? sizeof(int64_t) : sizeof(uint8_t));
    if (label_) {
      max_ = std::max(max_, value);
      if (value >= -1 && value < static_cast<int64_t>(manifest_.class_count)) return;
      run_.AddFault(MakeStatus(Code::kCorruption, "{}: the label of node {} is {}, and there are {} classes",
                               path_, row, value, manifest_.class_count),
                    row, 1);
    } else if (value > static_cast<int64_t>(Split::kTest)) {
      run_.AddFault(MakeStatus(Code::kCorruption, "{}: the split of node {} is {}; it is one of 0 to {}",
                               path_, row, value, static_cast<int>(Split::kTest)),
                    row, 1);
    }
  }

  // After all rows, when none of them was damaged.
  void Finish() {
    if (!label_ || grown_ || max_ + 1 >= static_cast<int64_t>(manifest_.class_count)) return;
    AddFault(run_, "{}: the largest label is {}, and the catalog says {} classes", path_, max_,
             manifest_.class_count);
  }

 private:
  Verification& run_;
  const Manifest& manifest_;
  const std::string path_;
  bool label_ = false;
  bool split_ = false;
  bool grown_ = false;  // labels of added nodes are not in the file
  int64_t max_ = -1;
};

// Rows of less than a sector: checked page by page, and each page is one group.
Status VerifyPagedRows(Verification& run, const DataFile& data, const FeatureGeometry& geometry,
                       const Section& section, ValueCheck& values) {
  QUARRY_TRY(PageScan scan, PageScan::Make(run, data, section, [&](uint64_t page) {
               const uint64_t first = page * geometry.rows_per_group;
               return PageScan::Contents(RowsOfCell(geometry, page), first,
                                         std::min(geometry.rows_per_group, geometry.row_count - first));
             }));
  bool sound = true;
  uint64_t row = 0;
  while (true) {
    QUARRY_TRY(const PageScan::Piece piece, scan.Next());
    if (piece.bytes.empty()) break;
    sound = sound && piece.sound;
    const uint64_t row_end = std::min(
        (piece.offset + piece.bytes.size()) / kPageBytes * geometry.rows_per_group, geometry.row_count);
    for (; values.wanted() && row < row_end; ++row) {
      const uint64_t at = geometry.RowOffset(row) - geometry.data_offset - piece.offset;
      if (piece.sound) values.Row(row, piece.bytes.data() + at);
    }
  }
  if (sound) values.Finish();
  return Status::Ok();
}

// Rows with a checksum each. What lies between them is covered by none, and must be zero.
Status VerifyRows(Verification& run, const DataFile& data, const FeatureGeometry& geometry,
                  const Section& section) {
  QUARRY_TRY(ChecksumCursor checksums, ChecksumCursor::Make(run, data, section, geometry.cell_count()));
  const uint64_t piece_bytes = std::max(RoundDown(1 * kMiB, geometry.group_bytes), geometry.group_bytes);
  QUARRY_TRY(const auto scanner,
             FileScanner::Make(run.backend(), data.file, section.offset, section.bytes, piece_bytes));
  uint64_t row = 0;
  uint64_t piece_offset = geometry.data_offset;
  while (true) {
    QUARRY_TRY(const std::span<const std::byte> piece, scanner->Next());
    if (piece.empty()) return checksums.Finish();
    QUARRY_RETURN_IF_ERROR(run.Advance(piece.size()));
    uint64_t at = 0;
    for (; row < geometry.row_count && geometry.RowOffset(row) < piece_offset + piece.size(); ++row) {
      const uint64_t row_at = geometry.RowOffset(row) - piece_offset;
      if (!AllZero(piece.subspan(at, row_at - at))) {
        AddFault(run, "{}: page {}: the padding before row {} is not zero", data.file.path(),
                 (piece_offset + at) / kPageBytes, row);
      }
      at = row_at + geometry.row_bytes;
      QUARRY_TRY(const std::optional<uint32_t> stored, checksums.Next());
      const uint32_t computed = CellChecksum(piece.subspan(row_at, geometry.row_bytes), row);
      if (!stored || *stored == computed) continue;
      run.AddFault(ChecksumFault(data, piece_offset + row_at, RowsOfCell(geometry, row), *stored, computed),
                   row, 1);
    }
    if (!AllZero(piece.subspan(at))) {
      AddFault(run, "{}: page {}: the padding behind row {} is not zero", data.file.path(),
               (piece_offset + at) / kPageBytes, row - 1);
    }
    piece_offset += piece.size();
  }
}

Status VerifyTable(Verification& run, const DataFile& data, const Manifest& manifest,
                   const TableRecord& record) {
  const Superblock& superblock = data.superblock;
  const std::string& path = data.file.path();
  if (superblock.row_count != record.file_rows() || superblock.dim != record.dim ||
      superblock.element_type != record.element_type) {
    AddFault(run, "{}: page 0: {} rows of {} x {} where the catalog says {} rows of {} x {}", path,
             superblock.row_count, superblock.dim, ElementTypeName(superblock.element_type),
             record.file_rows(), record.dim, ElementTypeName(record.element_type));
    return Status::Ok();
  }
  const bool of_a_type = FindTypeOfTable(manifest.node_types, record.name).has_value();
  // A type's table has its nodes' rows, which whoever reads the manifest has checked.
  if (IsByNode(record) && !of_a_type && record.row_count != manifest.node_count) {
    AddFault(run, "{}: {} rows, and the catalog says {} nodes", path, record.row_count, manifest.node_count);
  }
  const auto geometry = FeatureGeometry::Make(record.element_type, record.dim, record.file_rows());
  if (!geometry.ok()) {
    AddFault(run, "{}: {}", path, geometry.status().message());
    return Status::Ok();
  }
  const auto rows = data.Find("rows", geometry->data_bytes());
  if (!rows.ok()) return run.Note(rows.status());
  ValueCheck values(run, manifest, record, path);
  return geometry->cell_is_row() ? VerifyRows(run, data, *geometry, *rows)
                                 : VerifyPagedRows(run, data, *geometry, *rows, values);
}

Status VerifyGraph(Verification& run, const DataFile& data, const Manifest& manifest,
                   const TopologyRecord& record) {
  const Superblock& superblock = data.superblock;
  TopologyRecord base = record;  // without the runs, and nodes that were added
  base.node_count = record.file_nodes();
  base.edge_count = record.base_edge_count();
  if (superblock.row_count != base.node_count || superblock.edge_count != base.edge_count) {
    AddFault(run, "{}: page 0: {} nodes and {} edges where the catalog says {} and {}", data.file.path(),
             superblock.row_count, superblock.edge_count, base.node_count, base.edge_count);
    return Status::Ok();
  }
  if (Times::Of(record, manifest.node_count).nodes() != manifest.node_count) {
    AddFault(run, "{}: {} nodes, and the catalog says {}", data.file.path(), record.node_count,
             manifest.node_count);
  }
  return VerifyTopology(run, data, base);
}

// What the catalog says of a file.
struct NamedFile {
  std::string name;  // relative to the database
  FileKind kind = FileKind::kFeatureTable;
  uint64_t generation = 1;
  uint64_t bytes = 0;
};

// Opens a file that the catalog names, checks what every data file has, and hands it to `sections`.
template <typename Sections>
Status VerifyFile(Verification& run, const Store& store, const NamedFile& file, Sections sections) {
  const ScopedSpan span("verify a file", run.report().files);
  ++run.report().files;
  const std::string path = store.path() + "/" + file.name;
  const auto data = OpenDataFile(run.backend(), path,
                                 {.kind = file.kind,
                                  .database_id = store.manifest()->database_id,
                                  .generation = file.generation,
                                  .file_bytes = file.bytes});
  if (!data.ok()) return run.Note(data.status());
  const Superblock& superblock = data->superblock;
  QUARRY_TRY(IoBuffer pages, IoBuffer::Allocate(data->file_bytes - superblock.footer_offset));
  QUARRY_RETURN_IF_ERROR(run.backend().ReadAt(data->file, superblock.footer_offset, pages.span()));
  if (!AllZero(pages.span().subspan(superblock.footer_bytes))) {
    AddFault(run, "{}: page {}: the padding behind the footer is not zero", path,
             data->file_bytes / kPageBytes - 1);
  }
  QUARRY_RETURN_IF_ERROR(run.Advance(kSuperblockBytes + pages.size()));
  return sections(*data);
}

// Their pages, and whether they fit together, where nothing is damaged: with damage, reading says it again.
Status VerifyRuns(Verification& run, Store& store, const TopologyRecord& record) {
  for (const TopologyRun& one : record.runs) {
    QUARRY_RETURN_IF_ERROR(VerifyFile(run, store,
                                      {one.file, FileKind::kTopologyRun, one.generation, one.file_bytes},
                                      [&](const DataFile& data) { return VerifyRun(run, data); }));
  }
  if (record.runs.empty() || !run.report().damages.empty()) return Status::Ok();
  return run.Note(store.OpenTopology(record.name).status());
}

// The files of a layout. Its readers know what they mean; here they must be as they were written.
Status VerifyLayout(Verification& run, const Store& store, const LayoutRecord& record) {
  run.SetSubject(
      Damage::Kind::kLayout, record.name,
      fmt::format("`quarry layout rebuild {} {} --full` makes it anew", store.path(), record.name));
  for (const LayoutFile& file : FilesOf(record)) {
    QUARRY_RETURN_IF_ERROR(VerifyFile(
        run, store, {file.path, file.kind, file.generation, file.bytes}, [&](const DataFile& data) {
          if (file.kind == FileKind::kTrace && data.superblock.row_count != record.batch_count) {
            AddFault(run, "{}: page 0: {} batches where the catalog says {}", data.file.path(),
                     data.superblock.row_count, record.batch_count);
          }
          return VerifySections(run, data);
        }));
  }
  return Status::Ok();
}

// As VerifyLayout: the pages are as they were written.
Status VerifyPartitioning(Verification& run, const Store& store, const PartitioningRecord& record) {
  run.SetSubject(Damage::Kind::kPartitioning, record.name,
                 fmt::format("`quarry partition drop {} {}`, and build it again", store.path(), record.name));
  for (const LayoutFile& file : FilesOf(record)) {
    // The edges are those of the newest file.
    const bool newest = file.generation == record.generation;
    QUARRY_RETURN_IF_ERROR(VerifyFile(
        run, store, {file.path, file.kind, file.generation, file.bytes}, [&](const DataFile& data) {
          const Superblock& block = data.superblock;
          if (block.row_count != record.node_count || (newest && block.edge_count != record.edge_count) ||
              block.dim != record.part_count) {
            AddFault(run, "{}: page 0: {} nodes, {} edges and {} parts where the catalog says {}, {} and {}",
                     data.file.path(), block.row_count, block.edge_count, block.dim, record.node_count,
                     record.edge_count, record.part_count);
          }
          return VerifySections(run, data);
        }));
  }
  return Status::Ok();
}

Status VerifyTraining(Verification& run, const Store& store, const TrainingRecord& record) {
  run.SetSubject(Damage::Kind::kTraining, record.name);
  return VerifyFile(run, store, {record.file, FileKind::kTraining, record.generation, record.file_bytes},
                    [&](const DataFile& data) { return VerifySections(run, data); });
}

Status VerifyNames(Verification& run, Store& store, NameKind kind, bool present, uint64_t expected) {
  if (!present) return Status::Ok();
  const Result<uint64_t> count = store.catalog()->VerifyNames(kind);
  if (!count.ok()) return run.Note(count.status());
  // A commit of nodes that was interrupted, or is under way, has names behind the others.
  if (kind == NameKind::kEntity ? *count < expected : *count != expected) {
    AddFault(run, "{}/catalog: {} {} names for {}", store.path(), *count,
             kind == NameKind::kEntity ? "entity" : "relation", expected);
  }
  return Status::Ok();
}

// Every version is of a row that is there, has the bytes of a row and a time that was handed out.
Status VerifyVersions(Verification& run, Store& store, const TableRecord& table) {
  QUARRY_TRY(const uint64_t newest, store.catalog()->LastTimestamp());
  QUARRY_TRY(const std::optional<uint64_t> staged, store.catalog()->StagedTimestamp());
  const uint64_t row_bytes = RowBytes(table.element_type, table.dim);
  const Status scanned = store.catalog()->ScanVersions(table.name, [&](const RowVersion& version) {
    const bool under_way = staged && version.timestamp == *staged;  // may be of a node that is not there yet
    const bool in_time = version.timestamp > 0 && (version.timestamp <= newest || under_way);
    if ((version.row >= table.row_count && !under_way) || !in_time ||
        (!version.deleted() && version.value.size() != row_bytes)) {
      AddFault(
          run,
          "{}: the catalog has a version {} of row {} of table \"{}\" with {} bytes; rows have {} bytes, "
          "there are {} of them, and the last commit is {}",
          store.path(), version.timestamp, version.row, table.name, version.value.size(), row_bytes,
          table.row_count, newest);
    }
    return Status::Ok();
  });
  return run.Note(scanned);
}

// It was right when the database was opened, and may have become another file since.
Status VerifyVersionFile(Verification& run, const Store& store) {
  run.SetSubject(Damage::Kind::kVersion);
  const Status status = ReadVersionFile(run.backend(), store.path()).status();
  if (status.code() != Code::kNotFound && status.code() != Code::kUnsupported) return run.Note(status);
  AddFault(run, "{}", status.message());
  return Status::Ok();
}

// Everything that was committed is there: rows, names, and what compactions folded.
Status VerifyLedger(Verification& run, Store& store) {
  const Result<std::vector<Doubt>> doubts = store.catalog()->FindDoubts();
  if (!doubts.ok()) return run.Note(doubts.status());
  for (const Doubt& doubt : *doubts) {
    if (doubt.table.empty()) {
      AddFault(run, "{}/catalog: names, or rows that compactions folded, are not those that were committed",
               store.path());
      continue;
    }
    const std::shared_ptr<const Manifest> manifest = store.manifest();
    const TableRecord* const table = manifest->FindTable(doubt.table);
    const uint64_t end =
        std::min(doubt.first_row + doubt.row_count, table == nullptr ? UINT64_MAX : table->row_count);
    run.SetSubject(Damage::Kind::kOldRows, doubt.table);
    run.AddFault(
        MakeStatus(Code::kCorruption,
                   "{}/catalog: table \"{}\", rows {} to {}: they may be older than what was committed: "
                   "put them again or restore a checkpoint",
                   store.path(), doubt.table, doubt.first_row, end - 1),
        doubt.first_row, end - doubt.first_row);
    run.SetSubject(Damage::Kind::kCatalog);
  }
  return Status::Ok();
}

Status VerifyCatalog(Verification& run, Store& store) {
  const ScopedSpan span("verify the catalog");
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  run.SetSubject(Damage::Kind::kCatalog);
  QUARRY_RETURN_IF_ERROR(run.Note(store.catalog()->VerifyChecksums()));
  QUARRY_RETURN_IF_ERROR(VerifyLedger(run, store));
  run.SetSubject(Damage::Kind::kCatalog);
  QUARRY_RETURN_IF_ERROR(
      VerifyNames(run, store, NameKind::kEntity, manifest->has_entity_names, manifest->node_count));
  const TopologyRecord* graph = manifest->FindTopology("graph");
  for (const TableRecord& table : manifest->tables) {
    QUARRY_RETURN_IF_ERROR(VerifyVersions(run, store, table));
  }
  return VerifyNames(run, store, NameKind::kRelation, manifest->has_relation_names,
                     graph == nullptr ? 0 : graph->relation_count);
}

// Merges of runs write files that nothing names yet, and remove files that were named: none begins before the end, and one that
// is under way is waited for. Commits go on, and leave the merging to whoever commits next.
Result<std::shared_ptr<Store::RunsHold>> KeepRunsFromMerging(Store& store, const ProgressFunction& progress) {
  std::shared_ptr<Store::RunsHold> held;
  while ((held = store.HoldRuns(Store::RunsRight::kMerge)) == nullptr) {
    if (progress) QUARRY_RETURN_IF_ERROR(progress("waiting for a merge of runs", 0, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return held;
}

}  // namespace

Result<VerifyReport> VerifyStore(Store& store, const ProgressFunction& progress) {
  QUARRY_TRY(const std::shared_ptr<Store::RunsHold> no_merges, KeepRunsFromMerging(store, progress));
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  uint64_t bytes_total = 0;
  for (const TableRecord& table : manifest->tables) bytes_total += table.file_bytes;
  for (const TopologyRecord& topology : manifest->topologies) {
    bytes_total += topology.file_bytes;
    for (const TopologyRun& run : topology.runs) bytes_total += run.file_bytes;
  }
  for (const LayoutRecord& layout : manifest->layouts) bytes_total += layout.total_bytes();
  for (const PartitioningRecord& parts : manifest->partitionings) bytes_total += parts.total_bytes();
  for (const TrainingRecord& training : manifest->trainings) bytes_total += training.file_bytes;
  Verification run(store.backend(), progress, bytes_total);
  QUARRY_RETURN_IF_ERROR(VerifyVersionFile(run, store));
  QUARRY_RETURN_IF_ERROR(VerifyCatalog(run, store));
  QUARRY_RETURN_IF_ERROR(FindStrays(run, store));
  for (const TopologyRecord& record : manifest->topologies) {
    run.SetSubject(Damage::Kind::kTopology, record.name);
    QUARRY_RETURN_IF_ERROR(
        VerifyFile(run, store, {record.file, FileKind::kTopology, record.generation, record.file_bytes},
                   [&](const DataFile& data) { return VerifyGraph(run, data, *manifest, record); }));
    QUARRY_RETURN_IF_ERROR(VerifyRuns(run, store, record));
  }
  for (const TableRecord& record : manifest->tables) {
    run.SetSubject(Damage::Kind::kTable, record.name);
    QUARRY_RETURN_IF_ERROR(
        VerifyFile(run, store, {record.file, FileKind::kFeatureTable, record.generation, record.file_bytes},
                   [&](const DataFile& data) { return VerifyTable(run, data, *manifest, record); }));
  }
  for (const LayoutRecord& record : manifest->layouts) {
    QUARRY_RETURN_IF_ERROR(VerifyLayout(run, store, record));
  }
  for (const PartitioningRecord& record : manifest->partitionings) {
    QUARRY_RETURN_IF_ERROR(VerifyPartitioning(run, store, record));
  }
  for (const TrainingRecord& record : manifest->trainings) {
    QUARRY_RETURN_IF_ERROR(VerifyTraining(run, store, record));
  }
  return std::move(run.report());
}

}  // namespace quarry
