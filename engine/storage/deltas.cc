#include "quarry/storage/deltas.h"

#include <algorithm>

#include "delta_log.h"
#include "quarry/base/units.h"
#include "quarry/format/element_type.h"

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
  Overlay(std::string table, uint64_t row_bytes, std::shared_ptr<const Snapshot> snapshot, RowBitmap touched,
          DeltaLog::CatalogFunction catalog)
      : table_(std::move(table)),
        snapshot_(std::move(snapshot)),
        touched_(std::move(touched)),
        zeros_(row_bytes),
        catalog_(std::move(catalog)) {}

  bool empty() const override { return touched_.isEmpty(); }
  bool Touched(uint64_t row) const override { return touched_.contains(static_cast<uint32_t>(row)); }
  std::vector<uint64_t> TouchedRows() const override { return {touched_.begin(), touched_.end()}; }
  uint64_t resident_bytes() const override { return touched_.getSizeInBytes(false) + zeros_.size(); }

  Status Read(std::span<const uint64_t> rows,
              const std::function<void(size_t, std::span<const std::byte>)>& put) const override {
    std::vector<uint64_t> wanted;
    std::vector<size_t> positions;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!Touched(rows[i])) continue;
      wanted.push_back(rows[i]);
      positions.push_back(i);
    }
    if (wanted.empty()) return Status::Ok();
    QUARRY_TRY(const std::shared_ptr<Catalog> catalog, catalog_(/*writable=*/false));
    return catalog->ReadVersions(
        table_, wanted, snapshot_->timestamp, [&](size_t i, const RowVersion& version) -> Status {
          if (!version.deleted() && version.value.size() != zeros_.size()) {
            return MakeStatus(Code::kCorruption,
                              "row {} of table \"{}\": version {} has {} bytes, a row has {}", version.row,
                              table_, version.timestamp, version.value.size(), zeros_.size());
          }
          put(positions[i], version.deleted() ? std::span<const std::byte>(zeros_) : version.value);
          return Status::Ok();
        });
  }

 private:
  const std::string table_;
  const std::shared_ptr<const Snapshot> snapshot_;
  const RowBitmap touched_;
  const std::vector<std::byte> zeros_;
  const DeltaLog::CatalogFunction catalog_;
};

}  // namespace

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

Result<RowBitmap*> DeltaLog::Touched(const std::string& table) {
  const auto found = touched_.find(table);
  if (found != touched_.end()) return &found->second;
  RowBitmap rows;
  QUARRY_TRY(const std::shared_ptr<Catalog> catalog, catalog_(/*writable=*/false));
  QUARRY_RETURN_IF_ERROR(catalog->ScanVersions(table, [&](const RowVersion& version) {
    rows.add(static_cast<uint32_t>(version.row));
    return Status::Ok();
  }));
  rows.runOptimize();
  return &touched_.emplace(table, std::move(rows)).first->second;
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
  return catalog->PutVersions(versions, sync);
}

// From here on new snapshots see the group.
void DeltaLog::Publish(std::span<Writer* const> group) {
  for (const Writer* const writer : group) {
    for (const WriteBatch::Entry& entry : writer->batch->entries()) {
      const auto rows = touched_.find(writer->batch->tables()[entry.table]);
      if (rows != touched_.end()) rows->second.add(static_cast<uint32_t>(entry.row));
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

Result<std::shared_ptr<const Snapshot>> DeltaLog::TakeSnapshot() {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Load());
  return std::make_shared<const Snapshot>(Snapshot{.timestamp = last_timestamp_});
}

Result<std::unique_ptr<RowOverlay>> DeltaLog::OpenOverlay(const TableRecord& table,
                                                          std::shared_ptr<const Snapshot> snapshot) {
  MutexLock lock(mutex_);
  QUARRY_TRY(const RowBitmap* const touched, Touched(table.name));
  return std::unique_ptr<RowOverlay>(std::make_unique<Overlay>(
      table.name, RowBytes(table.element_type, table.dim), std::move(snapshot), *touched, catalog_));
}

}  // namespace quarry
