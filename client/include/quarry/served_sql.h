// SQL for the clients of a server (ServerOptions::sql).
#pragma once

#include <memory>

#include "quarry/server/sql_runner.h"
#include "quarry/storage/store.h"

namespace quarry {

// Runs it over the store, which outlives it. Its limit of memory is one of SQLite, and so of the process: one
// at a time in a process.
std::shared_ptr<SqlRunner> MakeSqlRunner(Store& store);

}  // namespace quarry
