// What compactions have put into tables. Private to this room.
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/catalog/catalog.h"
#include "quarry/storage/deltas.h"
#include "quarry/storage/row_bitmap.h"

namespace quarry {

// The rows that compactions have put into the table's file since `base`, and that changed after it. kUnsupported where that
// is not known. `path`: the database's.
Result<RowBitmap> FoldedSince(Catalog& catalog, const TableRecord& table, const TableVersion& base,
                              const std::string& path);

}  // namespace quarry
