#include "table_scan.h"

#include <algorithm>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kBatchBytes = kMiB;
constexpr uint64_t kReadAheadBytes = 8 * kMiB;

}  // namespace

Result<TableScan> TableScan::Open(Store& store, MemoryBudget& budget,
                                  std::shared_ptr<const Snapshot> snapshot, std::string_view name,
                                  uint64_t rows_at_a_time) {
  TableScan scan;
  QUARRY_TRY(scan.table_, store.OpenTable(*snapshot, name));
  QUARRY_TRY(scan.overlay_, store.OpenOverlay(name, std::move(snapshot)));
  scan.touched_ = scan.overlay_->TouchedRows();
  const FeatureGeometry& geometry = scan.geometry();
  if (rows_at_a_time == 0) rows_at_a_time = std::max<uint64_t>(1, kBatchBytes / geometry.row_bytes);
  const uint64_t batch_bytes = rows_at_a_time * geometry.row_bytes;
  QUARRY_TRY(scan.reservation_,
             budget.Reserve(scan.table_->resident_bytes() + scan.overlay_->resident_bytes() +
                                scan.touched_.size() * sizeof(uint64_t) + batch_bytes +
                                std::max(kReadAheadBytes, 4 * geometry.group_bytes),
                            fmt::format("reading table \"{}\"", name)));
  scan.batch_.resize(batch_bytes);
  QUARRY_TRY(scan.rows_,
             RowScanner::Make(store.backend(), *scan.table_, 0, geometry.row_count, kReadAheadBytes));
  return scan;
}

Result<std::span<const std::byte>> TableScan::Next() {
  const FeatureGeometry& geometry = table_->geometry();
  const uint64_t count = std::min(batch_.size() / geometry.row_bytes, geometry.row_count - next_);
  const std::span<std::byte> rows = std::span(batch_).first(count * geometry.row_bytes);
  if (count == 0) return std::span<const std::byte>();
  QUARRY_RETURN_IF_ERROR(rows_->Read(rows));
  QUARRY_RETURN_IF_ERROR(FoldRows(*overlay_, touched_, next_, geometry.row_bytes, rows));
  next_ += count;
  return std::span<const std::byte>(rows);
}

}  // namespace quarry
