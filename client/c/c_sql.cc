// The C interface: SQL.
#include <atomic>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "handles.h"

using quarry::Code;
using quarry::MakeStatus;
using quarry::Result;
using quarry::Status;
using quarry::client::Ends;
using quarry::client::Given;
using quarry::client::RowCursor;
using quarry::client::SqlOptions;
using quarry::client::TextOr;
using quarry::client::Value;
using quarry::client::ValueView;
namespace wire = quarry::wire;

// NOLINTBEGIN(readability-identifier-naming): names as C has them
struct quarry_sql {
  std::atomic<bool> interrupted{false};
  std::unique_ptr<quarry::client::SqlConnection> connection;
  std::vector<wire::SqlTable> tables;  // copied: after a reconnect the connection has others
  std::vector<std::vector<quarry_column_info>> columns;  // columns by table
};

struct quarry_cursor {
  std::unique_ptr<RowCursor> owned;  // null: a script's
  RowCursor* rows = nullptr;
  bool on_row = false;
  std::vector<std::optional<std::string>> texts;  // texts of the row, as they were asked for
};
// NOLINTEND(readability-identifier-naming)

namespace {

Result<SqlOptions> OptionsOf(const quarry_sql_options* options) {
  QUARRY_TRY(const quarry_sql_options given, Given(options, "quarry_sql_options"));
  return SqlOptions{.write = given.write != 0, .timeout_seconds = given.timeout_seconds};
}

Result<Value> ValueOf(const quarry_value& given) {
  const auto* const bytes = static_cast<const std::byte*>(given.data);
  const std::span<const std::byte> data(bytes, bytes == nullptr ? 0 : given.bytes);
  switch (given.type) {
    case QUARRY_NULL:
      return Value();
    case QUARRY_INTEGER:
      return Value(given.integer);
    case QUARRY_REAL:
      return Value(given.real);
    case QUARRY_TEXT:
      return Value(std::string(reinterpret_cast<const char*>(data.data()), data.size()));
    case QUARRY_BLOB:
      return Value(std::vector<std::byte>(data.begin(), data.end()));
    default:
      return MakeStatus(Code::kInvalidArgument, "a value of type {}", given.type);
  }
}

Result<std::vector<Value>> ValuesOf(const quarry_value* parameters, size_t count) {
  std::vector<Value> values;
  for (size_t i = 0; i < count; ++i) {
    QUARRY_TRY(Value value, ValueOf(parameters[i]));
    values.push_back(std::move(value));
  }
  return values;
}

std::unique_ptr<quarry_cursor> MakeCursor(std::unique_ptr<RowCursor> rows) {
  auto cursor = std::make_unique<quarry_cursor>();
  cursor->rows = rows.get();
  cursor->owned = std::move(rows);
  return cursor;
}

ValueView ViewOf(const quarry_cursor* cursor, size_t column) {
  if (!cursor->on_row || column >= cursor->rows->columns().size()) return {};
  return cursor->rows->value(column);
}

Status Drop(RowCursor& rows) {
  while (true) {
    QUARRY_TRY(const bool more, rows.Next());
    if (!more) return Status();
  }
}

}  // namespace

int quarry_sql_open(quarry_store* store, const quarry_sql_options* options, quarry_sql** sql) {
  return Ends([&]() -> Status {
    QUARRY_TRY(SqlOptions given, OptionsOf(options));
    auto opened = std::make_unique<quarry_sql>();
    given.cancelled = [raw = opened.get()] { return raw->interrupted.load(); };
    QUARRY_TRY(opened->connection, store->store->Connect(given));
    opened->tables = opened->connection->tables();
    for (const wire::SqlTable& table : opened->tables) {
      std::vector<quarry_column_info>& columns = opened->columns.emplace_back();
      for (const wire::SqlColumn& column : table.columns) {
        columns.push_back({column.name.c_str(), column.type.c_str(), column.hidden ? 1 : 0});
      }
    }
    *sql = opened.release();
    return Status();
  });
}
void quarry_sql_free(quarry_sql* sql) { delete sql; }
void quarry_sql_interrupt(quarry_sql* sql) { sql->interrupted = true; }
const char* quarry_sql_table(const quarry_sql* sql, size_t table) {
  return table < sql->tables.size() ? sql->tables[table].name.c_str() : nullptr;
}
const quarry_column_info* quarry_sql_column(const quarry_sql* sql, size_t table, size_t column) {
  if (table >= sql->columns.size() || column >= sql->columns[table].size()) return nullptr;
  return &sql->columns[table][column];
}

