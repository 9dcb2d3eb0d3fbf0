#include "quarry/sql/connection.h"

#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <iterator>
#include <limits>

#include "module.h"
#include "quarry/base/process.h"
#include "session.h"
#include "table_changes.h"
#include "tables.h"
#include "temp_files.h"

namespace quarry::sql {
namespace {

// So often a running statement looks at the clock: some tens of microseconds apart.
constexpr int kOpsPerLook = 1000;
constexpr size_t kTextBytesMax = 1'000'000'000;  // SQLite's own limit
// The limit of one value. What SQLite holds is not part of the budget, and a row of features is far smaller.
constexpr int kValueBytesMax = 64 << 20;

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using DatabaseHandle = std::unique_ptr<sqlite3, CloseDatabase>;
using StatementHandle = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

// Line of the byte at `offset`, from 1.
size_t LineOf(std::string_view text, size_t offset) {
  return 1 + static_cast<size_t>(std::ranges::count(text.substr(0, offset), '\n'));
}

// Where a statement begins: behind what separates it from the one before. Comments are part of it.
size_t SkipSpace(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(" \t\r\n;", at), text.size());
}

// SQLite would take a NUL for the end.
Status CheckText(std::string_view text) {
  if (text.size() > kTextBytesMax) {
    return MakeStatus(Code::kInvalidArgument, "{} bytes of SQL; at most {} are taken", text.size(),
                      kTextBytesMax);
  }
  const size_t nul = text.find('\0');
  if (nul == std::string_view::npos) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "line {}: a NUL byte in the text", LineOf(text, nul));
}

Code CodeOf(int rc) {
  switch (rc & 0xff) {
    case SQLITE_NOMEM:
      return Code::kOutOfBudget;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:  // files of sorting
      return Code::kIoError;
    case SQLITE_FULL:
      return Code::kNoSpace;
    case SQLITE_INTERNAL:
    case SQLITE_MISUSE:
      return Code::kInternal;
    default:
      return Code::kInvalidArgument;
  }
}

int Bind(sqlite3_stmt* statement, int place, const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value))
    return sqlite3_bind_int64(statement, place, *integer);
  if (const auto* real = std::get_if<double>(&value)) return sqlite3_bind_double(statement, place, *real);
  if (const auto* text = std::get_if<std::string>(&value)) {
    return sqlite3_bind_text64(statement, place, text->data(), text->size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  }
  if (const auto* blob = std::get_if<std::vector<std::byte>>(&value)) {
    if (blob->empty()) return sqlite3_bind_zeroblob64(statement, place, 0);  // a null pointer would be NULL
    return sqlite3_bind_blob64(statement, place, blob->data(), blob->size(), SQLITE_TRANSIENT);
  }
  return sqlite3_bind_null(statement, place);
}

// Allows only PRAGMAs that tell what there is. Some of the others concern the whole process.
int Authorize(void*, int action, const char* name, const char*, const char*, const char*) {
  constexpr const char* kTelling[] = {
      "collation_list", "compile_options", "database_list", "foreign_key_list", "function_list",
      "index_info",     "index_list",      "index_xinfo",   "module_list",      "pragma_list",
      "table_info",     "table_list",      "table_xinfo"};
  if (action != SQLITE_PRAGMA) return SQLITE_OK;
  const auto is_name = [name](const char* telling) { return sqlite3_stricmp(name, telling) == 0; };
  return std::ranges::any_of(kTelling, is_name) ? SQLITE_OK : SQLITE_DENY;
}

}  // namespace

class ConnectionImpl final : public Connection {
 public:
  ConnectionImpl(Store& store, MemoryBudget& budget, const ConnectionOptions& options)
      : options_(options), session_(store, budget, options.write, [this] { return Look(); }) {}
  ~ConnectionImpl() override { assert(running_ == 0 && "rows outlive their connection"); }

