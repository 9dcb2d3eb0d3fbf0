// Committing rows, labels and splits from arrays on disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "quarry/base/status.h"
#include "quarry/format/dataset.h"
#include "quarry/storage/store.h"

namespace quarry {

// What row i of a source means for the node ids[i]. Null, empty: nothing.
struct PutSource {
  IntReader* ids = nullptr;
  RowReader* features = nullptr;
  IntReader* labels = nullptr;
  std::optional<Split> split;    // of all of them
  bool delete_features = false;  // of nodes that were removed
};

// Where rows go that are not put into a store of this process. Its calls are as Store's; the manifest has the
// number of nodes and the tables, by name, type, rows and dimension.
struct PutTarget {
  Manifest manifest;
  std::function<Result<uint64_t>(const WriteBatch&)> write;
  std::function<Result<std::unique_ptr<LargeWrite>>()> begin_large_write;
};

struct PutOptions {
  std::string table = "feature";
  bool allow_nan = false;
  uint64_t memory_bytes = 1 << 30;  // for rows on the way; each node takes a few bits besides
  ProgressFunction progress;
};

struct PutReport {
  uint64_t nodes = 0;
  uint64_t rows = 0;  // of all tables
  uint64_t timestamp = 0;
};

// All of it in one commit, synced, or nothing. Features are converted to the table's type. What memory_bytes
// has no room for is written ahead of the commit (LargeWrite), and forgotten when there is none. Any thread.
//
// kInvalidArgument names the place and the value of what does not fit (an id that occurs twice among them);
// kNotFound; kBusy beside another large commit; kCancelled when `progress` says so.
Result<PutReport> PutRows(Store& store, const PutSource& source, const PutOptions& options);
Result<PutReport> PutRows(const PutTarget& target, const PutSource& source, const PutOptions& options);

}  // namespace quarry
