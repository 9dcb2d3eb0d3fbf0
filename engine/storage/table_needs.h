// What derived data need of tables. Private to this room.
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"

namespace quarry {

// Layouts and partitionings have rows of a feature table, and layouts batches by labels and splits. Columns that are joined
// to the rows of a graph at several times are among the inputs of its training runs, and layouts leave room for them.
// kInvalidArgument names one of the database at `path` that needs this table.
Status CheckNotNeeded(const Manifest& manifest, const TableRecord& table, const std::string& path);

}  // namespace quarry
