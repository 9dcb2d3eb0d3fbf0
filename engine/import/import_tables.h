// The tables of an import: features, targets, labels, splits. Private to this room.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/import/dataset.h"
#include "quarry/import/import.h"
#include "quarry/io/backend.h"
#include "quarry/storage/store.h"

namespace quarry {

// Where an import writes, and what it has found out. Values of `options` and `manifest` outlive it.
struct ImportTarget {
  IoBackend& backend;
  std::string database_path;
  const ImportOptions& options;
  Manifest& manifest;  // node_count is known; tables are appended

  Status Progress(std::string_view phase, uint64_t done, uint64_t total) const {
    return options.progress ? options.progress(phase, done, total) : Status::Ok();
  }
};

// Buffers of the functions below, together with those of a reader and a writer.
inline constexpr uint64_t kImportBufferBytes = 16 << 20;

// Converted where options.feature_type says so. kInvalidArgument names row and column of a NaN or an
// infinity. `table` has so many rows; those of all nodes unless told otherwise.
Status ImportFeatures(ImportTarget& target, RowReader& rows, std::string_view table = "feature",
                      std::optional<uint64_t> row_count = {});

// What places have at all times, or times at all places (quarry/storage/times.h), as elements of the features' type.
// REQUIRES: the features are imported.
Status ImportColumns(ImportTarget& target, RowReader& rows, std::string_view table);

// The rows of table "target", as they are; NaN is none.
Status ImportTargets(ImportTarget& target, RowReader& rows);

// Sets manifest.class_count.
Status ImportLabels(ImportTarget& target, IntReader& labels, std::optional<uint64_t> class_count);

// Splits may be null. Holds 2 bits a node: kOutOfBudget when those do not fit in the memory.
Status ImportSplits(ImportTarget& target, IntReader* train, IntReader* valid, IntReader* test);

}  // namespace quarry
