#include "quarry/storage/compaction_progress.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "quarry/base/kill_point.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNewSuffix = ".new";  // for a record that is being written

// As bytes: docs/format.md "Compactions under way".
struct ProgressRecord {
  std::array<char, 8> magic = {'\x89', 'Q', 'R', 'Y', 'C', 'M', 'P', '\n'};
  uint64_t version = kOfRows;
  std::array<std::byte, 16> database_id{};
  uint64_t generation = 0;
  uint64_t timestamp = 0;
  uint64_t rows = 0;
  uint64_t section_bytes = 0;
  uint64_t checksum_count = 0;
  uint64_t checksums_digest = 0;
  uint64_t checksum = 0;  // over the bytes before it, and behind it

  static constexpr uint64_t kOfRows = 1;
  static constexpr uint64_t kOfEdges = 2;  // with a ProgressGraph behind it
};
static_assert(sizeof(ProgressRecord) == 88);

// Behind a record of edges.
struct ProgressGraph {
  uint64_t node_count = 0;
  uint64_t edge_count = 0;
  uint64_t finished = 0;
  uint64_t finished_digest = 0;
};
static_assert(sizeof(ProgressGraph) == 32);

uint64_t ChecksumOf(std::span<const std::byte> bytes) {
  Checksum64Stream stream;
  stream.Update(bytes.first(offsetof(ProgressRecord, checksum)));
  stream.Update(bytes.subspan(sizeof(ProgressRecord)));
  return stream.Digest();
}

Status Refuse(const std::string& path, std::string_view why) {
  return MakeStatus(Code::kCorruption, "{}: {}: the compaction begins anew", path, why);
}

}  // namespace

CompactionFiles::CompactionFiles(const TableRecord& table)
    : generation(table.generation + 1),
      rows(fmt::format("features/{}-{}.qft", table.name, generation)),
      progress(fmt::format("features/{}-{}.progress", table.name, generation)) {}

CompactionFiles::CompactionFiles(const TopologyRecord& topology)
    : generation(topology.generation + 1),
      rows(fmt::format("topology/{}-{}.qtp", topology.name, generation)),
      progress(fmt::format("topology/{}-{}.progress", topology.name, generation)) {}

Result<CompactionProgress> ReadCompactionProgress(IoBackend& backend, const std::string& database_path,
                                                  const std::array<std::byte, 16>& database_id,
                                                  const CompactionFiles& files) {
  const std::string path = database_path + "/" + files.progress;
  std::vector<std::byte> bytes;
  {
    QUARRY_TRY(const File file, backend.Open(path, OpenMode::kReadBuffered));
    QUARRY_TRY(const uint64_t file_bytes, backend.FileBytes(file));
    if (file_bytes < sizeof(ProgressRecord) || file_bytes > sizeof(ProgressRecord) + sizeof(ProgressGraph)) {
      return Refuse(path, fmt::format("{} bytes", file_bytes));
    }
    bytes.resize(file_bytes);
    QUARRY_RETURN_IF_ERROR(backend.ReadAt(file, 0, bytes));
  }
  ProgressRecord record;
  std::memcpy(&record, bytes.data(), sizeof(record));
  const ProgressRecord empty;
  if (record.checksum != ChecksumOf(bytes)) return Refuse(path, "its checksum does not hold");
  if (record.magic != empty.magic || record.database_id != database_id ||
      record.generation != files.generation) {
    return Refuse(path, fmt::format("a record of another compaction, of generation {}", record.generation));
  }
  CompactionProgress progress{.generation = record.generation,
                              .timestamp = record.timestamp,
                              .rows = record.rows,
                              .mark = {.section_bytes = record.section_bytes,
                                       .checksum_count = record.checksum_count,
                                       .checksums_digest = record.checksums_digest}};
  const std::span<const std::byte> behind = std::span(bytes).subspan(sizeof(record));
  if (record.version == ProgressRecord::kOfEdges && behind.size() == sizeof(ProgressGraph)) {
    ProgressGraph graph;
    std::memcpy(&graph, behind.data(), sizeof(graph));
    progress.node_count = graph.node_count;
    progress.edge_count = graph.edge_count;
    progress.finished = graph.finished;
    progress.finished_digest = graph.finished_digest;
  } else if (record.version != ProgressRecord::kOfRows || !behind.empty()) {
    return Refuse(path, fmt::format("version {} of {} bytes", record.version, bytes.size()));
  }
  QUARRY_TRY(const File rows, backend.Open(database_path + "/" + files.rows, OpenMode::kReadBuffered));
  QUARRY_TRY(const uint64_t rows_bytes, backend.FileBytes(rows));
  if (rows_bytes < record.section_bytes) return Refuse(rows.path(), fmt::format("{} bytes", rows_bytes));
  return progress;
}

Status WriteCompactionProgress(IoBackend& backend, const std::string& database_path,
                               const std::array<std::byte, 16>& database_id, const CompactionFiles& files,
                               const CompactionProgress& progress) {
  ProgressRecord record;
  record.version = progress.edge_count > 0 ? ProgressRecord::kOfEdges : ProgressRecord::kOfRows;
  record.database_id = database_id;
  record.generation = progress.generation;
  record.timestamp = progress.timestamp;
  record.rows = progress.rows;
  record.section_bytes = progress.mark.section_bytes;
  record.checksum_count = progress.mark.checksum_count;
  record.checksums_digest = progress.mark.checksums_digest;
  const auto append = [](std::span<const std::byte> more, std::vector<std::byte>& bytes) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  std::vector<std::byte> bytes;
  append(std::as_bytes(std::span(&record, 1)), bytes);
  if (record.version == ProgressRecord::kOfEdges) {
    const ProgressGraph graph = {progress.node_count, progress.edge_count, progress.finished,
                                 progress.finished_digest};
    append(std::as_bytes(std::span(&graph, 1)), bytes);
  }
  record.checksum = ChecksumOf(bytes);
  std::memcpy(bytes.data(), &record, sizeof(record));
  const std::string path = database_path + "/" + files.progress;
  const std::string written = path + std::string(kNewSuffix);
  Discard(backend, written);
  const auto write = [&]() -> Status {
    QUARRY_TRY(const File file, backend.Open(written, OpenMode::kCreate));
    QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, 0, bytes));
    QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
    KillPoint("compaction: progress synced, not renamed");
    return backend.Rename(written, path);
  };
  const Status status = write();
  if (!status.ok()) {
    Discard(backend, written);
    return status;
  }
  return backend.SyncDirectory(fs::path(path).parent_path().string());
}

bool IsDeadCompactionFile(IoBackend& backend, const std::string& database_path, const Manifest& manifest,
                          const CompactionFiles& files, const std::string& file) {
  if (file != files.rows && file != files.progress) return true;
  return IsUseless(ReadCompactionProgress(backend, database_path, manifest.database_id, files).status());
}

}  // namespace quarry
