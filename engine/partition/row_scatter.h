// Writes a table's rows by part: the table is read once, front to back, and every row goes to the end of its
// part's, through a buffer for each part. Private to this room.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/partition/partition_directory.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/store.h"

namespace quarry {

struct RowSource {
  Store& store;
  std::shared_ptr<const Snapshot> snapshot;
  TableRecord record;
  std::string_view section;  // where its rows go
  uint64_t row_bytes = 0;
  uint64_t row_stride = 0;  // from one row of a part to the next
};

// Appends the section, of whole pages for each part. `new_ids` are by old id, and ascend among the nodes of a part. Holds at most
// what the budget has left; kOutOfBudget with the least that would do.
Status ScatterRows(const RowSource& source, MemoryBudget& budget, const PartitionDirectory& directory,
                   std::span<const NodeId> new_ids, const ProgressFunction& progress, DataFileWriter& writer);

}  // namespace quarry
