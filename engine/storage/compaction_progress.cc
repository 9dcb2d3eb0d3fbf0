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
  uint64_t version = 1;
  std::array<std::byte, 16> database_id{};
  uint64_t generation = 0;
  uint64_t timestamp = 0;
  uint64_t rows = 0;
  uint64_t section_bytes = 0;
  uint64_t checksum_count = 0;
  uint64_t checksums_digest = 0;
  uint64_t checksum = 0;  // over the bytes before it
};
static_assert(sizeof(ProgressRecord) == 88);

uint64_t ChecksumOf(const ProgressRecord& record) {
  return Checksum64(std::as_bytes(std::span(&record, 1)).first(offsetof(ProgressRecord, checksum)));
}

Status Refuse(const std::string& path, std::string_view why) {
  return MakeStatus(Code::kCorruption, "{}: {}: the compaction begins anew", path, why);
}

}  // namespace

CompactionFiles::CompactionFiles(const TableRecord& table)
    : rows(fmt::format("features/{}-{}.qft", table.name, table.generation + 1)),
      progress(fmt::format("features/{}-{}.progress", table.name, table.generation + 1)) {}

Result<CompactionProgress> ReadCompactionProgress(IoBackend& backend, const std::string& database_path,
                                                  const std::array<std::byte, 16>& database_id,
                                                  const TableRecord& table) {
  const CompactionFiles files(table);
  const std::string path = database_path + "/" + files.progress;
  ProgressRecord record;
  {
    QUARRY_TRY(const File file, backend.Open(path, OpenMode::kReadBuffered));
    QUARRY_TRY(const uint64_t bytes, backend.FileBytes(file));
    if (bytes != sizeof(record)) return Refuse(path, fmt::format("{} bytes", bytes));
    QUARRY_RETURN_IF_ERROR(backend.ReadAt(file, 0, std::as_writable_bytes(std::span(&record, 1))));
  }
  const ProgressRecord empty;
  if (record.checksum != ChecksumOf(record)) return Refuse(path, "its checksum does not hold");
  if (record.magic != empty.magic || record.version != empty.version || record.database_id != database_id ||
      record.generation != table.generation + 1) {
    return Refuse(path, fmt::format("a record of another compaction, of generation {}", record.generation));
  }
  QUARRY_TRY(const File rows, backend.Open(database_path + "/" + files.rows, OpenMode::kReadBuffered));
  QUARRY_TRY(const uint64_t bytes, backend.FileBytes(rows));
  if (bytes < record.section_bytes) return Refuse(rows.path(), fmt::format("{} bytes", bytes));
  return CompactionProgress{.generation = record.generation,
                            .timestamp = record.timestamp,
                            .rows = record.rows,
                            .mark = {.section_bytes = record.section_bytes,
                                     .checksum_count = record.checksum_count,
                                     .checksums_digest = record.checksums_digest}};
}

Status WriteCompactionProgress(IoBackend& backend, const std::string& database_path,
                               const std::array<std::byte, 16>& database_id, const TableRecord& table,
                               const CompactionProgress& progress) {
  ProgressRecord record;
  record.database_id = database_id;
  record.generation = progress.generation;
  record.timestamp = progress.timestamp;
  record.rows = progress.rows;
  record.section_bytes = progress.mark.section_bytes;
  record.checksum_count = progress.mark.checksum_count;
  record.checksums_digest = progress.mark.checksums_digest;
  record.checksum = ChecksumOf(record);
  const std::string path = database_path + "/" + CompactionFiles(table).progress;
  const std::string written = path + std::string(kNewSuffix);
  Discard(backend, written);
  const auto write = [&]() -> Status {
    QUARRY_TRY(const File file, backend.Open(written, OpenMode::kCreate));
    QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, 0, std::as_bytes(std::span(&record, 1))));
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
                          const TableRecord& table, const std::string& file) {
  if (file == table.file) return false;
  const CompactionFiles files(table);
  if (file != files.rows && file != files.progress) return true;
  return IsUseless(ReadCompactionProgress(backend, database_path, manifest.database_id, table).status());
}

}  // namespace quarry
