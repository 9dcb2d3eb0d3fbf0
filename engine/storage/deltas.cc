#include "quarry/storage/deltas.h"

#include <algorithm>
#include <cstring>

#include "delta_log.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/base/units.h"
#include "quarry/format/element_type.h"
#include "scattered_read.h"

namespace quarry {
namespace {

constexpr std::string_view kLabelTable = "label";
constexpr std::string_view kSplitTable = "split";

// A group of batches grows up to this; then the writers after it form the next.
constexpr uint64_t kGroupBytesMax = 4 * kMiB;

Status CheckEntry(const Manifest& manifest, const WriteBatch& batch, const WriteBatch::Entry& entry) {
  const std::string& name = batch.tables()[entry.table];
  const TableRecord* const table = manifest.FindTable(name);
  const auto refuse = [&](const std::string& why) {
    return MakeStatus(Code::kInvalidArgument, "table \"{}\", row {}: {}", name, entry.row, why);
  };
  if (table == nullptr) return refuse("the database has no such table");
  if (entry.row >= table->row_count) return refuse(fmt::format("the table has {} rows", table->row_count));
  const bool property = name == kLabelTable || name == kSplitTable;
  if (entry.bytes == 0 && !property) return Status::Ok();
  if (entry.bytes == 0) return refuse("labels and splits are set to none, not deleted");
  const uint64_t row_bytes = RowBytes(table->element_type, table->dim);
  if (entry.bytes != row_bytes) return refuse(fmt::format("{} bytes, a row has {}", entry.bytes, row_bytes));
  if (name == kSplitTable && std::to_integer<uint8_t>(batch.value(entry)[0]) > uint8_t{3}) {
    return refuse(fmt::format("split {}: 0 none, 1 train, 2 validation, 3 test",
                              std::to_integer<int>(batch.value(entry)[0])));
  }
  return Status::Ok();
}

Status CheckEntries(const Manifest& manifest, const WriteBatch& batch) {
  for (const WriteBatch::Entry& entry : batch.entries()) {
    QUARRY_RETURN_IF_ERROR(CheckEntry(manifest, batch, entry));
  }
  return Status::Ok();
}

void AppendVersions(const WriteBatch& batch, uint64_t timestamp, std::vector<RowVersion>& versions) {
  for (const WriteBatch::Entry& entry : batch.entries()) {
    versions.push_back({.table = batch.tables()[entry.table],
                        .row = entry.row,
                        .timestamp = timestamp,
                        .value = batch.value(entry)});
  }
}

class Overlay final : public RowOverlay {
 public:
  Overlay(IoBackend& backend, TableRecord table, std::shared_ptr<const Snapshot> snapshot, RowBitmap written,
          RowBitmap folded, std::unique_ptr<FeatureTable> file, DeltaLog::CatalogFunction catalog)
      : backend_(backend),
        table_(std::move(table)),
        snapshot_(std::move(snapshot)),
        written_(std::move(written)),
        folded_(std::move(folded)),
        file_(std::move(file)),
        zeros_(RowBytes(table_.element_type, table_.dim)),
        catalog_(std::move(catalog)) {
    // Nodes may have been added since the snapshot. A range takes a container for each 65,536 rows.
    const uint64_t end = written_.isEmpty() ? 0 : uint64_t{written_.maximum()} + 1;
    RowBitmap later;
    if (end > table_.row_count) later.addRange(table_.row_count, end);
    written_ -= later;
    written_.addRange(table_.file_rows(), table_.row_count);
  }

  bool empty() const override { return written_.isEmpty() && folded_.isEmpty(); }
  bool Touched(uint64_t row) const override {
    return written_.contains(static_cast<uint32_t>(row)) || folded_.contains(static_cast<uint32_t>(row));
  }
  std::vector<uint64_t> TouchedRows() const override {
    const RowBitmap both = written_ | folded_;
    return {both.begin(), both.end()};
  }
  uint64_t resident_bytes() const override {
    return written_.getSizeInBytes(false) + folded_.getSizeInBytes(false) + zeros_.size() +
           (file_ ? file_->resident_bytes() : 0);
  }

  Status Read(std::span<const uint64_t> rows,
              const std::function<void(size_t, std::span<const std::byte>)>& put) const override {
    std::vector<size_t> older;  // what no version says
    QUARRY_RETURN_IF_ERROR(ReadVersions(rows, put, older));
    std::vector<uint64_t> wanted;
    for (const size_t i : older) wanted.push_back(rows[i]);
    if (wanted.empty()) return Status::Ok();
    return ReadScattered(backend_, *file_, wanted,
                         [&](size_t i, std::span<const std::byte> row) { put(older[i], row); });
  }

