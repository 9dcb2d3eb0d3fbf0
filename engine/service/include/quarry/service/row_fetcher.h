// RowFetcher: rows of a table by id, in any order, through one ring that stays open: a lookup of one row is
// one read and nothing else. Rows are read in the order in which they lie, in merged requests, each once
// however often it is asked for, verified, and copied to where the answer wants them.
//
// One thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "quarry/format/types.h"
#include "quarry/io/backend.h"
#include "quarry/io/coalesce.h"
#include "quarry/storage/merged_reader.h"
#include "quarry/storage/table_view.h"

namespace quarry {

class RowFetcher {
 public:
  // What Read takes for a while, per id, of its caller's budget.
  static constexpr uint64_t kBytesPerId = 24;
  static constexpr uint64_t kStagingBytes = 2 * kMiB;

  // Backend and budget outlive it. Holds kStagingBytes of the budget from the first row on, more from the
  // first row on that is larger.
  RowFetcher(IoBackend& backend, MemoryBudget& budget, const DeviceProfile& profile)
      : reader_(backend, budget, profile, kStagingBytes) {}

  // The rows of a lookup in the order in which they lie, and how far reading them is. A value.
  class Order {
   private:
    friend class RowFetcher;
    std::vector<uint64_t> rows_;  // row << 32 | place
    size_t next_ = 0;
  };
  // kInvalidArgument names an id beyond the table.
  static Result<Order> Sort(const TableRecord& table, std::span<const NodeId> ids);
  // Reads the next 16 Ki of them, a few milliseconds' worth; false when none are left. kCorruption, kIoError.
  Result<bool> ReadSome(const TableView& table, Order& order, std::span<std::byte> out);

  // Row ids[i] to out[i * row_bytes]. Errors as both; kCancelled soon after `cancelled` was set. REQUIRES:
  // out has ids.size() rows.
  Status Read(const TableView& table, std::span<const NodeId> ids, std::span<std::byte> out,
              const std::atomic<bool>& cancelled);

 private:
  MergedReader reader_;
};

}  // namespace quarry
