#include "quarry/storage/table_files.h"

namespace quarry {

Result<std::shared_ptr<const FeatureTable>> TableFiles::Open(const Snapshot& snapshot,
                                                             const TableRecord& record) {
  MutexLock lock(mutex_);
  std::shared_ptr<const OpenFile>& open = files_[record.name];
  const bool same = open != nullptr && open->generation == record.generation &&
                    open->table->geometry().row_count == record.row_count;
  if (!same) {
    open.reset();  // before the next one takes as much memory
    QUARRY_TRY(const FeatureGeometry geometry,
               FeatureGeometry::Make(record.element_type, record.dim, record.row_count));
    auto next = std::make_shared<OpenFile>();
    next->generation = record.generation;
    QUARRY_TRY(next->reservation, budget_.Reserve(geometry.cell_count() * sizeof(uint32_t),
                                                  "checksums of table \"" + record.name + "\""));
    QUARRY_TRY(next->table, store_.OpenTable(snapshot, record.name));
    open = std::move(next);
  }
  return std::shared_ptr<const FeatureTable>(open, open->table.get());
}

}  // namespace quarry
