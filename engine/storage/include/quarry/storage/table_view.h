// TableView: a table as a snapshot has it: its file, and the rows that are newer. Lookups and SQL gather rows
// by id from it. Immutable: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "quarry/base/status.h"
#include "quarry/storage/merged_reader.h"
#include "quarry/storage/store.h"
#include "quarry/storage/table_files.h"

namespace quarry {

struct TableView {
  std::shared_ptr<const Snapshot> snapshot;
  TableRecord record;
  std::shared_ptr<const FeatureTable> file;
  std::unique_ptr<const RowOverlay> overlay;

  // `record`: a table of the snapshot. Errors as TableFiles' and Store::OpenOverlay's. The store outlives it.
  static Result<TableView> Open(Store& store, TableFiles& files, std::shared_ptr<const Snapshot> snapshot,
                                const TableRecord& record);

  const FeatureGeometry& geometry() const { return file->geometry(); }

  // Calls put(i, row) for each of `rows` (ascending), in any order, with the row as encoded and verified,
  // valid during the call. Rows that nobody changed are read through `reader`, by merged requests.
  // kCorruption, kIoError, kOutOfBudget.
  using Put = std::function<void(size_t i, std::span<const std::byte> row)>;
  Status Gather(MergedReader& reader, std::span<const uint64_t> rows, const Put& put) const;
};

}  // namespace quarry
