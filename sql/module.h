// SQLite's side of a virtual table. Private to this room.
#pragma once

#include "quarry/base/status.h"
#include "session.h"
#include "table.h"

struct sqlite3;

namespace quarry::sql {

// Makes the table part of the connection. Table and session outlive it.
Status RegisterTable(sqlite3* database, Session& session, Table& table);

// vec_dot, vec_l2, vec_cosine, vec_dim, vec_slice, vec_to_json, vec_from_json over blobs of float32.
Status RegisterVectorFunctions(sqlite3* database);

}  // namespace quarry::sql
