#include "quarry/service/stored_tables.h"

#include <algorithm>
#include <utility>

#include "quarry/storage/record_names.h"

namespace quarry {
namespace {

Status NoTable(std::string_view name, std::span<const TableRecord> tables) {
  return Status(Code::kNotFound, ThereIsNo("table", name, "tables", tables));
}

// By their pins: a table that was dropped and made again has the same name and another file.
bool SameFiles(const Snapshot& a, const Snapshot& b) { return a.files == b.files; }

}  // namespace

Result<const TableView*> StoredTables::View::Open(std::string_view name) {
  MutexLock lock(mutex_);
  const auto found = open_.find(name);
  if (found != open_.end()) return &found->second->view;
  QUARRY_TRY(auto table, tables_.Open(name, snapshot_));
  return &open_.emplace(name, std::move(table)).first->second->view;
}

Result<std::shared_ptr<StoredTables::View>> StoredTables::Newest() {
  QUARRY_TRY(std::shared_ptr<const Snapshot> snapshot, store_.TakeSnapshot());
  std::shared_ptr<View> replaced;  // dies behind the lock
  MutexLock lock(mutex_);
  if (newest_ == nullptr || newest_->snapshot()->timestamp < snapshot->timestamp ||
      !SameFiles(*newest_->snapshot(), *snapshot)) {
    replaced = std::exchange(newest_, std::make_shared<View>(*this, std::move(snapshot)));
  }
  return newest_;
}

void StoredTables::LetGo() {
  std::shared_ptr<View> kept;  // dies behind the lock
  MutexLock lock(mutex_);
  kept = std::exchange(newest_, nullptr);
}

Result<TableRecord> StoredTables::Find(std::string_view name) const {
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  if (const TableRecord* const record = manifest->FindTable(name)) return *record;
  return NoTable(name, manifest->tables);
}

Result<std::unique_ptr<const StoredTables::OpenTable>> StoredTables::Open(
    std::string_view name, const std::shared_ptr<const Snapshot>& snapshot) {
  const TableRecord* const record = snapshot->FindTable(name);
  if (record == nullptr) return NoTable(name, snapshot->tables);
  auto table = std::make_unique<OpenTable>();
  QUARRY_TRY(table->view, TableView::Open(store_, files_, snapshot, *record));
  QUARRY_TRY(table->reservation, budget_.Reserve(table->view.overlay->resident_bytes(),
                                                 "changed rows of table \"" + record->name + "\""));
  return std::unique_ptr<const OpenTable>(std::move(table));
}

}  // namespace quarry
