#include "session_sql.h"

#include <algorithm>
#include <utility>

#include "quarry/base/trace.h"
#include "quarry/format/wire_sql.h"
#include "quarry/server/sql_runner.h"

namespace quarry {
namespace {

constexpr size_t kSqlConnectionsMax = 16;  // per session, each with what SQLite keeps for it
constexpr size_t kCursorsMax = 64;         // per session, each with a snapshot
constexpr double kSecondsMax = 3600;       // limit of a statement, whatever its client asks for
constexpr uint64_t kTextCopies = 2;        // a text and its parameters: the server's copy and the cursor's

uint64_t BulkBytes(const wire::Bulk& bulk) {
  if (const auto* const bytes = std::get_if<std::vector<std::byte>>(&bulk)) return bytes->size();
  return std::get<wire::Range>(bulk).bytes;
}

}  // namespace

// A connection, its cursors by their ids, and what they hold. Made by a thread that reads; once it is opened,
// touched by the session's tasks for SQL alone, of which one runs at a time, and while there is none by what closes it (Close).
struct Session::Sql::Hold {
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
void Session::Sql::WorkSql(uint64_t id, const std::shared_ptr<Hold>& hold, std::function<Result<T>()> work,
                           std::function<void(Result<T>)> then) {
  if (Find(id) == nullptr) return;
  const auto begun = std::make_shared<std::atomic<bool>>(false);
  const auto patience = std::make_shared<decltype(session_.deadline_)>(session_.strand_);
  patience->expires_after(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(hold->seconds)));
  patience->async_wait([self = session_.shared_from_this(), this, id, begun,
                        seconds = hold->seconds](const boost::system::error_code& error) {
    Pending* const pending = Find(id);
    if (error || *begun || pending == nullptr) return;
    *pending->cancelled = true;
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
  ++at_work_;
  Work<T>(core_.sql_workers, id, watched, [this, patience, then = std::move(then)](Result<T> result) {
    --at_work_;
    patience->cancel();
    then(std::move(result));
  });
}

// Takes no time to speak of, and so none of the threads that may be busy for an hour.
void Session::Sql::On(uint64_t id, const wire::OpenSql& request) {
  if (core_.sql == nullptr) return Reply(id, Status(Code::kUnsupported, "this server runs no SQL"));
  if (connections_.size() >= kSqlConnectionsMax) {
    return Reply(id, MakeStatus(Code::kOutOfBudget, "this session has {} SQL connections: close some",
                                connections_.size()));
  }
  const auto hold = std::make_shared<Hold>();
  hold->budget = session_.budget_;
  hold->disk = std::make_unique<SqlDisk::Part>(core_.sql_disk, user());
  const uint64_t connection = ++made_;
  connections_.emplace(connection, hold);
  hold->seconds = request.timeout_seconds > 0 ? std::min(request.timeout_seconds, kSecondsMax) : kSecondsMax;
  using Tables = std::vector<wire::SqlTable>;
  const auto connect = [this, hold, write = request.write](const Task&) -> Result<Tables> {
    QUARRY_TRY(hold->memory, core_.sql_memory.Take());
    const auto temp_files = [disk = hold->disk.get()](int64_t bytes) { return disk->Change(bytes); };
    const auto cancelled = [raw = hold.get()] { return raw->cancelled != nullptr && *raw->cancelled; };
    const auto maintain = [this, raw = hold.get()](const wire::MaintenanceTask& task,
                                                   const ProgressFunction& progress) -> Status {
      QUARRY_RETURN_IF_ERROR(wire::CheckRequest(wire::Maintain{task}));
      core_.hub->WaitClosed(*raw->budget);  // behind what the session has closed, as other maintenance is
      QUARRY_TRY(const MaintenanceTurn::Hold turn, core_.maintenance_turn.Take(NameOf(task)));
      return core_.maintenance.Run(task, *raw->budget, progress).status();
    };
    QUARRY_TRY(hold->connection, core_.sql->Connect(*hold->budget, {.write = write,
                                                                    .timeout_seconds = hold->seconds,
                                                                    .cancelled = cancelled,
                                                                    .temp_files = temp_files,
                                                                    .maintain = maintain}));
    return hold->connection->tables();
  };
  Work<Tables>(core_.readers, id, connect, [this, id, connection](const Result<Tables>& tables) {
    const auto found = connections_.find(connection);
    if (found == connections_.end()) return;  // the session has ended
    if (!tables.ok()) {
      connections_.erase(found);
      return Reply(id, tables.status());
    }
    found->second->opened = true;
    Reply(id, wire::SqlOpened{connection, *tables});
  });
}

// kUsage for what the client has not opened.
Result<std::shared_ptr<Session::Sql::Hold>> Session::Sql::FindSql(uint64_t connection) const {
  const auto found = connections_.find(connection);
  if (found != connections_.end() && found->second->opened) return found->second;
  return MakeStatus(Code::kUsage, "this session has no SQL connection {}", connection);
}

void Session::Sql::On(uint64_t id, const wire::CloseSql& request) {
  auto hold = FindSql(request.connection);
  if (!hold.ok()) return Reply(id, hold.status());
  std::erase_if(cursors_, [&](const auto& cursor) { return cursor.second == *hold; });
  connections_.erase(request.connection);
  Close([hold = std::move(hold).value()]() mutable { hold.reset(); });
  Reply(id, wire::Done{});
}

// Closing is work, too. A client does not wait for it, but its next request may need the memory: while no statement of the
// session's is under way, that request is seen once the closing is done. Behind a statement, which may take an hour, nothing
// waits for it.
void Session::Sql::Close(std::function<void()> close) {
  const bool waits = at_work_ == 0;
  if (waits) session_.connection_.Pause();
  if (!waits) ++at_work_;
  (waits ? core_.readers : core_.sql_workers)
      .Submit(session_id(),
              [self = session_.shared_from_this(), this, waits, close = std::move(close)](unsigned) mutable {
                close();
                close = nullptr;
                self->Post([this, waits] {
                  if (waits) return session_.connection_.Resume();
                  --at_work_;
                });
              });
}

void Session::Sql::End() {
  std::vector<std::shared_ptr<Hold>> holds;
  for (auto& [connection, hold] : connections_) holds.push_back(std::move(hold));
  connections_.clear();
  cursors_.clear();
  core_.sql_workers.Forget(session_id());
  if (holds.empty()) return;
  core_.sql_workers.Submit(session_id(), [holds = std::move(holds)](unsigned) mutable { holds.clear(); });
}

void Session::Sql::On(uint64_t id, const wire::Query& request) {
  const auto found = FindSql(request.connection);
  if (!found.ok()) return Reply(id, found.status());
  if (cursors_.size() >= kCursorsMax) {
    return Reply(
        id, MakeStatus(Code::kOutOfBudget, "this session has {} cursors open: close some", cursors_.size()));
  }
  const std::shared_ptr<Hold>& hold = *found;
  const uint64_t cursor = ++made_;
  cursors_.emplace(cursor, hold);
  const auto query = [this, hold, cursor, request] { return DoQuery(*hold, cursor, request); };
  WorkSql<wire::Statement>(id, hold, query, [this, id, cursor](const Result<wire::Statement>& statement) {
    if (!statement.ok()) cursors_.erase(cursor);
    if (!statement.ok()) return Reply(id, statement.status());
    Reply(id, *statement);
  });
}

Result<wire::Statement> Session::Sql::DoQuery(Hold& hold, uint64_t id, const wire::Query& request) {
  const ScopedSpan span("query");
  Hold::Cursor made;
  const uint64_t bytes = kTextCopies * (BulkBytes(request.text) + BulkBytes(request.values));
  if (bytes > kUnpaidBytes) {
    QUARRY_TRY(made.text, budget().Reserve(bytes, "a text of SQL and its parameters"));
  }
  QUARRY_TRY(const std::vector<std::byte> copy, bulk().CopyOf(request.text));
  const std::string_view text(reinterpret_cast<const char*>(copy.data()), copy.size());
  if (request.script) {
    QUARRY_TRY(made.cursor, hold.connection->RunScript(std::string(text)));
  } else {
    QUARRY_TRY(const std::vector<std::byte> values, bulk().CopyOf(request.values));
    QUARRY_TRY(const auto parameters, wire::ReadSqlValues(values, request.parameters));
    QUARRY_TRY(made.cursor, hold.connection->Query(text, parameters));
  }
  wire::Statement statement = {id, made.cursor->columns()};
  hold.cursors.emplace(id, std::move(made));
  return statement;
}

void Session::Sql::On(uint64_t id, const wire::Fetch& request) {
  const auto found = cursors_.find(request.cursor);
  if (found == cursors_.end()) {
    return Reply(id, MakeStatus(Code::kUsage, "this session has no cursor {}", request.cursor));
  }
  const std::shared_ptr<Hold> hold = found->second;
  const auto fetch = [this, hold, request] { return DoFetch(*hold, request); };
  WorkSql<wire::Response>(id, hold, fetch,
                          [this, id](const Result<wire::Response>& answer) { Reply(id, answer); });
}

Result<wire::Response> Session::Sql::DoFetch(Hold& hold, const wire::Fetch& request) {
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
  const size_t bytes_max = std::min<uint64_t>(wire::kSqlPageBytesMax, session_.chunk_bytes_max_ / 2);
  QUARRY_TRY(const auto reservation, budget().Reserve(bytes_max, "a page of rows"));
  QUARRY_TRY(wire::SqlRows rows, cursor.Rows(bytes_max));
  return wire::Response(std::move(rows));
}

void Session::Sql::On(uint64_t id, const wire::CloseQuery& request) {
  const auto found = cursors_.find(request.cursor);
  if (found == cursors_.end()) {
    return Reply(id, MakeStatus(Code::kUsage, "this session has no cursor {}", request.cursor));
  }
  Close([hold = std::move(found->second), cursor = request.cursor] { hold->cursors.erase(cursor); });
  cursors_.erase(found);
  Reply(id, wire::Done{});
}

}  // namespace quarry
