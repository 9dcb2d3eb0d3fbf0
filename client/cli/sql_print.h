// How `quarry sql` prints the rows of a statement.
#pragma once

#include <cstdint>
#include <cstdio>

#include "quarry/base/status.h"
#include "quarry/client/sql.h"

namespace quarry::cli {

enum class SqlFormat : uint8_t { kBox, kCsv, kJson, kLine, kMarkdown };

struct SqlPrinting {
  SqlFormat format = SqlFormat::kBox;
  FILE* out = stdout;
  size_t width = 0;       // characters of a line that a box may have; 0: any number
  uint64_t rows_max = 0;  // those behind them are counted; 0: all are printed. For boxes, lines, Markdown
};

// Characters of a line of the terminal behind `out`; 0 where it is none.
size_t TerminalWidth(FILE* out);

// Runs the statement and prints what it gives while that comes. A statement without rows is only run.
Status PrintRows(client::RowCursor& rows, const SqlPrinting& printing);

}  // namespace quarry::cli
