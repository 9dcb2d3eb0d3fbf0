#include "quarry/storage/compaction.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "compaction_pace.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/thread.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/compaction_progress.h"
#include "quarry/storage/feature_table.h"
#include "quarry/storage/row_bitmap.h"
#include "quarry/storage/row_sources.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

// What the disk reads while a piece is folded: more than one.
constexpr uint64_t kReadAheadBytes = 16 * kMiB;

class Compaction {
 public:
  Compaction(Store& store, const ProgressFunction& progress, const CompactionPace& pace)
      : store_(store), progress_(progress), pace_(pace) {}

  Status Open(const std::string& name);
  CompactionReport Describe() const {
    return {.rows_changed = touched_.size(),
            .row_count = record_.row_count,
            .bytes = record_.file_bytes,
            .timestamp = snapshot_->timestamp,
            .generation = record_.generation + (touched_.empty() ? 0 : 1),
            .resumed_row = done_.rows};
  }
  bool needed() const { return !touched_.empty(); }
  uint64_t memory_bytes() const {
    return table_->resident_bytes() + overlay_->resident_bytes() + touched_.size() * sizeof(uint64_t) +
           touched_.size() * sizeof(uint64_t) +  // what changed since a layout
           2 * IoBuffer::MappedBytes(RowsAtATime() * table_->geometry().row_bytes) + kReadAheadBytes +
           9 * kMiB;
  }
  Status Run();
  uint64_t resumed_row() const { return resumed_row_; }

 private:
  Result<bool> TakeUp(const CompactionProgress& progress);
  // The geometry of the file that is written, which has all rows.
  FeatureGeometry Written() const {
    FeatureGeometry geometry = table_->geometry();
    geometry.file_rows = geometry.row_count;
    return geometry;
  }
  // Whole groups, so that what was written can be synced after any of them; no more than the table has.
  uint64_t RowsAtATime() const {
    const FeatureGeometry& geometry = table_->geometry();
    const uint64_t rows = std::min(pace_.piece_bytes / geometry.row_bytes,
                                   RoundUp(geometry.row_count, geometry.rows_per_group));
    return std::max(RoundDown(rows, geometry.rows_per_group), geometry.rows_per_group);
  }
  Status Settle(const TableRecord& next) const;
  Status CheckSpace() const;
  Result<std::unique_ptr<FeatureTableWriter>> OpenWriter(const TableRecord& next);
  Status WriteFile(TableRecord& next);
  Status WriteRows(FeatureTableWriter& writer);
  Status Keep(FeatureTableWriter& writer, uint64_t rows);
  Status GiveUp(const Status& why);
  Result<std::vector<Catalog::FoldedRows::Change>> Changes() const;
  Status ReadPiece(uint64_t first, std::span<std::byte> rows);
  Status ReadNext(uint64_t first, std::span<std::byte> rows);
  Status ReadBase(uint64_t first, uint64_t count, std::span<std::byte> rows) const;
  void Remove(const std::string& file) const { Discard(store_.backend(), store_.path() + "/" + file); }

  Store& store_;
  const ProgressFunction& progress_;
  const CompactionPace& pace_;
  std::shared_ptr<const Snapshot> snapshot_;
  std::unique_ptr<FeatureTable> table_;
  std::unique_ptr<RowOverlay> overlay_;
  TableRecord record_;
  std::vector<uint64_t> touched_;
  std::optional<RowScanner> base_;  // reads table_
  CompactionProgress done_;         // rows that are written for good
  uint64_t resumed_row_ = 0;
};

Status Compaction::Open(const std::string& name) {
  const ScopedSpan span("what has changed");
  QUARRY_TRY(snapshot_, store_.TakeSnapshot());
  QUARRY_TRY(table_, store_.OpenTable(*snapshot_, name));
  record_ = *snapshot_->FindTable(name);
  const auto progress =
      ReadCompactionProgress(store_.backend(), store_.path(), store_.manifest()->database_id, record_);
  if (!progress.ok() && !IsUseless(progress.status())) return progress.status();
  if (progress.ok() && progress->timestamp <= snapshot_->timestamp) {
    QUARRY_TRY(const bool taken_up, TakeUp(*progress));
    if (taken_up) return Status::Ok();
  }
  done_ = {.generation = record_.generation + 1, .timestamp = snapshot_->timestamp};
  QUARRY_TRY(overlay_, store_.OpenOverlay(name, snapshot_));
  touched_ = overlay_->TouchedRows();
  return Status::Ok();
}

