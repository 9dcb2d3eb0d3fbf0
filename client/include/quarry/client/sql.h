// SQL over a store, the same embedded and remote. The tables are listed in docs/cli.md under `quarry sql`.
//
//   QUARRY_TRY(auto rows, store->Query("SELECT id, feature FROM features WHERE id IN (?1, ?2)", ids));
//   while (true) {
//     QUARRY_TRY(const bool more, rows->Next());
//     if (!more) break;
//     std::get<int64_t>(rows->value(0));
//     std::get<std::span<const std::byte>>(rows->value(1));  // float32
//   }
//
// A statement sees one snapshot, and so do all statements of an SqlConnection between BEGIN and COMMIT; what
// they write is one commit. Texts and blobs may have at most 64 MiB. Tables that a statement creates go with
// the connection. With a server, texts have at most 16 MiB and rows 256 MiB, and a statement takes at most an
// hour; rows come in pages, and the statement waits in between. When the server goes away, the statement
// fails with kIoError, what was not committed is gone, and the next statement gets a new connection. The same
// happens when the server does not answer at all for the store's timeout, or when a statement with a timeout
// of its own has not ended after both timeouts; a statement without one is waited for as long as its server
// lives.
//
// A connection and its cursors belong to one thread, and must be gone before the store; cursors before their
// connection. Errors: kInvalidArgument when SQLite refuses the text (the message names the line); kCancelled
// after a timeout or by `cancelled`; kUnsupported from a server that runs no SQL; errors that the tables meet
// come as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/wire_sql.h"

namespace quarry::client {

using Value = wire::SqlValue;  // NULL, INTEGER, REAL, TEXT, BLOB
using ValueView = wire::SqlValueView;

struct SqlOptions {
  bool write = false;               // UPDATE and INSERT OR REPLACE reach the database
  double timeout_seconds = 0;       // for one statement, from its first row on; 0 = none
  std::function<bool()> cancelled;  // asked now and then while a statement runs; may be empty
};

// The rows of a statement, forward only.
class RowCursor {
 public:
  virtual ~RowCursor() = default;
  // Moves to the first row, then to the next; false after the last. A statement without rows runs in the
  // first call.
  virtual Result<bool> Next() = 0;
  virtual const std::vector<std::string>& columns()
      const = 0;  // their names; none: the statement has no rows
  // A value of the row that Next came to; texts and blobs are valid until the next call of Next. REQUIRES:
  // column < columns().size().
  virtual ValueView value(size_t column) const = 0;
  // The value as SQLite writes it: a number as text, NULL as nothing.
  virtual std::string Text(size_t column) const = 0;
};

class SqlConnection {
 public:
  virtual ~SqlConnection() = default;
  // Runs the one statement of `sql`, with `parameters` for ?1, ?2, ... kInvalidArgument when there are more
  // statements, or another number of parameters.
  virtual Result<std::unique_ptr<RowCursor>> Query(std::string_view sql,
                                                   std::span<const Value> parameters = {}) = 0;
  // Runs the statements of `script` one after the other, and calls `visit` with each of them before its first
  // row. Ends at the first error, also one of `visit`; lines are counted from the script's first.
  virtual Status Run(std::string_view script, const std::function<Status(RowCursor&)>& visit) = 0;
  virtual const std::vector<wire::SqlTable>& tables() const = 0;
};

}  // namespace quarry::client
