// What derived data need of tables. Private to this room.
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"

namespace quarry {

// Layouts and partitionings have rows of a feature table, and layouts batches by labels and splits.
// kInvalidArgument names one of the database at `path` that needs this table.
Status CheckNotNeeded(const Manifest& manifest, const TableRecord& table, const std::string& path);

}  // namespace quarry
