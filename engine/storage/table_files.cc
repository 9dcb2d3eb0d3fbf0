#include "quarry/storage/table_files.h"

#include <algorithm>

namespace quarry {
namespace {

// A snapshot has those of its tables first, in their order.
const std::shared_ptr<const void>& PinOf(const Snapshot& snapshot, const TableRecord& record) {
  const auto table = std::ranges::find(snapshot.tables, record.name, &TableRecord::name);
  return snapshot.files[static_cast<size_t>(table - snapshot.tables.begin())];
}

bool IsSame(const std::weak_ptr<const void>& a, const std::shared_ptr<const void>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

}  // namespace

Result<std::shared_ptr<const FeatureTable>> TableFiles::Open(const Snapshot& snapshot,
                                                             const TableRecord& record) {
  MutexLock lock(mutex_);
  std::shared_ptr<const OpenFile>& open = files_[record.name];
  const std::shared_ptr<const void>& pin = PinOf(snapshot, record);
  const bool same =
      open != nullptr && IsSame(open->pin, pin) && open->table->geometry().row_count == record.row_count;
  if (!same) {
    open.reset();  // before the next one takes as much memory
    QUARRY_TRY(const FeatureGeometry geometry,
               FeatureGeometry::Make(record.element_type, record.dim, record.row_count));
    auto next = std::make_shared<OpenFile>();
    next->pin = pin;
    QUARRY_TRY(next->reservation, budget_.Reserve(geometry.cell_count() * sizeof(uint32_t),
                                                  "checksums of table \"" + record.name + "\""));
    QUARRY_TRY(next->table, store_.OpenTable(snapshot, record.name));
    open = std::move(next);
  }
  return std::shared_ptr<const FeatureTable>(open, open->table.get());
}

}  // namespace quarry
