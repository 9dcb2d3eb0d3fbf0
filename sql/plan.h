// A query's way from xBestIndex to xFilter. Private to this room; for module.cc alone.
#pragma once

#include <span>
#include <string_view>

#include "quarry/base/status.h"
#include "sqlite_api.h"
#include "table.h"

namespace quarry::sql {

// Fills in what the table takes over; the result is SQLite's: SQLITE_CONSTRAINT when the query cannot be run
// this way.
int PlanQuery(const Table& table, sqlite3_index_info& info);

// The inverse: the query that idxNum and idxStr stand for, with its values.
Result<Query> ReadPlan(const Table& table, int columns, std::string_view text,
                       std::span<sqlite3_value* const> arguments);

// Puts the values of another call of the same plan into the query that ReadPlan made; false where the query is
// not of that form (lists, texts that are compared with numbers): read the plan again.
bool RereadPlan(const Table& table, std::span<sqlite3_value* const> arguments, Query& query);

// As a column of this type is compared with it.
Value ValueOf(sqlite3_value* value, ColumnType type);

}  // namespace quarry::sql
