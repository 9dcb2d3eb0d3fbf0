// Committing rows, labels and splits from arrays on disk.
#pragma once

#include <cstdint>
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

}  // namespace quarry