// Goes on with the rows of the instant at which the interrupted compaction began: no version up to it is
// dropped before a file has it. False when nothing had changed then: what it saw was written while it began,
// and its file is of no use.
Result<bool> Compaction::TakeUp(const CompactionProgress& progress) {
  auto then = std::make_shared<Snapshot>(*snapshot_);
  then->timestamp = progress.timestamp;
  QUARRY_TRY(std::unique_ptr<RowOverlay> overlay, store_.OpenOverlay(record_.name, then));
  // Rows that were written to since are touched too, and have no version of then.
  const std::vector<uint64_t> touched = overlay->TouchedRows();
  QUARRY_RETURN_IF_ERROR(overlay->Read(
      touched, [&](size_t i, std::span<const std::byte> /*value*/) { touched_.push_back(touched[i]); }));
  if (touched_.empty()) return false;
  std::ranges::sort(touched_);
  snapshot_ = std::move(then);
  overlay_ = std::move(overlay);
  done_ = progress;
  return true;
}

Status Compaction::Run() {
  TableRecord next = record_;
  ++next.generation;
  next.folded = snapshot_->timestamp;
  next.added_rows = 0;
  next.file = CompactionFiles(record_).rows;
  QUARRY_RETURN_IF_ERROR(Settle(next));
  const Status written = WriteFile(next);
  if (!written.ok()) return GiveUp(written);
  KillPoint("compaction: file written, not named");
  QUARRY_TRY(std::vector<Catalog::FoldedRows::Change> changes, Changes());
  // This reader needs the old file and its versions no longer.
  overlay_.reset();
  base_.reset();
  table_.reset();
  snapshot_.reset();
  const ScopedSpan span("switch");
  // A commit that failed may have happened: the file stays, the next open knows, and nobody goes on with it.
  const Status switched = store_.SwitchTable(next, std::move(changes));
  Remove(CompactionFiles(record_).progress);
  return switched;
}

// What layouts will ask: which of the folded rows are newer than theirs? Once the versions are folded nothing
// else tells it, so for each layout that there is at the switch the set is remembered exactly, by the
// layout's timestamp; a patch then writes these rows and no others. For other timestamps all folded rows
// count as newer, or, from the compaction's own on, none.
Result<std::vector<Catalog::FoldedRows::Change>> Compaction::Changes() const {
  std::vector<Catalog::FoldedRows::Change> changes = {{0, EncodeRows(touched_)}};
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  for (const LayoutRecord& layout : manifest->layouts) {
    const uint64_t since = layout.timestamp;
    if (!TakesRowsOf(*manifest, layout.spec, record_.name)) continue;
    if (since <= record_.folded || since >= snapshot_->timestamp) continue;
    if (std::ranges::count(changes, since, &Catalog::FoldedRows::Change::since) > 0) continue;
    QUARRY_TRY(const std::unique_ptr<RowOverlay> newer,
               store_.OpenOverlay(record_.name, snapshot_, TableVersion{record_.generation, since}));
    std::vector<uint64_t> rows;
    std::ranges::copy_if(touched_, std::back_inserter(rows),
                         [&](uint64_t row) { return newer->Touched(row); });
    changes.push_back({since, EncodeRows(rows)});
  }
  changes.push_back({snapshot_->timestamp, EncodeRows({})});
  return changes;
}

// A file that is there and not gone on with may be of a switch that failed, and named on disk all the same.
// Behind another commit it is not.
Status Compaction::Settle(const TableRecord& next) const {
  QUARRY_RETURN_IF_ERROR(store_.PrepareToWrite());
  std::error_code error;
  if (done_.rows > 0 || !fs::exists(store_.path() + "/" + next.file, error)) return Status::Ok();
  return store_.UpdateManifest([](Manifest&) { return Status::Ok(); });
}

