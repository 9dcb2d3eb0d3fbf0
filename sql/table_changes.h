// create_table(name, dim, element_type) and drop_table(name): functions of SQL that make and remove tables of the database.
// Each is done when it is called, and is no part of a transaction. Private to this room.
#pragma once

#include "quarry/base/status.h"
#include "quarry/sql/connection.h"
#include "session.h"

struct sqlite3;

namespace quarry::sql {

// What the functions of a connection need; outlives it.
struct TableChanges {
  sqlite3* database = nullptr;
  Session* session = nullptr;
  const MaintainFunction* maintain = nullptr;
};
Status RegisterTableChanges(TableChanges& changes);

}  // namespace quarry::sql
