// How `quarry sql` prints the rows of a statement.
#pragma once

#include <cstdint>

#include "quarry/base/status.h"
#include "quarry/sql/connection.h"

namespace quarry::cli {

enum class SqlFormat : uint8_t { kBox, kCsv, kJson };

// Runs the statement; what it gives goes to stdout while it comes. A statement without rows is only run.
Status PrintRows(sql::Rows& rows, SqlFormat format);

}  // namespace quarry::cli
