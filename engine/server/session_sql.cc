// Session: SQL, on threads of its own: a statement may take long, and cannot be done in pieces.
#include <algorithm>
#include <utility>

#include "quarry/base/trace.h"
#include "quarry/format/wire_sql.h"
#include "quarry/server/sql_runner.h"
#include "session.h"

namespace quarry {
namespace {

constexpr size_t kConnectionsMax = 16;  // per session, each with what SQLite keeps for it
constexpr size_t kCursorsMax = 64;      // per session, each with a snapshot
constexpr double kSecondsMax = 3600;    // limit of a statement, whatever its client asks for
constexpr uint64_t kTextCopies = 2;     // a text and its parameters: the server's copy and the cursor's

uint64_t BulkBytes(const wire::Bulk& bulk) {
  if (const auto* const bytes = std::get_if<std::vector<std::byte>>(&bulk)) return bytes->size();
  return std::get<wire::Range>(bulk).bytes;
}

}  // namespace

// A connection, its cursors by their ids, and what they hold. Made by a thread that reads; once it is opened,
// touched by the session's tasks for SQL alone, of which one runs at a time.
struct Session::SqlHold {
  struct Cursor {
    MemoryBudget::Reservation text;
    std::unique_ptr<SqlCursor> cursor;
  };
  Admission::Grant budget;                       // dies last
  SqlMemory::Share memory;                       // goes behind what it is for
  const std::atomic<bool>* cancelled = nullptr;  // by the request that is worked for
  std::unique_ptr<SqlDisk::Part> disk;
  std::unique_ptr<SqlConnection> connection;
  std::map<uint64_t, Cursor> cursors;
  double seconds = 0;   // a statement may take
  bool opened = false;  // the strand's: the client has been told of it
};

// Work, on the threads for SQL, for a request that may be cancelled while its statement runs. Others may run
// there for as long as they like: who has waited for its own time is told so.
template <typename T>
void Session::WorkSql(uint64_t id, const std::shared_ptr<SqlHold>& hold, std::function<Result<T>()> work,
                      std::function<void(Result<T>)> then) {
  const auto begun = std::make_shared<std::atomic<bool>>(false);
  const auto patience = std::make_shared<decltype(deadline_)>(strand_);
  patience->expires_after(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(hold->seconds)));
  patience->async_wait([self = shared_from_this(), this, id, begun,
                        seconds = hold->seconds](const boost::system::error_code& error) {
    const auto found = pending_.find(id);
    if (error || *begun || found == pending_.end()) return;
    *found->second.cancelled = true;
    Reply(id,
          MakeStatus(Code::kCancelled,
                     "the statement has waited {} s, which is its timeout: the server's threads for SQL, of "
                     "which a client has one at a time, run other statements",
                     seconds));
  });
  const auto watched = [hold, begun, work = std::move(work)](const Task& task) {
    *begun = true;
    hold->cancelled = &task.cancelled;
    Result<T> result = work();
    hold->cancelled = nullptr;
    return result;
  };
  Work<T>(core_.sql_workers, id, watched, [patience, then = std::move(then)](Result<T> result) {
    patience->cancel();
    then(std::move(result));
  });
}

// Takes no time to speak of, and so none of the threads that may be busy for an hour.
void Session::On(uint64_t id, const wire::OpenSql& request) {
  if (core_.sql == nullptr) return Reply(id, Status(Code::kUnsupported, "this server runs no SQL"));
  if (sql_.size() >= kConnectionsMax) {
    return Reply(
        id, MakeStatus(Code::kOutOfBudget, "this session has {} SQL connections: close some", sql_.size()));
  }
  const auto hold = std::make_shared<SqlHold>();
  hold->budget = budget_;
  hold->disk = std::make_unique<SqlDisk::Part>(core_.sql_disk, peer_.uid);
  const uint64_t connection = ++sql_made_;
  sql_.emplace(connection, hold);
  hold->seconds = request.timeout_seconds > 0 ? std::min(request.timeout_seconds, kSecondsMax) : kSecondsMax;
  using Tables = std::vector<wire::SqlTable>;
  const auto connect = [this, hold, write = request.write](const Task&) -> Result<Tables> {
    QUARRY_TRY(hold->memory, core_.sql_memory.Take());
    const auto temp_files = [disk = hold->disk.get()](int64_t bytes) { return disk->Change(bytes); };
    const auto cancelled = [raw = hold.get()] { return raw->cancelled != nullptr && *raw->cancelled; };
    QUARRY_TRY(hold->connection, core_.sql->Connect(*hold->budget, {.write = write,
                                                                    .timeout_seconds = hold->seconds,
                                                                    .cancelled = cancelled,
                                                                    .temp_files = temp_files}));
    return hold->connection->tables();
  };
  Work<Tables>(core_.readers, id, connect, [this, id, connection](const Result<Tables>& tables) {
    const auto found = sql_.find(connection);
    if (found == sql_.end()) return;  // the session has ended
    if (!tables.ok()) {
      sql_.erase(found);
      return Reply(id, tables.status());
    }
    found->second->opened = true;
    Reply(id, wire::SqlOpened{connection, *tables});
  });
}

// kUsage for what the client has not opened.
Result<std::shared_ptr<Session::SqlHold>> Session::FindSql(uint64_t connection) const {
  const auto found = sql_.find(connection);
  if (found != sql_.end() && found->second->opened) return found->second;
  return MakeStatus(Code::kUsage, "this session has no SQL connection {}", connection);
}

