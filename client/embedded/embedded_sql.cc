#include "embedded_sql.h"

#include <utility>

#include "sql_values.h"

namespace quarry::client {
namespace {

class EmbeddedCursor final : public RowCursor {
 public:
  explicit EmbeddedCursor(sql::Rows& rows) : rows_(rows), columns_(ColumnsOf(rows)) {}
  Result<bool> Next() override { return rows_.Next(); }
  const std::vector<std::string>& columns() const override { return columns_; }
  ValueView value(size_t column) const override { return ViewOf(rows_, static_cast<int>(column)); }
  std::string Text(size_t column) const override { return std::string(rows_.Text(static_cast<int>(column))); }

 private:
  sql::Rows& rows_;
  const std::vector<std::string> columns_;
};

// The same, with rows of its own.
class OwnedCursor final : public RowCursor {
 public:
  explicit OwnedCursor(sql::Rows rows) : rows_(std::move(rows)), cursor_(rows_) {}
  Result<bool> Next() override { return cursor_.Next(); }
  const std::vector<std::string>& columns() const override { return cursor_.columns(); }
  ValueView value(size_t column) const override { return cursor_.value(column); }
  std::string Text(size_t column) const override { return cursor_.Text(column); }

 private:
  sql::Rows rows_;
  EmbeddedCursor cursor_;
};

class EmbeddedSql final : public SqlConnection {
 public:
  explicit EmbeddedSql(std::unique_ptr<sql::Connection> connection)
      : connection_(std::move(connection)), tables_(TablesOf(*connection_)) {}

  Result<std::unique_ptr<RowCursor>> Query(std::string_view sql, std::span<const Value> parameters) override {
    QUARRY_TRY(sql::Rows rows, connection_->Query(sql, parameters));
    return std::unique_ptr<RowCursor>(std::make_unique<OwnedCursor>(std::move(rows)));
  }
  Status Run(std::string_view script, const std::function<Status(RowCursor&)>& visit) override {
    return connection_->Run(script, [&visit](sql::Rows& rows) {
      EmbeddedCursor cursor(rows);
      return visit(cursor);
    });
  }
  const std::vector<wire::SqlTable>& tables() const override { return tables_; }

 private:
  const std::unique_ptr<sql::Connection> connection_;
  const std::vector<wire::SqlTable> tables_;
};

}  // namespace

std::unique_ptr<SqlConnection> WrapSql(std::unique_ptr<sql::Connection> connection) {
  return std::make_unique<EmbeddedSql>(std::move(connection));
}

}  // namespace quarry::client
