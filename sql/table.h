// What a virtual table is to this room: columns, what a query of it would cost, and a cursor over its rows.
// module.h puts SQLite over it. Private to this room; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/sql/connection.h"

struct sqlite3_context;

namespace quarry::sql {

enum class Op : uint8_t { kEqual, kIn, kLess, kLessEqual, kGreater, kGreaterEqual };

struct Constraint {
  int column = 0;
  Op op = Op::kEqual;
  // None while a query is priced; then one, or for kIn any number. Those of an INTEGER column are numbers
  // where they can be made ones.
  std::vector<Value> values;
};

// What SQLite leaves to the table: of its rows, those for which all constraints hold.
struct Query {
  uint64_t columns = 0;  // bit i: column i will be asked for
  std::vector<Constraint> constraints;

  bool Wants(int column) const { return (columns >> column & 1) != 0; }
  bool Has(int column, Op op) const;
  bool Has(int column) const;  // a constraint on it
  // Whether the constraints on this TEXT column, all of = and IN, leave `text`.
  bool Allows(int column, std::string_view text) const;
};

// Which constraints a table takes over. SQLite tests the others on the rows that it gets.
enum class Pushdown : uint8_t {
  kNone,
  kEquality,  // = and IN
  kRange,     // and <, <=, >, >=
  kArgument,  // hidden: a parameter of a table-valued function, in the order of the columns
};

enum class ColumnType : uint8_t { kInteger, kReal, kText, kBlob };
const char* TypeName(ColumnType type);  // in SQL

struct Column {
  const char* name;
  ColumnType type;
  Pushdown pushdown = Pushdown::kNone;
  bool costly = false;  // SELECT * leaves it out, like arguments
  bool is_hidden() const { return costly || pushdown == Pushdown::kArgument; }
};

struct Estimate {
  double rows = 0;
  double seconds = 0;
};

// Where a cursor puts the value of a column. Text and blobs are copied.
class Output {
 public:
  explicit Output(sqlite3_context* context) : context_(context) {}
  void Null();
  void Integer(int64_t value);
  void Real(double value);
  void Text(std::string_view value);
  void Constant(std::string_view value);  // a text that outlives all, so nobody copies it
  void Blob(std::span<const std::byte> value);
  void Put(const Value& value);

 private:
  sqlite3_context* const context_;
};

class Cursor {
 public:
  virtual ~Cursor() = default;
  // Goes before the first row of another query, whose constraints are the ones that the cursor was opened for
  // with other values: a join does so for each of its rows. False: the cursor has to be opened anew.
  virtual Result<bool> Restart(const Query&) { return false; }
  virtual Result<bool> Next() = 0;  // to the first row, then to the next; false after the last
  virtual Status Get(int column, Output& out) = 0;
  // The same for a row whatever the query, and of no other row: SQLite tells rows apart by it.
  virtual Result<int64_t> RowId() = 0;
};

class Table {
 public:
  virtual ~Table() = default;
  virtual std::string_view name() const = 0;
  virtual std::span<const Column> columns() const = 0;
  // Nothing when a query cannot be run so (an argument is missing).
  virtual std::optional<Estimate> Price(const Query& query) const = 0;
  // The columns that the rows of `query` ascend by; empty: in no order.
  virtual std::vector<int> Order(const Query& query) const = 0;
  // The query outlives the cursor.
  virtual Result<std::unique_ptr<Cursor>> Open(const Query& query) = 0;
  // The table can be written to, where the connection allows it.
  virtual bool IsWritable() const { return false; }
  // Makes `value` what the column of this row holds. kInvalidArgument when it cannot be.
  virtual Status Update(int64_t row_id, int column, const Value& value);
  // INSERT adds rows. Else each row is there, and INSERT OR REPLACE changes the one that its values name.
  virtual bool Grows() const { return false; }
  // These values, by column, become a row; NULL: not given. Its number, as last_insert_rowid() tells it.
  virtual Result<int64_t> Insert(std::span<const Value> values);
  virtual Status Delete(int64_t row_id);
};

}  // namespace quarry::sql
