// How `quarry sql` prints the rows of a statement.
#pragma once

#include <cstdint>

#include "quarry/base/status.h"
#include "quarry/client/sql.h"

namespace quarry::cli {

enum class SqlFormat : uint8_t { kBox, kCsv, kJson };

// Runs the statement; what it gives goes to stdout while it comes. A statement without rows is only run.
Status PrintRows(client::RowCursor& rows, SqlFormat format);

}  // namespace quarry::cli
