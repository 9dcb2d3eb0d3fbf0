// The shell of `quarry sql` on a terminal.
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/client/sql.h"
#include "sql_print.h"

namespace quarry::cli {

// Reads statements and commands until .quit or Ctrl-D. What fails is told, and the shell goes on; Ctrl-C ends
// the statement that runs. History lies in ~/.quarry_history.
Status RunSqlShell(client::SqlConnection& connection, const std::string& database, SqlFormat format,
                   bool write);

}  // namespace quarry::cli
