// SQLite's side of a virtual table. Private to this room.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "quarry/base/status.h"
#include "session.h"
#include "table.h"

struct sqlite3;

namespace quarry::sql {

// Makes the table part of the connection, under `name`. Table and session outlive it, by what `owner` keeps
// if by nothing else.
Status RegisterTable(sqlite3* database, const std::string& name, Session& session, Table& table,
                     std::shared_ptr<void> owner = nullptr);
// No statement finds the table any more; those that have it keep it.
void UnregisterTable(sqlite3* database, const std::string& name);

// vec_dot, vec_l2, vec_cosine, vec_dim, vec_slice, vec_to_json, vec_from_json over blobs of float32.
Status RegisterVectorFunctions(sqlite3* database);

// Makes the tables of a module for CREATE VIRTUAL TABLE.
class TableMaker {
 public:
  struct Made {
    Session* session = nullptr;
    Table* table = nullptr;
    std::shared_ptr<void> owner;  // owns both
  };
  virtual ~TableMaker() = default;
  // The table `name`, also when it is there already: in a schema that another connection has made, or that
  // SQLite reads anew. `arguments` as they stand in the statement.
  virtual Result<Made> Make(sqlite3* database, const std::string& name,
                            std::span<const char* const> arguments) = 0;
  // DROP TABLE.
  virtual void Drop(sqlite3* database, const std::string& name) = 0;
};
// The maker lives as long as the connection.
Status RegisterMaker(sqlite3* database, const char* module, std::unique_ptr<TableMaker> maker);

}  // namespace quarry::sql