Status Compaction::CheckSpace() const {
  std::error_code error;
  const fs::space_info space = fs::space(store_.path(), error);
  const uint64_t whole = std::max(record_.file_bytes, Written().data_end());
  const uint64_t bytes = whole - std::min(whole, done_.mark.section_bytes);
  if (error || space.available >= bytes) return Status::Ok();
  return MakeStatus(Code::kNoSpace, "{}: {} free, and compacting table \"{}\" writes {}", store_.path(),
                    FormatBytes(space.available), record_.name, FormatBytes(bytes));
}

// Opens the file that an interrupted compaction left, where it holds what its record says, else a new one.
Result<std::unique_ptr<FeatureTableWriter>> Compaction::OpenWriter(const TableRecord& next) {
  const std::string path = store_.path() + "/" + next.file;
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  const auto& id = manifest->database_id;
  if (done_.rows > 0) {
    auto writer = FeatureTableWriter::Resume(store_.backend(), path, Written(), id, next.generation,
                                             done_.rows, done_.mark);
    resumed_row_ = done_.rows;
    if (writer.ok()) return writer;
    LogInfo("{}: compacting table \"{}\" begins anew", writer.status().message(), next.name);
  }
  resumed_row_ = done_.rows = 0;
  Remove(CompactionFiles(record_).progress);
  Remove(next.file);
  return FeatureTableWriter::Create(store_.backend(), path, Written(), id, next.generation);
}

Status Compaction::WriteFile(TableRecord& next) {
  QUARRY_RETURN_IF_ERROR(CheckSpace());
  QUARRY_TRY(const std::unique_ptr<FeatureTableWriter> writer, OpenWriter(next));
  QUARRY_RETURN_IF_ERROR(WriteRows(*writer));
  QUARRY_TRY(next.file_bytes, writer->Finish());
  return Status::Ok();
}

// Writes the file front to back. One thread reads ahead and folds the next piece, this one adds checksums and
// writes from where the rows lie, so that reading and writing overlap.
Status Compaction::WriteRows(FeatureTableWriter& writer) {
  const ScopedSpan span("write rows");
  const FeatureGeometry& geometry = table_->geometry();
  const uint64_t sync_rows = pace_.SyncBytes(record_.file_bytes) / geometry.row_bytes;
  const uint64_t rows_max = std::min(RowsAtATime(), geometry.row_count);
  std::array<IoBuffer, 2> pieces;
  for (IoBuffer& piece : pieces) {
    QUARRY_TRY(piece, IoBuffer::Allocate(rows_max * geometry.row_bytes));
  }
  const auto piece_rows = [&](uint64_t first) { return std::min(rows_max, geometry.row_count - first); };
  const auto load = [&](size_t piece, uint64_t first) {
    const std::span<std::byte> rows = pieces[piece].span().first(piece_rows(first) * geometry.row_bytes);
    return BackgroundTask<Status>::Start("read a piece",
                                         [this, rows, first] { return ReadPiece(first, rows); });
  };
  size_t piece = 0;
  uint64_t first = done_.rows;
  BackgroundTask<Status> loading = load(piece, first);
  while (first < geometry.row_count) {
    QUARRY_RETURN_IF_ERROR(loading.Get());
    const uint64_t count = piece_rows(first);
    const std::span<const std::byte> rows = pieces[piece].span().first(count * geometry.row_bytes);
    first += count;
    piece = 1 - piece;
    if (first < geometry.row_count) loading = load(piece, first);
    QUARRY_RETURN_IF_ERROR(writer.Append(rows));
    KillPoint("compaction: part of the file written");
    if (first < geometry.row_count && first - done_.rows >= sync_rows) {
      QUARRY_RETURN_IF_ERROR(Keep(writer, first));
    }
    if (progress_) QUARRY_RETURN_IF_ERROR(progress_("compacting", first, geometry.row_count));
  }
  return Status::Ok();
}

// Rows from `first` on, the newest versions over them.
Status Compaction::ReadPiece(uint64_t first, std::span<std::byte> rows) {
  const ScopedSpan span("read and fold", first);
  const uint64_t row_bytes = table_->geometry().row_bytes;
  QUARRY_RETURN_IF_ERROR(ReadNext(first, rows));
  return FoldRows(*overlay_, touched_, first, row_bytes, rows);
}

