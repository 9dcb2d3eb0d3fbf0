// TableScan: the rows of a table front to back, as a snapshot has them. Private to this room; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/storage/store.h"

namespace quarry {

class TableScan {
 public:
  // `rows_at_a_time` 0: as many as a mebibyte holds. Holds that, the checksums of the table, and 8 bytes for
  // each changed row. kNotFound, kCorruption, kOutOfBudget.
  static Result<TableScan> Open(Store& store, MemoryBudget& budget, std::shared_ptr<const Snapshot> snapshot,
                                std::string_view name, uint64_t rows_at_a_time = 0);

  // The next rows, encoded, row_bytes apart; empty after the last. Valid until the next call.
  Result<std::span<const std::byte>> Next();

  const FeatureGeometry& geometry() const { return table_->geometry(); }
  uint64_t done() const { return next_; }  // rows

 private:
  TableScan() = default;

  std::unique_ptr<FeatureTable> table_;
  std::unique_ptr<RowOverlay> overlay_;
  std::vector<uint64_t> touched_;
  MemoryBudget::Reservation reservation_;
  std::optional<RowScanner> rows_;  // the base's
  std::vector<std::byte> batch_;
  uint64_t next_ = 0;
};

}  // namespace quarry
