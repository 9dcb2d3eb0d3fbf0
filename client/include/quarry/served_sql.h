// SQL for the clients of a server (ServerOptions::sql).
#pragma once

#include <memory>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/server/sql_runner.h"
#include "quarry/storage/store.h"

namespace quarry {

// Runs it over the store. Takes an eighth of what the budget has, 4 GiB at most, for what SQLite itself holds
// for all of them, and limits SQLite to that while it lives: one at a time in a process. Store and budget
// outlive it.
Result<std::shared_ptr<SqlRunner>> MakeSqlRunner(Store& store, MemoryBudget& budget);

}  // namespace quarry
