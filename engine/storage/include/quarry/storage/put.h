// Filling a WriteBatch from arrays on disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quarry/base/status.h"
#include "quarry/format/dataset.h"
#include "quarry/format/manifest.h"
#include "quarry/storage/deltas.h"
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
  uint64_t memory_bytes = 1 << 30;  // the most that the batch may take
  ProgressFunction progress;
};

// Adds everything to `batch`; returns the number of ids. Features are converted to the table's type.
// kInvalidArgument names the place and the value of what does not fit (an id that occurs twice among them),
// kOutOfBudget when the batch grows beyond memory_bytes.
Result<uint64_t> FillBatch(const Manifest& manifest, const PutSource& source, const PutOptions& options,
                           WriteBatch& batch);

}  // namespace quarry
