// SQL over an open database, by SQLite's engine on virtual tables. The tables are listed in docs/cli.md under
// `quarry sql`.
//
//   QUARRY_TRY(auto sql, sql::Connection::Open(db->store(), db->budget(), {}));
//   QUARRY_TRY(auto rows, sql->Query("SELECT id, feature FROM features WHERE id IN (?1, ?2)", {7, 9}));
//   while (true) {
//     QUARRY_TRY(const bool more, rows.Next());
//     if (!more) break;
//     rows.Integer(0);
//     rows.Blob(1);  // float32
//   }
//
// Texts and blobs may have at most 64 MiB. Tables that a statement creates lie in memory and go with the
// connection. A statement sees one snapshot, and so do all statements between BEGIN and COMMIT: the one that
// the first of them took, and what they wrote themselves. What a transaction writes is one commit, by
// COMMIT, under one timestamp: of rows, which its statements see, and of nodes and edges that come and go
// (GraphChange), which they do not. It replaces what others have written to the same rows since the snapshot.
// The functions create_table(name, dim, element_type) and drop_table(name) make and remove tables of the database at once,
// outside of transactions.
//
// Connection and Rows belong to one thread; any number of connections may be open, whoever writes to the store
// meanwhile. Store and budget outlive them, Rows must be gone before their connection. What only reads changes
// no byte of the database.
//
// Errors: kInvalidArgument when SQLite refuses the text (the message names the line); kCancelled after a
// timeout or by `cancelled`; errors that the tables meet come back as they are (kCorruption, kIoError,
// kOutOfBudget).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_maintenance.h"
#include "quarry/storage/store.h"

struct sqlite3_stmt;

namespace quarry::sql {

// NULL, INTEGER, REAL, TEXT, BLOB.
using Value = std::variant<std::monostate, int64_t, double, std::string, std::vector<std::byte>>;

// Does a task as whoever has the database does it for everybody (quarry/service/maintenance.h), one at a time.
using MaintainFunction = std::function<Status(const wire::MaintenanceTask&, const ProgressFunction&)>;

struct ConnectionOptions {
  bool write = false;               // UPDATE, INSERT and DELETE reach the database
  double timeout_seconds = 0;       // for one statement, from its first row on; 0 = none
  std::function<bool()> cancelled;  // asked now and then while a statement runs; may be empty
  bool served = false;              // for a stranger: no PRAGMA sets anything, here or in the process
  // Asked before temporary files grow by this many bytes; an error ends the statement. Told, by a negative
  // number, when they shrink. May be empty.
  std::function<Status(int64_t bytes)> temp_files;
  // What create_table() and drop_table() ask for; they are refused where it is empty.
  MaintainFunction maintain;
};

// One statement and its rows, forward only. Moved, not copied.
class Rows {
 public:
  enum class Type : uint8_t { kNull, kInteger, kReal, kText, kBlob };

  Rows(Rows&& other) noexcept;
  Rows& operator=(Rows&& other) noexcept;
  ~Rows();

  // Moves to the first row, then to the next; false after the last. A statement without rows runs in the
  // first call.
  Result<bool> Next();

  int column_count() const;  // 0: the statement has no rows
  std::string_view column_name(int column) const;
  // Values of the row that Next came to; text and blobs are valid until the next call of Next. A value is
  // converted as SQLite does it: the text of a number, 0 for NULL.
  Type type(int column) const;
  int64_t Integer(int column) const;
  double Real(int column) const;
  std::string_view Text(int column) const;
  std::span<const std::byte> Blob(int column) const;

 private:
  friend class ConnectionImpl;
  class Statement;
  explicit Rows(std::unique_ptr<Statement> statement);
  std::unique_ptr<Statement> statement_;
};

// A table, or a function that returns one, for people who ask what there is.
struct TableInfo {
  struct Column {
    std::string name, type;
    bool hidden = false;  // SELECT * leaves it out: an argument, or what takes long to tell
  };
  std::string name;
  std::vector<Column> columns;
};

// Whether `text` ends a statement: a shell that reads lines goes on until it does.
bool IsComplete(const std::string& text);

// The folder where SQLite makes temporary files.
std::string TempFolder();

// Limits what SQLite may hold, for all connections of the process together; 0: no limit. A statement that
// would take more fails with kOutOfBudget.
void LimitMemory(uint64_t bytes);

class Connection {
 public:
  static Result<std::unique_ptr<Connection>> Open(Store& store, MemoryBudget& budget,
                                                  const ConnectionOptions& options);
  virtual ~Connection() = default;

  // Runs the one statement of `sql`, with `parameters` for ?1, ?2, ... kInvalidArgument when there are more
  // statements, or another number of parameters.
  virtual Result<Rows> Query(std::string_view sql, std::span<const Value> parameters = {}) = 0;
  Result<Rows> Query(std::string_view sql, std::initializer_list<Value> parameters) {
    return Query(sql, std::span(parameters.begin(), parameters.size()));
  }

  // Runs the statements of `script` one after the other, and calls `visit` with each of them before its first
  // row. Ends at the first error, also one of `visit`; lines are counted from the script's first.
  virtual Status Run(std::string_view script, const std::function<Status(Rows&)>& visit) = 0;

  // Prepares the statement at byte `at` of a script and moves `at` behind it; nothing when there are no more.
  // Lines are counted from the script's first. Run each statement before asking for the next, since it may
  // create what the next one names.
  virtual Result<std::optional<Rows>> Next(const std::string& script, size_t& at) = 0;

  virtual std::vector<TableInfo> tables() const = 0;
};

}  // namespace quarry::sql
