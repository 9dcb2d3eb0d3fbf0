// SQL in the local protocol: its requests and answers, and values and rows as bytes (docs/protocol.md, "Rows
// of SQL").
//
//   value   type, 1 byte: 0 NULL, 1 INTEGER, 2 REAL, 3 TEXT, 4 BLOB, and then
//             INTEGER     int64
//             REAL        float64 | its text: 1 byte of length, then so many bytes
//             TEXT, BLOB  uint32 bytes | the bytes
//   row     its values, in the order of the columns
//
// All little-endian. A REAL brings its text along because only SQLite writes it as SQLite does, and the
// remote library has no SQLite. Rows lie one behind the other, and are cut into pages anywhere: a value of
// any size crosses as many pages as it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/wire_types.h"

namespace quarry::wire {

inline constexpr uint64_t kSqlTextBytesMax = 16 << 20;
inline constexpr uint32_t kSqlColumnsMax = 2000;      // SQLite's own limits
inline constexpr uint32_t kSqlParametersMax = 32766;  //
inline constexpr uint64_t kSqlRowBytesMax = 256 << 20;
inline constexpr size_t kSqlPageBytesMax = 256 << 10;  // of rows in an answer

enum class SqlType : uint8_t { kNull, kInteger, kReal, kText, kBlob };

// NULL, INTEGER, REAL, TEXT, BLOB.
using SqlValue = std::variant<std::monostate, int64_t, double, std::string, std::vector<std::byte>>;
// The same, of bytes that lie elsewhere.
using SqlValueView =
    std::variant<std::monostate, int64_t, double, std::string_view, std::span<const std::byte>>;

// Appends what stands before the bytes of a TEXT or BLOB, and the whole value for the other types. `text` is
// a REAL as SQLite writes it.
void AppendSqlHead(const SqlValueView& value, std::string_view text, std::vector<std::byte>& out);

// Encodes values of parameters, and decodes them: kInvalidArgument when there are not `count` of them.
std::vector<std::byte> SqlValueBytes(std::span<const SqlValue> values);
Result<std::vector<SqlValue>> ReadSqlValues(std::span<const std::byte> bytes, uint32_t count);

// Reads rows out of pages. Its memory grows with the bytes that have arrived. Used by one thread.
class SqlRowReader {
 public:
  explicit SqlRowReader(size_t columns) : cells_(columns) {}

  // Adds a page that continues where the one before ended. Values read so far become invalid.
  void Add(std::span<const std::byte> page);
  // Moves to the next row that has arrived whole; false when it needs another page. kCorruption when these
  // are no rows.
  Result<bool> Next();
  bool empty() const { return next_ == bytes_.size(); }  // no part of a further row is left

  // The values of the row, until Add or Next.
  SqlValueView value(size_t column) const { return cells_[column].value; }
  std::string_view text(size_t column) const { return cells_[column].text; }  // of a REAL

 private:
  struct Cell {
    SqlValueView value;
    std::string_view text;
  };
  std::vector<Cell> cells_;
  std::vector<std::byte> bytes_;
  size_t next_ = 0;  // where the next row begins
};

// ---- requests. Only statements of the same connection see its transaction and what was made for it.

struct OpenSql {
  bool write = false;          // UPDATE and INSERT OR REPLACE reach the database
  double timeout_seconds = 0;  // for a statement; 0 = the server's own limit
  bool operator==(const OpenSql&) const = default;
};

struct CloseSql {
  uint64_t connection = 0;
  bool operator==(const CloseSql&) const = default;
};

struct Query {
  uint64_t connection = 0;
  bool script = false;      // statements one after the other, without parameters; else one statement
  Bulk text;                // UTF-8
  uint32_t parameters = 0;  // for ?1, ?2, ...
  Bulk values;              // theirs, as wire_sql.h lays them out
  bool operator==(const Query&) const = default;
};

struct Fetch {
  uint64_t cursor = 0;
  bool next = false;  // the next statement of the script, instead of rows of this one
  bool operator==(const Fetch&) const = default;
};

struct CloseQuery {
  uint64_t cursor = 0;
  bool operator==(const CloseQuery&) const = default;
};

// ---- answers

struct SqlColumn {
  std::string name, type;
  bool hidden = false;  // of no SELECT *: an argument, or what takes long to tell
  bool operator==(const SqlColumn&) const = default;
};

// A table of SQL, or a function that gives one.
struct SqlTable {
  std::string name;
  std::vector<SqlColumn> columns;
  bool operator==(const SqlTable&) const = default;
};

struct SqlOpened {
  uint64_t connection = 0;
  std::vector<SqlTable> tables;
  bool operator==(const SqlOpened&) const = default;
};

// Answers Query, and Fetch of the next statement.
struct Statement {
  uint64_t cursor = 0;
  std::vector<std::string> columns;  // none: the statement has no rows, or the script has not begun
  bool operator==(const Statement&) const = default;
};

// Answers Fetch: rows as wire_sql.h lays them out; they go on from one page to the next.
struct SqlRows {
  std::vector<std::byte> bytes;
  bool last = false;
  bool operator==(const SqlRows&) const = default;
};

}  // namespace quarry::wire