  Status Open() {
    if (options_.temp_files) {
      QUARRY_TRY(temp_files_, TempFiles::Make(options_.temp_files));
    }
    const char* const vfs = temp_files_ == nullptr ? nullptr : temp_files_->vfs_name();
    sqlite3* database = nullptr;
    const int rc = sqlite3_open_v2(":memory:", &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, vfs);
    database_.reset(database);
    if (rc != SQLITE_OK) return MakeStatus(Code::kOutOfBudget, "SQLite: {}", sqlite3_errstr(rc));
    sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_limit(database, SQLITE_LIMIT_ATTACHED, 0);  // no other file is opened or made
    sqlite3_limit(database, SQLITE_LIMIT_LENGTH, kValueBytesMax);
    if (options_.served) sqlite3_set_authorizer(database, &Authorize, nullptr);
    sqlite3_progress_handler(database, kOpsPerLook, &ConnectionImpl::OnProgress, this);
    QUARRY_RETURN_IF_ERROR(RegisterVectorFunctions(database));
    table_changes_ = {database, &session_, &options_.maintain};
    QUARRY_RETURN_IF_ERROR(RegisterTableChanges(table_changes_));
    tables_ = MakeTables(session_);
    for (const std::unique_ptr<Table>& table : tables_) {
      QUARRY_RETURN_IF_ERROR(RegisterTable(database, std::string(table->name()), session_, *table));
    }
    return Status::Ok();
  }

  Result<Rows> Query(std::string_view sql, std::span<const Value> parameters) override;
  Status Run(std::string_view script, const std::function<Status(Rows&)>& visit) override;
  Result<std::optional<Rows>> Next(const std::string& script, size_t& at) override;
  std::vector<TableInfo> tables() const override;

 private:
  friend class Rows::Statement;

  // The statement at `begin` of the text, and where what follows it begins; null for a comment.
  Result<StatementHandle> Prepare(const std::string& text, size_t begin, size_t& next);
  Result<Rows> MakeRows(StatementHandle statement, size_t line);

  // A snapshot is for a transaction; without one, for the statements that run at a time.
  // An idle connection holds none, so that a compaction can drop what is old.
  void ReleaseIdleSnapshot() {
    if (running_ == 0 && sqlite3_get_autocommit(database_.get()) != 0) session_.EndSnapshot();
  }
  void BeginStatement() {
    ReleaseIdleSnapshot();
    ++running_;
  }
  void EndStatement() {
    --running_;
    SetDeadline(std::numeric_limits<double>::infinity());
    static_cast<void>(session_.TakeFault());  // one that SQLite was told to ignore
    ReleaseIdleSnapshot();
  }

  // kCancelled when the statement that runs shall end.
  Status Look() const {
    if (options_.cancelled && options_.cancelled()) return Status(Code::kCancelled, "interrupted");
    if (MonotonicSeconds() < deadline_seconds_) return Status::Ok();
    return MakeStatus(Code::kCancelled, "the statement took longer than {} s", options_.timeout_seconds);
  }
  static int OnProgress(void* self) {
    auto* const connection = static_cast<ConnectionImpl*>(self);
    const Status status = connection->Look();
    if (!status.ok()) connection->session_.SetFault(status);
    return static_cast<int>(!status.ok());
  }
  void SetDeadline(double start_seconds) {
    deadline_seconds_ = options_.timeout_seconds > 0 ? start_seconds + options_.timeout_seconds
                                                     : std::numeric_limits<double>::infinity();
  }
  Status Fault(int rc, size_t line);

  const ConnectionOptions options_;
  Session session_;
  std::vector<std::unique_ptr<Table>> tables_;
  TableChanges table_changes_;
  std::unique_ptr<TempFiles> temp_files_;  // null: SQLite's own
  DatabaseHandle database_;                // dies before what it calls
  int running_ = 0;                        // statements between their first row and their last
  double deadline_seconds_ = std::numeric_limits<double>::infinity();  // the running statement's
};

