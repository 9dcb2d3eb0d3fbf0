// Store::Query, of both kinds of stores: a statement on a connection of its own.
#include <utility>

#include "quarry/client/store.h"

namespace quarry::client {
namespace {

class QueryCursor final : public RowCursor {
 public:
  QueryCursor(std::unique_ptr<SqlConnection> connection, std::unique_ptr<RowCursor> cursor)
      : connection_(std::move(connection)), cursor_(std::move(cursor)) {}
  Result<bool> Next() override { return cursor_->Next(); }
  const std::vector<std::string>& columns() const override { return cursor_->columns(); }
  ValueView value(size_t column) const override { return cursor_->value(column); }
  std::string Text(size_t column) const override { return cursor_->Text(column); }

 private:
  const std::unique_ptr<SqlConnection> connection_;
  const std::unique_ptr<RowCursor> cursor_;  // dies first
};

}  // namespace

Result<std::unique_ptr<RowCursor>> Store::Query(std::string_view sql, std::span<const Value> parameters,
                                                const SqlOptions& options) {
  QUARRY_TRY(std::unique_ptr<SqlConnection> connection, Connect(options));
  QUARRY_TRY(std::unique_ptr<RowCursor> cursor, connection->Query(sql, parameters));
  return std::unique_ptr<RowCursor>(std::make_unique<QueryCursor>(std::move(connection), std::move(cursor)));
}

}  // namespace quarry::client
