// Importing: a database from a data set of another system's files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/element_type.h"
#include "quarry/import/dataset.h"
#include "quarry/io/backend.h"

namespace quarry {

struct ImportOptions {
  uint64_t memory_bytes = 1 << 30;
  bool undirected = false;
  bool add_reverse = false;      // adds reversed edges as relations of their own ("<name>_reverse")
  bool both_directions = false;  // CSR beside CSC
  bool deduplicate = false;
  bool allow_nan = false;
  // Labels are numbered 0, 1, ... in ascending order; the table kLabelCodeTable has what they were. Without it,
  // labels that look like codes are refused.
  bool relabel = false;
  std::optional<ElementType> feature_type;  // convert features to this type
  ProgressFunction progress;
};

// Builds the database at `path` from `dataset`: everything in `<path>.importing`, fsynced, then renamed, so
// `path` appears whole or not at all. kAlreadyExists when `path` exists. A leftover of a killed import is
// removed.
Status ImportDatabase(IoBackend& backend, const std::string& path, Dataset dataset,
                      const ImportOptions& options);

}  // namespace quarry