 private:
  // Appends to `older` the folded rows that have no version. Rows that the file ends before are zeros without one.
  Status ReadVersions(std::span<const uint64_t> rows,
                      const std::function<void(size_t, std::span<const std::byte>)>& put,
                      std::vector<size_t>& older) const {
    std::vector<uint64_t> wanted;
    std::vector<size_t> positions;
    std::vector<bool> found(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!written_.contains(static_cast<uint32_t>(rows[i]))) continue;
      wanted.push_back(rows[i]);
      positions.push_back(i);
    }
    if (!wanted.empty()) {
      QUARRY_TRY(const std::shared_ptr<Catalog> catalog, catalog_(/*writable=*/false));
      QUARRY_RETURN_IF_ERROR(catalog->ReadVersions(
          table_.name, wanted, snapshot_->timestamp, [&](size_t i, const RowVersion& version) -> Status {
            if (version.timestamp <= table_.folded) return Status::Ok();  // the file has it
            if (!version.deleted() && version.value.size() != zeros_.size()) return WrongSize(version);
            put(positions[i], version.deleted() ? std::span<const std::byte>(zeros_) : version.value);
            found[positions[i]] = true;
            return Status::Ok();
          }));
    }
    for (size_t i = 0; table_.added_rows > 0 && i < rows.size(); ++i) {
      if (!found[i] && rows[i] >= table_.file_rows()) put(i, zeros_);
    }
    for (size_t i = 0; !folded_.isEmpty() && i < rows.size(); ++i) {
      if (!found[i] && folded_.contains(static_cast<uint32_t>(rows[i]))) older.push_back(i);
    }
    return Status::Ok();
  }

  Status WrongSize(const RowVersion& version) const {
    return MakeStatus(Code::kCorruption, "row {} of table \"{}\": version {} has {} bytes, a row has {}",
                      version.row, table_.name, version.timestamp, version.value.size(), zeros_.size());
  }

  IoBackend& backend_;
  const TableRecord table_;
  const std::shared_ptr<const Snapshot> snapshot_;
  RowBitmap written_;       // has versions that the file does not, and rows
  const RowBitmap folded_;  // differs between the file and the base that the overlay is for
  const std::unique_ptr<FeatureTable> file_;
  const std::vector<std::byte> zeros_;
  const DeltaLog::CatalogFunction catalog_;
};

}  // namespace

Status FoldRows(const RowOverlay& overlay, std::span<const uint64_t> touched, uint64_t first,
                uint64_t row_bytes, std::span<std::byte> rows) {
  const auto begin = std::ranges::lower_bound(touched, first);
  const auto end = std::ranges::lower_bound(begin, touched.end(), first + rows.size() / row_bytes);
  const std::span<const uint64_t> changed(begin, end);
  return overlay.Read(changed, [&](size_t i, std::span<const std::byte> value) {
    std::memcpy(rows.data() + (changed[i] - first) * row_bytes, value.data(), row_bytes);
  });
}

void WriteBatch::Put(std::string_view table, uint64_t row, std::span<const std::byte> bytes) {
  auto found = std::ranges::find(tables_, table);
  if (found == tables_.end()) found = tables_.insert(found, std::string(table));
  entries_.push_back({static_cast<uint32_t>(found - tables_.begin()), row, values_.size(), bytes.size()});
  values_.insert(values_.end(), bytes.begin(), bytes.end());
}

void WriteBatch::SetLabel(NodeId node, int64_t label) {
  Put(kLabelTable, node, std::as_bytes(std::span(&label, 1)));
}

void WriteBatch::SetSplit(NodeId node, Split split) {
  Put(kSplitTable, node, std::as_bytes(std::span(&split, 1)));
}

void WriteBatch::Clear() {
  tables_.clear();
  entries_.clear();
  values_.clear();
}

// What the catalog says, once.
Status DeltaLog::Load() {
  if (loaded_) return Status::Ok();
  QUARRY_TRY(const std::shared_ptr<Catalog> catalog, catalog_(/*writable=*/false));
  QUARRY_TRY(const uint64_t last_rows, catalog->LastTimestamp());
  last_timestamp_ = std::max(last_rows, structure_timestamp_());
  loaded_ = true;
  return Status::Ok();
}

