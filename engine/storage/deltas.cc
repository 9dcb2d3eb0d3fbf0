#include "quarry/storage/deltas.h"

#include <algorithm>
#include <cstring>

#include "delta_log.h"
#include "quarry/base/kill_point.h"
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
        catalog_(std::move(catalog)) {}

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
  // Appends to `older` the folded rows that have no version.
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
  const RowBitmap written_;  // has versions that the file does not
  const RowBitmap folded_;   // differs between the file and the base that the overlay is for
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
  QUARRY_TRY(last_timestamp_, catalog->LastTimestamp());
  loaded_ = true;
  return Status::Ok();
}

Result<const RowBitmap*> DeltaLog::RowsSince(const TableRecord& table) {
  const auto key = std::pair(table.name, table.folded);
  const auto found = touched_.find(key);
  if (found != touched_.end()) return &found->second;
  RowBitmap rows;
  QUARRY_TRY(const std::shared_ptr<Catalog> catalog, catalog_(/*writable=*/false));
  QUARRY_RETURN_IF_ERROR(catalog->ScanVersions(table.name, [&](const RowVersion& version) {
    if (version.timestamp > table.folded) rows.add(static_cast<uint32_t>(version.row));
    return Status::Ok();
  }));
  rows.runOptimize();
  return &touched_.emplace(key, std::move(rows)).first->second;
}

// The first writers of the queue, together up to kGroupBytesMax; at least one.
std::vector<DeltaLog::Writer*> DeltaLog::TakeGroup() {
  std::vector<Writer*> group;
  uint64_t bytes = 0;
  for (Writer* const writer : writers_) {
    bytes += writer->batch->memory_bytes();
    if (!group.empty() && bytes > kGroupBytesMax) break;
    group.push_back(writer);
    writer->timestamp = last_timestamp_ + group.size();
  }
  return group;
}

Status DeltaLog::Commit(std::span<Writer* const> group) {
  QUARRY_TRY(const std::shared_ptr<Catalog> catalog, catalog_(/*writable=*/true));
  std::vector<RowVersion> versions;
  bool sync = false;
  for (const Writer* const writer : group) {
    sync |= writer->sync;
    for (const WriteBatch::Entry& entry : writer->batch->entries()) {
      versions.push_back({.table = writer->batch->tables()[entry.table],
                          .row = entry.row,
                          .timestamp = writer->timestamp,
                          .value = writer->batch->value(entry)});
    }
  }
  KillPoint("put: not logged");
  QUARRY_RETURN_IF_ERROR(catalog->PutVersions(versions, sync));
  KillPoint("put: logged, not visible");
  return Status::Ok();
}

// From here on new snapshots see the group.
void DeltaLog::Publish(std::span<Writer* const> group) {
  for (const Writer* const writer : group) {
    for (auto& [key, rows] : touched_) {
      for (const WriteBatch::Entry& entry : writer->batch->entries()) {
        if (writer->batch->tables()[entry.table] == key.first) rows.add(static_cast<uint32_t>(entry.row));
      }
    }
    last_timestamp_ = writer->timestamp;
  }
}

Result<uint64_t> DeltaLog::Write(const Manifest& manifest, const WriteBatch& batch,
                                 const WriteOptions& options) {
  for (const WriteBatch::Entry& entry : batch.entries()) {
    QUARRY_RETURN_IF_ERROR(CheckEntry(manifest, batch, entry));
  }
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Load());
  if (batch.empty()) return last_timestamp_;
  Writer self{.batch = &batch, .sync = options.sync};
  writers_.push_back(&self);
  while (!self.done && writers_.front() != &self) self.wake.Wait(mutex_);
  if (!self.done) {
    const std::vector<Writer*> group = TakeGroup();
    Status status = failed_;
    if (status.ok()) {
      mutex_.Unlock();
      status = Commit(group);
      mutex_.Lock();
      if (status.ok()) {
        Publish(group);
        KillPoint("put: visible, not told");
      } else {
        failed_ =
            MakeStatus(status.code(), "{}: writes are refused since one failed: {}", path_, status.message());
      }
    }
    for (Writer* const writer : group) {
      writer->done = true;
      writer->status = status;
      writers_.pop_front();
      if (writer != &self) writer->wake.NotifyOne();
    }
    if (!writers_.empty()) writers_.front()->wake.NotifyOne();
  }
  if (!self.status.ok()) return self.status;
  return self.timestamp;
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
