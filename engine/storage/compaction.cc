#include "quarry/storage/compaction.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/storage/feature_table.h"
#include "row_bitmap.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPieceBytes = 16 * kMiB;

class Compaction {
 public:
  Compaction(Store& store, const ProgressFunction& progress) : store_(store), progress_(progress) {}

  Status Open(const std::string& name) {
    QUARRY_TRY(snapshot_, store_.TakeSnapshot());
    QUARRY_TRY(table_, store_.OpenTable(*snapshot_, name));
    QUARRY_TRY(overlay_, store_.OpenOverlay(name, snapshot_));
    record_ = *snapshot_->FindTable(name);
    touched_ = overlay_->TouchedRows();
    return Status::Ok();
  }

  CompactionReport Describe() const {
    return {.rows_changed = touched_.size(),
            .row_count = record_.row_count,
            .bytes = record_.file_bytes,
            .timestamp = snapshot_->timestamp,
            .generation = record_.generation + (touched_.empty() ? 0 : 1)};
  }

  bool needed() const { return !touched_.empty(); }
  uint64_t memory_bytes() const {
    return table_->resident_bytes() + overlay_->resident_bytes() + touched_.size() * sizeof(uint64_t) +
           std::max(kPieceBytes, table_->geometry().row_bytes) + 8 * kMiB;
  }

  Status Run() {
    TableRecord next = record_;
    ++next.generation;
    next.folded = snapshot_->timestamp;
    next.file = fmt::format("features/{}-{}.qft", next.name, next.generation);
    const std::string path = store_.path() + "/" + next.file;
    std::error_code error;
    const fs::space_info space = fs::space(store_.path(), error);
    if (!error && space.available < record_.file_bytes) {
      return MakeStatus(Code::kNoSpace, "{}: {} free, and compacting table \"{}\" writes {}", store_.path(),
                        FormatBytes(space.available), next.name, FormatBytes(record_.file_bytes));
    }
    fs::remove(path, error);  // of a compaction that failed
    const Status written = WriteFile(path, next);
    if (!written.ok()) {
      fs::remove(path, error);
      return written;
    }
    // This reader needs the old file and its versions no longer.
    overlay_.reset();
    table_.reset();
    snapshot_.reset();
    // A commit that failed may have happened: the file stays, and the next open knows.
    return store_.SwitchTable(next, EncodeRows(touched_));
  }

 private:
  Status WriteFile(const std::string& path, TableRecord& next) {
    const FeatureGeometry& geometry = table_->geometry();
    QUARRY_TRY(const std::unique_ptr<FeatureTableWriter> writer,
               FeatureTableWriter::Create(store_.backend(), path, geometry, store_.manifest().database_id,
                                          next.generation));
    const uint64_t rows_max = std::max<uint64_t>(1, kPieceBytes / geometry.row_bytes);
    std::vector<std::byte> rows(std::min(rows_max, geometry.row_count) * geometry.row_bytes);
    for (uint64_t first = 0; first < geometry.row_count;) {
      const uint64_t count = std::min(rows_max, geometry.row_count - first);
      const std::span<std::byte> piece = std::span(rows).first(count * geometry.row_bytes);
      QUARRY_RETURN_IF_ERROR(table_->ReadRows(store_.backend(), first, count, piece));
      QUARRY_RETURN_IF_ERROR(Fold(first, count, piece));
      QUARRY_RETURN_IF_ERROR(writer->Append(piece));
      first += count;
      if (progress_) QUARRY_RETURN_IF_ERROR(progress_("compacting", first, geometry.row_count));
    }
    QUARRY_TRY(next.file_bytes, writer->Finish());
    return Status::Ok();
  }

  // Puts the versions of rows [first, first + count) over `piece`.
  Status Fold(uint64_t first, uint64_t count, std::span<std::byte> piece) const {
    const auto begin = std::ranges::lower_bound(touched_, first);
    const std::span<const uint64_t> rows(begin,
                                         std::ranges::lower_bound(begin, touched_.end(), first + count));
    const uint64_t row_bytes = table_->geometry().row_bytes;
    return overlay_->Read(rows, [&](size_t i, std::span<const std::byte> value) {
      std::memcpy(piece.data() + (rows[i] - first) * row_bytes, value.data(), row_bytes);
    });
  }

  Store& store_;
  const ProgressFunction& progress_;
  std::shared_ptr<const Snapshot> snapshot_;
  std::unique_ptr<FeatureTable> table_;
  std::unique_ptr<RowOverlay> overlay_;
  TableRecord record_;
  std::vector<uint64_t> touched_;
};

}  // namespace

Result<CompactionReport> CompactTable(Store& store, MemoryBudget& budget, const std::string& table,
                                      bool dry_run, const ProgressFunction& progress) {
  const double start = MonotonicSeconds();
  Compaction compaction(store, progress);
  QUARRY_RETURN_IF_ERROR(compaction.Open(table));
  CompactionReport report = compaction.Describe();
  if (dry_run || !compaction.needed()) return report;
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(compaction.memory_bytes(), "compacting a table"));
  QUARRY_RETURN_IF_ERROR(compaction.Run());
  report.seconds = MonotonicSeconds() - start;
  return report;
}

}  // namespace quarry