class Rows::Statement {
 public:
  Statement(ConnectionImpl& connection, StatementHandle handle, size_t line)
      : connection_(connection), handle_(std::move(handle)), line_(line) {}
  ~Statement() { Finish(); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Result<bool> Next() {
    if (state_ == State::kDone) return false;
    if (state_ == State::kReady) {
      connection_.BeginStatement();
      start_seconds_ = MonotonicSeconds();
      state_ = State::kRunning;
    }
    connection_.SetDeadline(start_seconds_);
    const int rc = sqlite3_step(handle_.get());
    if (rc == SQLITE_ROW) return true;
    const Status status = rc == SQLITE_DONE ? Status::Ok() : connection_.Fault(rc, line_);
    Finish();
    if (!status.ok()) return status;
    return false;
  }

  sqlite3_stmt* handle() const { return handle_.get(); }

 private:
  enum class State { kReady, kRunning, kDone };  // kReady -> kRunning -> kDone [Next]; any -> kDone [~]

  // Lets go of cursors and what they hold; the statement's columns stay to be asked for.
  void Finish() {
    if (state_ == State::kRunning) {
      sqlite3_reset(handle_.get());
      connection_.EndStatement();
    }
    state_ = State::kDone;
  }

  ConnectionImpl& connection_;
  const StatementHandle handle_;
  const size_t line_;
  State state_ = State::kReady;
  double start_seconds_ = 0;
};

Status ConnectionImpl::Fault(int rc, size_t line) {
  Status fault = session_.TakeFault();
  if (!fault.ok()) return fault;
  if (temp_files_ != nullptr) fault = temp_files_->TakeFault();
  if (!fault.ok()) return fault;
  return MakeStatus(CodeOf(rc), "line {}: {}", line, sqlite3_errmsg(database_.get()));
}

Result<StatementHandle> ConnectionImpl::Prepare(const std::string& text, size_t begin, size_t& next) {
  const char* tail = nullptr;
  sqlite3_stmt* statement = nullptr;
  // Told a length, SQLite would copy the rest of the text for each of its statements.
  const int rc = sqlite3_prepare_v3(database_.get(), text.c_str() + begin, -1, 0, &statement, &tail);
  StatementHandle handle(statement);
  if (rc == SQLITE_OK) {
    next = static_cast<size_t>(tail - text.c_str());
    return handle;
  }
  const int offset = sqlite3_error_offset(database_.get());
  return Fault(rc, LineOf(text, begin + static_cast<size_t>(std::max(offset, 0))));
}

Result<Rows> ConnectionImpl::MakeRows(StatementHandle statement, size_t line) {
  return Rows(std::make_unique<Rows::Statement>(*this, std::move(statement), line));
}

Result<Rows> ConnectionImpl::Query(std::string_view text, std::span<const Value> parameters) {
  QUARRY_RETURN_IF_ERROR(CheckText(text));
  const std::string sql(text);
  const size_t begin = SkipSpace(sql, 0);
  size_t next = 0;
  QUARRY_TRY(StatementHandle statement, Prepare(sql, begin, next));
  if (statement == nullptr) return Status(Code::kInvalidArgument, "there is no statement in the text");
  if (SkipSpace(sql, next) < sql.size()) {
    return MakeStatus(Code::kInvalidArgument, "line {}: more than one statement",
                      LineOf(sql, SkipSpace(sql, next)));
  }
  const int wanted = sqlite3_bind_parameter_count(statement.get());
  if (static_cast<size_t>(wanted) != parameters.size()) {
    return MakeStatus(Code::kInvalidArgument, "the statement has {} parameters, {} were given", wanted,
                      parameters.size());
  }
  for (int i = 0; i < wanted; ++i) {
    const int rc = Bind(statement.get(), i + 1, parameters[static_cast<size_t>(i)]);
    if (rc != SQLITE_OK) return MakeStatus(CodeOf(rc), "parameter {}: {}", i + 1, sqlite3_errstr(rc));
  }
  return MakeRows(std::move(statement), LineOf(sql, begin));
}

Status ConnectionImpl::Run(std::string_view text, const std::function<Status(Rows&)>& visit) {
  const std::string script(text);
  size_t at = 0;
  while (true) {
    QUARRY_TRY(std::optional<Rows> rows, Next(script, at));
    if (!rows) return Status::Ok();
    QUARRY_RETURN_IF_ERROR(visit(*rows));
  }
}

Result<std::optional<Rows>> ConnectionImpl::Next(const std::string& script, size_t& at) {
  if (at == 0) QUARRY_RETURN_IF_ERROR(CheckText(script));
  for (at = SkipSpace(script, at); at < script.size(); at = SkipSpace(script, at)) {
    const size_t begin = at;
    QUARRY_TRY(StatementHandle statement, Prepare(script, begin, at));
    if (statement == nullptr) continue;  // a comment
    QUARRY_TRY(Rows rows, MakeRows(std::move(statement), LineOf(script, begin)));
    return std::optional<Rows>(std::move(rows));
  }
  return std::optional<Rows>();
}

std::vector<TableInfo> ConnectionImpl::tables() const {
  std::vector<TableInfo> tables;
  for (const std::unique_ptr<Table>& table : tables_) {
    TableInfo info{.name = std::string(table->name())};
    for (const Column& column : table->columns()) {
      info.columns.push_back({column.name, TypeName(column.type), column.is_hidden()});
    }
    tables.push_back(std::move(info));
  }
  return tables;
}

bool IsComplete(const std::string& text) { return sqlite3_complete(text.c_str()) != 0; }

// As its documentation lists them (tempfiles.html, "Temporary File Storage Locations").
std::string TempFolder() {
  for (const char* const variable : {"SQLITE_TMPDIR", "TMPDIR"}) {
    const char* const folder = std::getenv(variable);
    if (folder != nullptr && access(folder, W_OK | X_OK) == 0) return folder;
  }
  for (const char* const folder : {"/var/tmp", "/usr/tmp", "/tmp"}) {
    if (access(folder, W_OK | X_OK) == 0) return folder;
  }
  return ".";
}

void LimitMemory(uint64_t bytes) {
  sqlite3_hard_heap_limit64(static_cast<sqlite3_int64>(bytes));
  sqlite3_soft_heap_limit64(static_cast<sqlite3_int64>(bytes));  // which only falls with the hard one
}

Rows::Rows(std::unique_ptr<Statement> statement) : statement_(std::move(statement)) {}
Rows::Rows(Rows&&) noexcept = default;
Rows& Rows::operator=(Rows&&) noexcept = default;
Rows::~Rows() = default;

Result<bool> Rows::Next() { return statement_->Next(); }
int Rows::column_count() const { return sqlite3_column_count(statement_->handle()); }
std::string_view Rows::column_name(int column) const {
  const char* const name = sqlite3_column_name(statement_->handle(), column);
  return name == nullptr ? "" : name;
}

Rows::Type Rows::type(int column) const {
  switch (sqlite3_column_type(statement_->handle(), column)) {
    case SQLITE_INTEGER:
      return Type::kInteger;
    case SQLITE_FLOAT:
      return Type::kReal;
    case SQLITE_TEXT:
      return Type::kText;
    case SQLITE_BLOB:
      return Type::kBlob;
    default:
      return Type::kNull;
  }
}
int64_t Rows::Integer(int column) const { return sqlite3_column_int64(statement_->handle(), column); }
double Rows::Real(int column) const { return sqlite3_column_double(statement_->handle(), column); }
std::string_view Rows::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_->handle(), column));
  if (text == nullptr) return "";
  return {text, static_cast<size_t>(sqlite3_column_bytes(statement_->handle(), column))};
}
std::span<const std::byte> Rows::Blob(int column) const {
  const auto* bytes = static_cast<const std::byte*>(sqlite3_column_blob(statement_->handle(), column));
  return {bytes, static_cast<size_t>(sqlite3_column_bytes(statement_->handle(), column))};
}

Result<std::unique_ptr<Connection>> Connection::Open(Store& store, MemoryBudget& budget,
                                                     const ConnectionOptions& options) {
  auto connection = std::make_unique<ConnectionImpl>(store, budget, options);
  QUARRY_RETURN_IF_ERROR(connection->Open());
  return std::unique_ptr<Connection>(std::move(connection));
}

}  // namespace quarry::sql