// After a commit that failed: finds out what has become of it. Only after the catalog was opened anew is it
// known whether the commit is there, and timestamps are handed out behind that. Readers go on meanwhile with
// what was committed before.
Status DeltaLog::Settle() {
  if (!unsettled_) return Status::Ok();
  QUARRY_TRY(const std::shared_ptr<Catalog> catalog, catalog_(/*writable=*/true));
  QUARRY_RETURN_IF_ERROR(catalog->Recover());
  QUARRY_TRY(const uint64_t last_rows, catalog->LastTimestamp());
  const uint64_t last_timestamp = std::max(last_rows, structure_timestamp_());
  if (last_timestamp != last_timestamp_) touched_.clear();  // it is there, and so are its rows
  last_timestamp_ = last_timestamp;
  unsettled_ = false;
  return Status::Ok();
}

Result<const RowBitmap*> DeltaLog::RowsSince(const TableRecord& table) {
  const auto key = std::pair(table.name, table.folded);
  const auto found = touched_.find(key);
  if (found != touched_.end()) return &found->second;
  RowBitmap rows;
  QUARRY_TRY(const std::shared_ptr<Catalog> catalog, catalog_(/*writable=*/false));
  QUARRY_RETURN_IF_ERROR(catalog->ScanVersions(table.name, [&](const RowVersion& version) {
    mutex_.AssertHeld();
    // What is not visible yet, Publish adds.
    if (version.timestamp > table.folded && version.timestamp <= last_timestamp_) {
      rows.add(static_cast<uint32_t>(version.row));
    }
    return Status::Ok();
  }));
  rows.runOptimize();
  return &touched_.emplace(key, std::move(rows)).first->second;
}

// The first writers of the queue, together up to kGroupBytesMax; at least one. A large write goes alone, and so do
// edges.
std::vector<DeltaLog::Writer*> DeltaLog::TakeGroup() {
  std::vector<Writer*> group;
  if (Writer* const first = writers_.front(); first->alone()) {
    first->timestamp = first->staged != nullptr ? first->staged->timestamp : last_timestamp_ + 1;
    return {first};
  }
  uint64_t bytes = 0;
  for (Writer* const writer : writers_) {
    if (writer->alone()) break;
    bytes += writer->batch->memory_bytes();
    if (!group.empty() && bytes > kGroupBytesMax) break;
    group.push_back(writer);
    writer->timestamp = last_timestamp_ + group.size();
  }
  return group;
}

Status DeltaLog::CheckGroup(std::span<Writer* const> group) const {
  const Writer& last = *group.back();
  if (staged_timestamp_ == 0 || last.staged != nullptr || last.timestamp < staged_timestamp_) {
    return Status::Ok();
  }
  return MakeStatus(Code::kBusy, "{}: {} commits have come since a large one began: wait for it", path_,
                    commits_beside_max_ - 1);
}

Status DeltaLog::Commit(std::span<Writer* const> group) {
  if (const Writer& first = *group.front(); first.structure != nullptr) {
    return (*first.structure)(first.timestamp);
  }
  QUARRY_TRY(const std::shared_ptr<Catalog> catalog, catalog_(/*writable=*/true));
  KillPoint("put: not logged");
  if (group.front()->staged != nullptr) {
    QUARRY_RETURN_IF_ERROR(catalog->PublishStaged(group.front()->timestamp));
  } else {
    std::vector<RowVersion> versions;
    bool sync = false;
    for (const Writer* const writer : group) {
      sync |= writer->sync;
      AppendVersions(*writer->batch, writer->timestamp, versions);
    }
    QUARRY_RETURN_IF_ERROR(catalog->PutVersions(versions, sync));
  }
  KillPoint("put: logged, not visible");
  return Status::Ok();
}

// From here on new snapshots see the group.
void DeltaLog::Publish(std::span<Writer* const> group) {
  for (const Writer* const writer : group) {
    for (auto& [key, rows] : touched_) {
      if (writer->staged != nullptr) {
        const auto staged = writer->staged->rows.find(key.first);
        if (staged != writer->staged->rows.end()) rows |= staged->second;
        continue;
      }
      if (writer->structure != nullptr) continue;
      for (const WriteBatch::Entry& entry : writer->batch->entries()) {
        if (writer->batch->tables()[entry.table] == key.first) rows.add(static_cast<uint32_t>(entry.row));
      }
    }
    last_timestamp_ = writer->timestamp;
    if (writer->staged != nullptr) staged_timestamp_ = 0;
  }
}

Result<uint64_t> DeltaLog::Write(const Manifest& manifest, const WriteBatch& batch,
                                 const WriteOptions& options) {
  QUARRY_RETURN_IF_ERROR(CheckEntries(manifest, batch));
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Load());
  if (batch.empty()) return last_timestamp_;
  Writer self{.batch = &batch, .sync = options.sync};
  return CommitInTurn(self);
}