void Session::On(uint64_t id, const wire::CloseSql& request) {
  auto hold = FindSql(request.connection);
  if (!hold.ok()) return Reply(id, hold.status());
  std::erase_if(sql_cursors_, [&](const auto& cursor) { return cursor.second == *hold; });
  sql_.erase(request.connection);
  EndSql({std::move(hold).value()});
  Reply(id, wire::Done{});
}

// Closing is work, too: behind what runs for the session.
void Session::EndSql(std::vector<std::shared_ptr<SqlHold>> holds) {
  if (holds.empty()) return;
  core_.sql_workers.Submit(id_, [holds = std::move(holds)](unsigned) mutable { holds.clear(); });
}

void Session::EndAllSql() {
  std::vector<std::shared_ptr<SqlHold>> holds;
  for (auto& [connection, hold] : sql_) holds.push_back(std::move(hold));
  sql_.clear();
  sql_cursors_.clear();
  core_.sql_workers.Forget(id_);
  EndSql(std::move(holds));
}

void Session::On(uint64_t id, const wire::Query& request) {
  const auto found = FindSql(request.connection);
  if (!found.ok()) return Reply(id, found.status());
  if (sql_cursors_.size() >= kCursorsMax) {
    return Reply(id, MakeStatus(Code::kOutOfBudget, "this session has {} cursors open: close some",
                                sql_cursors_.size()));
  }
  const std::shared_ptr<SqlHold>& hold = *found;
  const uint64_t cursor = ++sql_made_;
  sql_cursors_.emplace(cursor, hold);
  const auto query = [this, hold, cursor, request] { return DoQuery(*hold, cursor, request); };
  WorkSql<wire::Statement>(id, hold, query, [this, id, cursor](const Result<wire::Statement>& statement) {
    if (!statement.ok()) sql_cursors_.erase(cursor);
    if (!statement.ok()) return Reply(id, statement.status());
    Reply(id, *statement);
  });
}

Result<wire::Statement> Session::DoQuery(SqlHold& hold, uint64_t id, const wire::Query& request) {
  const ScopedSpan span("query");
  SqlHold::Cursor made;
  const uint64_t bytes = kTextCopies * (BulkBytes(request.text) + BulkBytes(request.values));
  if (bytes > kUnpaidBytes) {
    QUARRY_TRY(made.text, budget_->Reserve(bytes, "a text of SQL and its parameters"));
  }
  QUARRY_TRY(const std::vector<std::byte> copy, CopyOf(request.text));
  const std::string_view text(reinterpret_cast<const char*>(copy.data()), copy.size());
  if (request.script) {
    QUARRY_TRY(made.cursor, hold.connection->RunScript(std::string(text)));
  } else {
    QUARRY_TRY(const std::vector<std::byte> values, CopyOf(request.values));
    QUARRY_TRY(const auto parameters, wire::ReadSqlValues(values, request.parameters));
    QUARRY_TRY(made.cursor, hold.connection->Query(text, parameters));
  }
  wire::Statement statement = {id, made.cursor->columns()};
  hold.cursors.emplace(id, std::move(made));
  return statement;
}

void Session::On(uint64_t id, const wire::Fetch& request) {
  const auto found = sql_cursors_.find(request.cursor);
  if (found == sql_cursors_.end()) {
    return Reply(id, MakeStatus(Code::kUsage, "this session has no cursor {}", request.cursor));
  }
  const std::shared_ptr<SqlHold> hold = found->second;
  const auto fetch = [this, hold, request] { return DoFetch(*hold, request); };
  WorkSql<wire::Response>(id, hold, fetch,
                          [this, id](const Result<wire::Response>& answer) { Reply(id, answer); });
}

Result<wire::Response> Session::DoFetch(SqlHold& hold, const wire::Fetch& request) {
  const ScopedSpan span("fetch");
  const auto found = hold.cursors.find(request.cursor);
  if (found == hold.cursors.end())
    return MakeStatus(Code::kUsage, "cursor {} was not opened", request.cursor);
  SqlCursor& cursor = *found->second.cursor;
  if (request.next) {
    QUARRY_TRY(const bool more, cursor.NextStatement());
    if (!more) return wire::Response(wire::Done{});
    return wire::Response(wire::Statement{request.cursor, cursor.columns()});
  }
  const size_t bytes_max = std::min<uint64_t>(wire::kSqlPageBytesMax, chunk_bytes_max_ / 2);
  QUARRY_TRY(const auto reservation, budget_->Reserve(bytes_max, "a page of rows"));
  QUARRY_TRY(wire::SqlRows rows, cursor.Rows(bytes_max));
  return wire::Response(std::move(rows));
}

void Session::On(uint64_t id, const wire::CloseQuery& request) {
  const auto found = sql_cursors_.find(request.cursor);
  if (found == sql_cursors_.end()) {
    return Reply(id, MakeStatus(Code::kUsage, "this session has no cursor {}", request.cursor));
  }
  core_.sql_workers.Submit(id_, [hold = std::move(found->second), cursor = request.cursor](unsigned) {
    hold->cursors.erase(cursor);
  });
  sql_cursors_.erase(found);
  Reply(id, wire::Done{});
}

}  // namespace quarry
