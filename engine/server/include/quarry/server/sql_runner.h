// SqlRunner: runs SQL for a server's clients. The server does not know SQL: whoever starts it hands it a
// runner (ServerOptions), or none.
//
// A connection belongs to one client, together with its transaction and what its statements create. It and
// its cursors are used by one thread at a time, though not always the same one: by a server's threads for
// SQL, which do nothing else. A running statement looks at the connection's `cancelled` now and then.
//
// Errors are those of the statement, and come as sentences for the client: kInvalidArgument, kCancelled
// (cancelled, or a timeout), and what the tables meet (kCorruption, kIoError, kOutOfBudget).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_maintenance.h"
#include "quarry/format/wire_sql.h"

namespace quarry {

// The statements of a text, and their rows as wire_sql.h lays them out.
class SqlCursor {
 public:
  virtual ~SqlCursor() = default;
  // The columns of the statement at hand; none before a script's first.
  virtual std::vector<std::string> columns() const = 0;
  // To the next statement of a script; false behind the last. What is left of the one at hand is not run.
  virtual Result<bool> NextStatement() = 0;
  // The next rows, of up to about `bytes_max` bytes, and the first of them soon; a row may begin in one page
  // and end in another. Rows that were there before an error come before it.
  virtual Result<wire::SqlRows> Rows(size_t bytes_max) = 0;
};

class SqlConnection {
 public:
  virtual ~SqlConnection() = default;
  virtual std::vector<wire::SqlTable> tables() const = 0;
  // Cursors must be gone before their connection.
  virtual Result<std::unique_ptr<SqlCursor>> Query(std::string_view text,
                                                   std::span<const wire::SqlValue> parameters) = 0;
  virtual Result<std::unique_ptr<SqlCursor>> RunScript(std::string text) = 0;
};

struct SqlOptions {
  bool write = false;
  double timeout_seconds = 0;  // for one statement; 0: none
  std::function<bool()> cancelled;
  // Asked before temporary files of the connection grow by this many bytes, which an error forbids; told, by
  // a negative number, when they shrink.
  std::function<Status(int64_t bytes)> temp_files;
  // Does what statements ask for that make and remove tables, in the server's turn.
  std::function<Status(const wire::MaintenanceTask& task, const ProgressFunction& progress)> maintain;
};

class SqlRunner {
 public:
  virtual ~SqlRunner() = default;
  // Sets what it may hold from now on for all connections together, beside what their tables draw on budgets.
  // Called before the first Connect, and again when there is no connection.
  virtual void LimitMemory(uint64_t bytes) = 0;
  // `budget` outlives the connection, whose tables draw on it. Thread-safe.
  virtual Result<std::unique_ptr<SqlConnection>> Connect(MemoryBudget& budget, const SqlOptions& options) = 0;
};

}  // namespace quarry