// The base from where the last piece ended, which is read ahead; what is damaged is tried in parts.
Status Compaction::ReadNext(uint64_t first, std::span<std::byte> rows) {
  if (!base_) {
    QUARRY_TRY(base_, RowScanner::Make(store_.backend(), *table_, first, record_.row_count, kReadAheadBytes));
  }
  const Status status = base_->Read(rows);
  if (status.code() != Code::kCorruption) return status;
  base_.reset();
  return ReadBase(first, rows.size() / table_->geometry().row_bytes, rows);
}

// A synced commit first: the rows must not outlive versions that were written without a sync.
Status Compaction::Keep(FeatureTableWriter& writer, uint64_t rows) {
  const ScopedSpan span("sync what is written", rows);
  if (done_.rows == 0) {
    QUARRY_RETURN_IF_ERROR(store_.UpdateManifest([](Manifest&) { return Status::Ok(); }));
  }
  CompactionProgress progress = done_;
  progress.rows = rows;
  QUARRY_TRY(progress.mark, writer.Sync());
  QUARRY_RETURN_IF_ERROR(WriteCompactionProgress(store_.backend(), store_.path(),
                                                 store_.manifest()->database_id, record_, progress));
  done_ = progress;
  KillPoint("compaction: progress there");
  return Status::Ok();
}

// What is worth it stays for the next compaction.
Status Compaction::GiveUp(const Status& why) {
  if (done_.rows * 10 > record_.row_count) {
    return MakeStatus(why.code(),
                      "{}; {} of the {} rows of table \"{}\" stay compacted: the next compaction "
                      "goes on from there",
                      why.message(), done_.rows, record_.row_count, record_.name);
  }
  Remove(CompactionFiles(record_).progress);
  Remove(CompactionFiles(record_).rows);
  return why;
}

// Rows that newer versions will replace need not be readable: where a cell is damaged, only such rows are
// let pass. What is in their place then is not said.
Status Compaction::ReadBase(uint64_t first, uint64_t count, std::span<std::byte> rows) const {
  const Status status = table_->ReadRows(store_.backend(), first, count, rows);
  if (status.code() != Code::kCorruption) return status;
  const auto begin = std::ranges::lower_bound(touched_, first);
  const auto end = std::ranges::lower_bound(begin, touched_.end(), first + count);
  if (static_cast<uint64_t>(end - begin) == count) {
    uint64_t replaced = 0;  // touched rows need not have a version that this snapshot sees
    QUARRY_RETURN_IF_ERROR(overlay_->Read(
        {begin, end}, [&](size_t /*i*/, std::span<const std::byte> /*value*/) { ++replaced; }));
    if (replaced == count) return Status::Ok();
  }
  if (count == 1) return status;
  const uint64_t half = count / 2;
  const uint64_t half_bytes = half * table_->geometry().row_bytes;
  QUARRY_RETURN_IF_ERROR(ReadBase(first, half, rows.first(half_bytes)));
  return ReadBase(first + half, count - half, rows.subspan(half_bytes));
}

}  // namespace

Result<CompactionReport> CompactTable(Store& store, MemoryBudget& budget, const std::string& table,
                                      bool dry_run, const ProgressFunction& progress,
                                      const CompactionPace& pace) {
  const double start = MonotonicSeconds();
  Compaction compaction(store, progress, pace);
  QUARRY_RETURN_IF_ERROR(compaction.Open(table));
  CompactionReport report = compaction.Describe();
  if (dry_run || !compaction.needed()) return report;
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(compaction.memory_bytes(), "compacting a table"));
  QUARRY_RETURN_IF_ERROR(compaction.Run());
  report.resumed_row = compaction.resumed_row();
  report.seconds = MonotonicSeconds() - start;
  return report;
}

Result<CompactionReport> CompactTable(Store& store, MemoryBudget& budget, const std::string& table,
                                      bool dry_run, const ProgressFunction& progress) {
  return CompactTable(store, budget, table, dry_run, progress, CompactionPace());
}

}  // namespace quarry
