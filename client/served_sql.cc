#include "quarry/served_sql.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "quarry/base/process.h"
#include "quarry/sql/connection.h"
#include "sql_values.h"

namespace quarry {
namespace {

constexpr double kPageSeconds = 0.1;       // then a page goes as full as it is
constexpr uint64_t kValueHeadBytes = 300;  // more than stands before the bytes of a value

class ServedCursor final : public SqlCursor {
 public:
  ServedCursor(sql::Connection& connection, std::string script)
      : connection_(connection), script_(std::move(script)) {}
  ServedCursor(sql::Connection& connection, sql::Rows rows) : connection_(connection) {
    Begin(std::move(rows));
  }

  std::vector<std::string> columns() const override {
    return rows_ ? ColumnsOf(*rows_) : std::vector<std::string>();
  }

  Result<bool> NextStatement() override {
    rows_.reset();
    fault_ = Status::Ok();
    QUARRY_TRY(std::optional<sql::Rows> rows, connection_.Next(script_, at_));
    if (!rows) return false;
    Begin(std::move(*rows));
    return true;
  }

  Result<wire::SqlRows> Rows(size_t bytes_max) override {
    wire::SqlRows page;
    const double end = MonotonicSeconds() + kPageSeconds;
    while (fault_.ok() && !page.last && page.bytes.size() < bytes_max) {
      if (column_ < column_count_) {
        AddSome(page.bytes, bytes_max);
      } else if (!page.bytes.empty() && MonotonicSeconds() > end) {
        return page;
      } else {
        const Result<bool> more = NextRow();
        fault_ = more.status();
        page.last = more.ok() && !*more;
      }
    }
    if (!fault_.ok() && page.bytes.empty()) return fault_;
    return page;
  }

 private:
  void Begin(sql::Rows rows) {
    rows_.emplace(std::move(rows));
    column_ = column_count_ = rows_->column_count();
    in_value_ = false;
  }

  Result<bool> NextRow() {
    if (!rows_) return false;  // before a script's first statement, and behind its last
    QUARRY_TRY(const bool more, rows_->Next());
    if (!more) return false;
    uint64_t bytes = 0;
    for (int i = 0; i < column_count_; ++i) bytes += kValueHeadBytes + Content(i).size();
    if (bytes > wire::kSqlRowBytesMax) {
      return MakeStatus(Code::kInvalidArgument, "a row of {} bytes; a server gives rows of up to {}", bytes,
                        wire::kSqlRowBytesMax);
    }
    column_ = 0;
    return true;
  }

  // What a text or a blob holds.
  std::span<const std::byte> Content(int column) const {
    if (rows_->type(column) == sql::Rows::Type::kBlob) return rows_->Blob(column);
    if (rows_->type(column) != sql::Rows::Type::kText) return {};
    return std::as_bytes(std::span(rows_->Text(column)));
  }

  // Adds as much of the value at hand as the page has room for.
  void AddSome(std::vector<std::byte>& page, size_t bytes_max) {
    if (!in_value_) {
      const wire::SqlValueView value = ViewOf(*rows_, column_);
      const bool real = std::holds_alternative<double>(value);
      wire::AppendSqlHead(value, real ? rows_->Text(column_) : "", page);
      in_value_ = true;
      offset_ = 0;
    }
    const std::span<const std::byte> content = Content(column_).subspan(offset_);
    const size_t bytes = std::min(content.size(), bytes_max - std::min(page.size(), bytes_max));
    page.insert(page.end(), content.begin(), content.begin() + static_cast<ptrdiff_t>(bytes));
    offset_ += bytes;
    if (bytes < content.size()) return;
    ++column_;
    in_value_ = false;
  }

  sql::Connection& connection_;
  const std::string script_;
  size_t at_ = 0;                  // where the script's next statement begins
  std::optional<sql::Rows> rows_;  // rows of the current statement
  int column_count_ = 0;
  int column_ = 0;  // of the row at hand: what a page takes next; column_count_: the next row
  bool in_value_ = false;
  size_t offset_ = 0;  // bytes of the value that pages have taken
  Status fault_;       // comes behind the rows that were there before it
};

class ServedConnection final : public SqlConnection {
 public:
  explicit ServedConnection(std::unique_ptr<sql::Connection> connection)
      : connection_(std::move(connection)) {}

  std::vector<wire::SqlTable> tables() const override { return TablesOf(*connection_); }
  Result<std::unique_ptr<SqlCursor>> Query(std::string_view text,
                                           std::span<const wire::SqlValue> parameters) override {
    QUARRY_TRY(sql::Rows rows, connection_->Query(text, parameters));
    return std::unique_ptr<SqlCursor>(std::make_unique<ServedCursor>(*connection_, std::move(rows)));
  }
  Result<std::unique_ptr<SqlCursor>> RunScript(std::string text) override {
    return std::unique_ptr<SqlCursor>(std::make_unique<ServedCursor>(*connection_, std::move(text)));
  }

 private:
  const std::unique_ptr<sql::Connection> connection_;
};

class ServedSql final : public SqlRunner {
 public:
  explicit ServedSql(Store& store) : store_(store) {}
  ~ServedSql() override { sql::LimitMemory(0); }

  void LimitMemory(uint64_t bytes) override { sql::LimitMemory(bytes); }
  Result<std::unique_ptr<SqlConnection>> Connect(MemoryBudget& budget, const SqlOptions& options) override {
    QUARRY_TRY(std::unique_ptr<sql::Connection> connection,
               sql::Connection::Open(store_, budget,
                                     {.write = options.write,
                                      .timeout_seconds = options.timeout_seconds,
                                      .cancelled = options.cancelled,
                                      .served = true,
                                      .temp_files = options.temp_files,
                                      .maintain = options.maintain}));
    return std::unique_ptr<SqlConnection>(std::make_unique<ServedConnection>(std::move(connection)));
  }

 private:
  Store& store_;
};

}  // namespace

std::shared_ptr<SqlRunner> MakeSqlRunner(Store& store) { return std::make_shared<ServedSql>(store); }

}  // namespace quarry
