// Committing rows, labels and splits from arrays on disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/import/dataset.h"
#include "quarry/import/graph_change.h"
#include "quarry/storage/store.h"

namespace quarry {

// Sources whose row i belongs to the node ids[i]. A null or empty one changes nothing.
struct PutSource {
  IntReader* ids = nullptr;
  RowReader* features = nullptr;
  IntReader* labels = nullptr;
  std::optional<Split> split;    // the new split of all the nodes
  bool delete_features = false;  // the nodes were removed
};

// The destination of rows that are not put into a store of this process. Its calls do what Store's do; the
// manifest has the number of nodes, and the tables with name, type, rows and dimension.
struct PutTarget {
  Manifest manifest;
  std::function<Result<uint64_t>(const WriteBatch&)> write;
  std::function<Result<std::unique_ptr<LargeWrite>>()> begin_large_write;
  uint64_t first_row = 0;  // the id whose features are the table's row 0
};

struct PutOptions {
  std::string table = "feature";
  bool allow_nan = false;
  uint64_t memory_bytes = 1 << 30;  // for rows under way; each node takes a few bits besides
  ProgressFunction progress;
};

struct PutReport {
  uint64_t nodes = 0;
  uint64_t rows = 0;  // rows of all tables
  uint64_t timestamp = 0;
};

// Commits all of it at once, synced, or nothing. Features are converted to the table's type. Rows for which
// memory_bytes has no room are written ahead of the commit (LargeWrite), and forgotten if it fails. Any
// thread may call it.
//
// kInvalidArgument names the place and the value of what does not fit (also an id that occurs twice);
// kNotFound; kBusy beside another large commit; kCancelled when `progress` says so.
Result<PutReport> PutRows(Store& store, const PutSource& source, const PutOptions& options);
Result<PutReport> PutRows(const PutTarget& target, const PutSource& source, const PutOptions& options);
// Puts rows of all the nodes that a change adds, row i that of its node i, to be committed with it. `source` has no ids.
// Where nodes have types, features go to the type's table unless the options name another one; kInvalidArgument where it has
// none.
Status PutAdded(GraphChange& change, PutSource source, const PutOptions& options);

}  // namespace quarry