int quarry_sql_query(quarry_sql* sql, const char* text, const quarry_value* parameters,
                     size_t parameter_count, quarry_cursor** cursor) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const std::vector<Value> values, ValuesOf(parameters, parameter_count));
    sql->interrupted = false;
    QUARRY_TRY(auto rows, sql->connection->Query(TextOr(text, ""), values));
    *cursor = MakeCursor(std::move(rows)).release();
    return Status();
  });
}
int quarry_query(quarry_store* store, const char* text, const quarry_value* parameters,
                 size_t parameter_count, const quarry_sql_options* options, quarry_cursor** cursor) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const SqlOptions given, OptionsOf(options));
    QUARRY_TRY(const std::vector<Value> values, ValuesOf(parameters, parameter_count));
    QUARRY_TRY(auto rows, store->store->Query(TextOr(text, ""), values, given));
    *cursor = MakeCursor(std::move(rows)).release();
    return Status();
  });
}
int quarry_sql_run(quarry_sql* sql, const char* script, quarry_visit visit, void* context) {
  int visited = QUARRY_OK;
  const int code = Ends([&]() -> Status {
    sql->interrupted = false;
    const auto each = [&](RowCursor& rows) -> Status {
      if (visit == nullptr) return Drop(rows);
      quarry_cursor cursor;
      cursor.rows = &rows;
      visited = visit(context, &cursor);
      return visited == QUARRY_OK ? Status() : Status(Code::kCancelled, "the visitor ended the script");
    };
    const Status run = sql->connection->Run(TextOr(script, ""), each);
    return visited == QUARRY_OK ? run : Status();  // what failed in the visitor has said why
  });
  return visited == QUARRY_OK ? code : visited;
}

void quarry_cursor_free(quarry_cursor* cursor) { delete cursor; }
int quarry_cursor_next(quarry_cursor* cursor, int* more) {
  return Ends([&]() -> Status {
    cursor->on_row = false;
    cursor->texts.assign(cursor->rows->columns().size(), std::nullopt);
    QUARRY_TRY(cursor->on_row, cursor->rows->Next());
    *more = cursor->on_row ? 1 : 0;
    return Status();
  });
}
size_t quarry_cursor_column_count(const quarry_cursor* cursor) { return cursor->rows->columns().size(); }
const char* quarry_cursor_column_name(const quarry_cursor* cursor, size_t column) {
  const std::vector<std::string>& columns = cursor->rows->columns();
  return column < columns.size() ? columns[column].c_str() : nullptr;
}
// The alternatives are in the order of the types.
int quarry_cursor_type(const quarry_cursor* cursor, size_t column) {
  return static_cast<int>(ViewOf(cursor, column).index());
}
int64_t quarry_cursor_int64(const quarry_cursor* cursor, size_t column) {
  const ValueView value = ViewOf(cursor, column);
  const auto* const integer = std::get_if<int64_t>(&value);
  return integer == nullptr ? 0 : *integer;
}
double quarry_cursor_double(const quarry_cursor* cursor, size_t column) {
  const ValueView value = ViewOf(cursor, column);
  if (const auto* const integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  const auto* const real = std::get_if<double>(&value);
  return real == nullptr ? 0 : *real;
}
const void* quarry_cursor_blob(const quarry_cursor* cursor, size_t column, uint64_t* bytes) {
  const ValueView value = ViewOf(cursor, column);
  std::span<const std::byte> data;
  if (const auto* const text = std::get_if<std::string_view>(&value)) data = std::as_bytes(std::span(*text));
  if (const auto* const blob = std::get_if<std::span<const std::byte>>(&value)) data = *blob;
  if (bytes != nullptr) *bytes = data.size();
  return data.data();
}
const char* quarry_cursor_text(quarry_cursor* cursor, size_t column, uint64_t* bytes) {
  if (bytes != nullptr) *bytes = 0;
  if (quarry_cursor_type(cursor, column) == QUARRY_NULL) return nullptr;
  std::optional<std::string>& text = cursor->texts[column];
  if (!text) text = cursor->rows->Text(column);
  if (bytes != nullptr) *bytes = text->size();
  return text->c_str();
}