// Writers who write one row after another are back a moment after they are told. Without a wait for them, those that
// waited during a commit are the next group, and those that it told the one after, so that each sync serves half of all.
// The wait is at most a quarter of what a commit takes, and ends when as many are there as before. Where a
// quarter is less than kWaitMin nobody waits: a timer is late by about as much.
void DeltaLog::Gather(Writer& first) {
  constexpr std::chrono::microseconds kWaitMin{25}, kWaitMax{200};
  if (!first.sync || first.alone() || writers_.size() >= expected_) return;
  const auto wait = std::min<std::chrono::steady_clock::duration>(last_commit_ / 4, kWaitMax);
  if (wait < kWaitMin) return;
  const auto deadline = std::chrono::steady_clock::now() + wait;
  gathered_ = expected_;
  while (writers_.size() < expected_ && first.wake->WaitUntil(mutex_, deadline)) {
  }
  gathered_ = 0;
}

// Commits the batch of `self`, itself or by a writer before it. Writers queue; the first one commits for all
// that wait behind it, each under a timestamp of its own, by one synced write, and then makes them visible.
// Snapshots therefore see commits in one order, and whole. The latch is not held during the write, so the
// next group gathers meanwhile.
Result<uint64_t> DeltaLog::CommitInTurn(Writer& self) {
  writers_.push_back(&self);
  if (writers_.size() == gathered_) writers_.front()->wake->NotifyOne();
  while (!self.done && writers_.front() != &self) self.wake->Wait(mutex_);
  if (!self.done) {
    Gather(self);
    Status status = Settle();  // timestamps are of what is committed
    const std::vector<Writer*> group = TakeGroup();
    if (status.ok()) status = CheckGroup(group);
    if (status.ok()) {
      mutex_.Unlock();
      const auto start = std::chrono::steady_clock::now();
      status = Commit(group);
      mutex_.Lock();
      last_commit_ = std::chrono::steady_clock::now() - start;
      if (status.ok()) {
        Publish(group);
        KillPoint("put: visible, not told");
      } else {
        unsettled_ = true;
      }
    }
    std::vector<std::shared_ptr<CondVar>> wakes;
    for (Writer* const writer : group) {
      writer->done = true;
      writer->status = status;
      writers_.pop_front();
      if (writer != &self) wakes.push_back(writer->wake);
    }
    expected_ = group.size() + writers_.size();
    if (!writers_.empty()) wakes.push_back(writers_.front()->wake);
    mutex_.Unlock();  // or they would wake only to wait for it
    for (const std::shared_ptr<CondVar>& wake : wakes) wake->NotifyOne();
    mutex_.Lock();
  }
  if (!self.status.ok()) return self.status;
  return self.timestamp;
}

// A large write puts its rows into the catalog piece by piece, as versions of a timestamp kCommitsBesideMax
// above the last one. No snapshot reaches that far while it is under way, so readers, overlays and
// compactions pass its rows by as they do with anything newer than their snapshot, and other commits go on
// below it. A record in the catalog, in the write of every piece, says that this timestamp is staged.
// Publishing is one small synced write behind all of them in the log: the record goes, and the timestamp is
// the last one. Until then the rows can be forgotten, when the write is given up, by the next one, or by the
// first write after a crash.
//
// So rows are written once, no reader knows of the matter, and a copy of the catalog may be taken in the
// middle. The alternatives cost more: a file of rows needs a name in the manifest and its own checksums,
// verification, repair and compaction; references from a commit to rows under other keys make every reader
// ask for each row twice. The price: timestamps have gaps, there is one large write at a time, and at most
// kCommitsBesideMax other commits come while it is under way.
class DeltaLog::StagedWrite final : public LargeWrite {
 public:
  StagedWrite(DeltaLog& log, std::shared_ptr<const Manifest> manifest, std::shared_ptr<Catalog> catalog,
              uint64_t timestamp)
      : log_(log), manifest_(std::move(manifest)), catalog_(std::move(catalog)) {
    staged_.timestamp = timestamp;
  }

  ~StagedWrite() override {
    if (published_) return;
    // A commit that failed may have happened: what stays, the next open drops.
    const Status dropped = tried_ ? Status::Ok() : catalog_->DropStaged();
    if (!dropped.ok()) LogInfo("{}: rows that were not committed stay: {}", log_.path_, dropped.message());
    MutexLock lock(log_.mutex_);
    log_.staged_timestamp_ = 0;
  }

  Status Add(const WriteBatch& batch) override {
    if (batch.empty()) return Status::Ok();
    QUARRY_RETURN_IF_ERROR(CheckEntries(*manifest_, batch));
    std::vector<RowVersion> versions;
    AppendVersions(batch, staged_.timestamp, versions);
    const auto again = [&](size_t i) {
      const auto found = staged_.rows.find(versions[i].table);
      return found != staged_.rows.end() && found->second.contains(static_cast<uint32_t>(versions[i].row));
    };
    QUARRY_RETURN_IF_ERROR(catalog_->StageVersions(versions, again));
    KillPoint("put: part of the rows staged");
    for (const RowVersion& version : versions) {
      auto found = staged_.rows.find(version.table);
      if (found == staged_.rows.end()) {
        found = staged_.rows.emplace(std::string(version.table), RowBitmap()).first;
      }
      found->second.add(static_cast<uint32_t>(version.row));
    }
    return Status::Ok();
  }

  Result<uint64_t> Commit() override {
    if (staged_.rows.empty()) return log_.LastTimestamp();
    return CommitWith(nullptr);
  }
  // `structure`: as CommitStructure has it; null: rows alone.
  Result<uint64_t> CommitWith(const std::function<Status(uint64_t)>* structure) {
    KillPoint("put: rows staged, not published");
    tried_ = true;
    MutexLock lock(log_.mutex_);
    Writer self{.staged = &staged_, .structure = structure};
    Result<uint64_t> timestamp = log_.CommitInTurn(self);
    published_ = timestamp.ok();
    return timestamp;
  }

 private:
  DeltaLog& log_;
  const std::shared_ptr<const Manifest> manifest_;
  const std::shared_ptr<Catalog> catalog_;
  StagedRows staged_;
  bool tried_ = false, published_ = false;
};

Result<uint64_t> DeltaLog::CommitStructure(const std::function<Status(uint64_t)>& commit, LargeWrite* rows) {
  if (rows != nullptr) return static_cast<StagedWrite*>(rows)->CommitWith(&commit);
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Load());
  Writer self{.structure = &commit};
  return CommitInTurn(self);
}

Result<std::unique_ptr<LargeWrite>> DeltaLog::BeginLargeWrite(std::shared_ptr<const Manifest> manifest) {
  uint64_t timestamp = 0;
  {
    MutexLock lock(mutex_);
    QUARRY_RETURN_IF_ERROR(Load());
    QUARRY_RETURN_IF_ERROR(Settle());
    if (staged_timestamp_ != 0) {
      return MakeStatus(Code::kBusy, "{}: another large commit is under way: wait for it", path_);
    }
    timestamp = staged_timestamp_ = last_timestamp_ + commits_beside_max_;
  }
  auto catalog = catalog_(/*writable=*/true);
  // Drops rows of an earlier large write that could not be dropped then: they may have the same timestamp.
  const Status dropped = catalog.ok() ? (*catalog)->DropStaged() : catalog.status();
  if (!dropped.ok()) {
    MutexLock lock(mutex_);
    staged_timestamp_ = 0;
    return dropped;
  }
  return std::unique_ptr<LargeWrite>(
      std::make_unique<StagedWrite>(*this, std::move(manifest), std::move(catalog).value(), timestamp));
}

// Forgets what a compaction has folded. While nobody writes, and nobody has since, all versions go by one
// record instead of one each.
Status DeltaLog::DropVersions(const std::string& table, uint64_t timestamp) {
  QUARRY_TRY(const std::shared_ptr<Catalog> catalog, catalog_(/*writable=*/true));
  {
    MutexLock lock(mutex_);
    QUARRY_RETURN_IF_ERROR(Load());
    if (writers_.empty() && staged_timestamp_ == 0 && last_timestamp_ <= timestamp) {
      QUARRY_RETURN_IF_ERROR(catalog->DropAllVersions(table));
      touched_.emplace(std::pair(table, timestamp), RowBitmap());
      return Status::Ok();
    }
  }
  return catalog->DropVersions(table, timestamp);
}

Result<uint64_t> DeltaLog::LastTimestamp() {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Load());
  return last_timestamp_;
}

Result<std::unique_ptr<RowOverlay>> DeltaLog::OpenOverlay(IoBackend& backend, const TableRecord& table,
                                                          std::shared_ptr<const Snapshot> snapshot,
                                                          RowBitmap folded,
                                                          std::unique_ptr<FeatureTable> file) {
  MutexLock lock(mutex_);
  QUARRY_TRY(const RowBitmap* const written, RowsSince(table));
  return std::unique_ptr<RowOverlay>(std::make_unique<Overlay>(backend, table, std::move(snapshot), *written,
                                                               std::move(folded), std::move(file), catalog_));
}

}  // namespace quarry
