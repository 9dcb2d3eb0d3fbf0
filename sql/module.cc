#include "module.h"

#include <exception>
#include <new>
#include <string>

#include "plan.h"
#include "sqlite_api.h"

namespace quarry::sql {
namespace {

struct Connected : sqlite3_vtab {
  sqlite3* database = nullptr;
  Session* session = nullptr;
  Table* table = nullptr;
  bool writable = false;
  // Only tables that CREATE VIRTUAL TABLE made have these:
  TableMaker* maker = nullptr;
  std::string name;
  std::shared_ptr<void> owner;
};

struct OpenCursor : sqlite3_vtab_cursor {
  // The query that the cursor is of; a statement keeps the texts of its plans where they are.
  const char* plan = nullptr;
  int columns = 0;
  Query query;
  std::unique_ptr<Cursor> cursor;
  bool at_end = true;
};

struct Registration {
  Session* session;
  Table* table;
  std::shared_ptr<void> owner;
};

Connected& ConnectedOf(sqlite3_vtab* base) { return *static_cast<Connected*>(base); }
OpenCursor& CursorOf(sqlite3_vtab_cursor* base) { return *static_cast<OpenCursor*>(base); }

int Fail(sqlite3_vtab* base, const Status& status) {
  sqlite3_free(base->zErrMsg);
  const std::string text = status.ToString();
  base->zErrMsg = sqlite3_mprintf("%s", text.c_str());
  ConnectedOf(base).session->SetFault(status);
  return SQLITE_ERROR;
}

// Runs what a callback does. SQLite is C: nothing may be thrown through it.
template <typename Function>
int Guarded(sqlite3_vtab* base, Function&& function) {
  try {
    const Status status = function();
    return status.ok() ? SQLITE_OK : Fail(base, status);
  } catch (const std::bad_alloc&) {
    return SQLITE_NOMEM;
  } catch (const std::exception& error) {
    return Fail(base, Status(Code::kInternal, error.what()));
  }
}

std::string Declaration(const Table& table) {
  std::string text;
  for (const Column& column : table.columns()) {
    text += fmt::format("{}\"{}\" {}{}", text.empty() ? "CREATE TABLE x(" : ", ", column.name,
                        TypeName(column.type), column.is_hidden() ? " HIDDEN" : "");
  }
  return text + ")";
}

int Declare(sqlite3* database, const Table& table) {
  int rc = sqlite3_declare_vtab(database, Declaration(table).c_str());
  // Views and triggers of a schema may not reach the database.
  if (rc == SQLITE_OK) rc = sqlite3_vtab_config(database, SQLITE_VTAB_DIRECTONLY);
  // INSERT OR REPLACE is for the table to decide.
  if (rc == SQLITE_OK) rc = sqlite3_vtab_config(database, SQLITE_VTAB_CONSTRAINT_SUPPORT, 1);
  return rc;
}

int Connect(sqlite3* database, void* aux, int, const char* const*, sqlite3_vtab** out, char**) try {
  const auto* registration = static_cast<const Registration*>(aux);
  const int rc = Declare(database, *registration->table);
  if (rc != SQLITE_OK) return rc;
  auto connected = std::make_unique<Connected>();
  connected->database = database;
  connected->session = registration->session;
  connected->table = registration->table;
  connected->writable = registration->session->writable() && registration->table->IsWritable();
  *out = connected.release();
  return SQLITE_OK;
} catch (const std::bad_alloc&) {
  return SQLITE_NOMEM;
}

// words: the module, the schema, the table, and what stands in brackets behind the module.
int Make(sqlite3* database, void* aux, int count, const char* const* words, sqlite3_vtab** out,
         char** error) try {
  auto connected = std::make_unique<Connected>();
  connected->database = database;
  connected->maker = static_cast<TableMaker*>(aux);
  connected->name = words[2];
  Result<TableMaker::Made> made = connected->maker->Make(
      database, connected->name, std::span(words, static_cast<size_t>(count)).subspan(3));
  if (!made.ok()) {
    *error = sqlite3_mprintf("%s", made.status().ToString().c_str());
    return SQLITE_ERROR;
  }
  connected->session = made->session;
  connected->table = made->table;
  connected->owner = std::move(made->owner);
  const int rc = Declare(database, *connected->table);
  if (rc == SQLITE_OK) *out = connected.release();
  return rc;
} catch (const std::bad_alloc&) {
  return SQLITE_NOMEM;
} catch (const std::exception& fault) {
  *error = sqlite3_mprintf("%s", fault.what());
  return SQLITE_ERROR;
}

int Disconnect(sqlite3_vtab* base) {
  delete &ConnectedOf(base);
  return SQLITE_OK;
}

int Drop(sqlite3_vtab* base) {
  Connected& connected = ConnectedOf(base);
  const int rc = Guarded(base, [&] {
    connected.maker->Drop(connected.database, connected.name);
    return Status::Ok();
  });
  return rc == SQLITE_OK ? Disconnect(base) : rc;
}

int BestIndex(sqlite3_vtab* base, sqlite3_index_info* info) {
  int rc = SQLITE_OK;
  const int guarded = Guarded(base, [&] {
    rc = PlanQuery(*ConnectedOf(base).table, *info);
    return Status::Ok();
  });
  return guarded == SQLITE_OK ? rc : guarded;
}

int Open(sqlite3_vtab* base, sqlite3_vtab_cursor** out) {
  auto cursor = std::unique_ptr<OpenCursor>(new (std::nothrow) OpenCursor());
  *out = cursor.release();
  if (*out == nullptr) return SQLITE_NOMEM;
  ConnectedOf(base).session->BeginCursor();
  return SQLITE_OK;
}

int Close(sqlite3_vtab_cursor* base) {
  ConnectedOf(base->pVtab).session->EndCursor();
  delete &CursorOf(base);
  return SQLITE_OK;
}

Status Step(OpenCursor& open) {
  QUARRY_TRY(const bool more, open.cursor->Next());
  open.at_end = !more;
  return Status::Ok();
}

int Filter(sqlite3_vtab_cursor* base, int columns, const char* text, int count, sqlite3_value** arguments) {
  return Guarded(base->pVtab, [&]() -> Status {
    Table& table = *ConnectedOf(base->pVtab).table;
    OpenCursor& open = CursorOf(base);
    const std::span<sqlite3_value* const> values(arguments, static_cast<size_t>(count));
    if (open.cursor != nullptr && open.plan == text && open.columns == columns &&
        RereadPlan(table, values, open.query)) {
      QUARRY_TRY(const bool restarted, open.cursor->Restart(open.query));
      if (restarted) return Step(open);
    }
    open.cursor.reset();  // gives back what it holds before the next one takes it
    QUARRY_TRY(open.query, ReadPlan(table, columns, text, values));
    open.plan = text;
    open.columns = columns;
    QUARRY_TRY(open.cursor, table.Open(open.query));
    return Step(open);
  });
}

int Next(sqlite3_vtab_cursor* base) {
  return Guarded(base->pVtab, [&] { return Step(CursorOf(base)); });
}

int Eof(sqlite3_vtab_cursor* base) { return static_cast<int>(CursorOf(base).at_end); }

int GetColumn(sqlite3_vtab_cursor* base, sqlite3_context* context, int column) {
  // Where an UPDATE leaves the column as it is, saying nothing here tells Update so.
  if (ConnectedOf(base->pVtab).writable && sqlite3_vtab_nochange(context) != 0) return SQLITE_OK;
  return Guarded(base->pVtab, [&] {
    Output out(context);
    return CursorOf(base).cursor->Get(column, out);
  });
}

int GetRowId(sqlite3_vtab_cursor* base, sqlite3_int64* out) {
  return Guarded(base->pVtab, [&]() -> Status {
    QUARRY_TRY(*out, CursorOf(base).cursor->RowId());
    return Status::Ok();
  });
}

Status UpdateRow(Table& table, sqlite3_value** values, std::span<sqlite3_value*> columns) {
  const sqlite3_int64 row_id = sqlite3_value_int64(values[0]);
  if (sqlite3_value_int64(values[1]) != row_id) {
    return MakeStatus(Code::kInvalidArgument, "the rowid of a row of {} cannot be changed", table.name());
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    if (sqlite3_value_nochange(columns[i]) != 0) continue;
    const Value value = ValueOf(columns[i], table.columns()[i].type);
    QUARRY_RETURN_IF_ERROR(table.Update(row_id, static_cast<int>(i), value));
  }
  return Status::Ok();
}

// values: the old rowid, the new one, the columns. A new row has no old rowid.
int Update(sqlite3_vtab* base, int count, sqlite3_value** values, sqlite3_int64* row_id) {
  bool conflict = false;
  const int rc = Guarded(base, [&]() -> Status {
    Table& table = *ConnectedOf(base).table;
    if (count == 1) return table.Delete(sqlite3_value_int64(values[0]));
    const std::span<sqlite3_value*> columns(values + 2, static_cast<size_t>(count) - 2);
    if (sqlite3_value_type(values[0]) != SQLITE_NULL) return UpdateRow(table, values, columns);
    conflict = !table.Grows() && sqlite3_vtab_on_conflict(ConnectedOf(base).database) != SQLITE_REPLACE;
    if (conflict) {
      return MakeStatus(Code::kInvalidArgument, "{} has a row for each node: INSERT OR REPLACE",
                        table.name());
    }
    std::vector<Value> row;
    for (size_t i = 0; i < columns.size(); ++i) row.push_back(ValueOf(columns[i], table.columns()[i].type));
    QUARRY_TRY(*row_id, table.Insert(row));
    return Status::Ok();
  });
  return conflict ? SQLITE_CONSTRAINT : rc;
}

PendingWrites& PendingOf(sqlite3_vtab* base) { return ConnectedOf(base).session->pending(); }

int Begin(sqlite3_vtab* base) {
  ConnectedOf(base).session->BeginWrites();
  return SQLITE_OK;
}

// The commit proper: it may still fail here. All tables share one batch, so the first of them has written it.
int Sync(sqlite3_vtab* base) {
  return Guarded(base, [&] { return ConnectedOf(base).session->Commit(); });
}
int Commit(sqlite3_vtab*) { return SQLITE_OK; }
int Rollback(sqlite3_vtab* base) {
  PendingOf(base).Rollback();
  return SQLITE_OK;
}
int Savepoint(sqlite3_vtab* base, int number) {
  return Guarded(base, [&] { return PendingOf(base).Mark(number), Status::Ok(); });
}
int Release(sqlite3_vtab* base, int number) {
  PendingOf(base).Release(number);
  return SQLITE_OK;
}
int RollbackTo(sqlite3_vtab* base, int number) {
  PendingOf(base).RollbackTo(number);
  return SQLITE_OK;
}

// Without xCreate: the tables are there under their names, and no statement makes more of them.
constexpr sqlite3_module kModule = {
    .iVersion = 0,
    .xCreate = nullptr,
    .xConnect = Connect,
    .xBestIndex = BestIndex,
    .xDisconnect = Disconnect,
    .xDestroy = nullptr,
    .xOpen = Open,
    .xClose = Close,
    .xFilter = Filter,
    .xNext = Next,
    .xEof = Eof,
    .xColumn = GetColumn,
    .xRowid = GetRowId,
    .xUpdate = nullptr,
};

constexpr sqlite3_module WritableModule() {
  sqlite3_module module = kModule;
  module.iVersion = 2;  // has savepoints
  module.xUpdate = Update;
  module.xBegin = Begin;
  module.xSync = Sync;
  module.xCommit = Commit;
  module.xRollback = Rollback;
  module.xSavepoint = Savepoint;
  module.xRelease = Release;
  module.xRollbackTo = RollbackTo;
  return module;
}
constexpr sqlite3_module kWritableModule = WritableModule();

constexpr sqlite3_module MakingModule() {
  sqlite3_module module = kModule;
  module.xCreate = Make;
  module.xConnect = Make;
  module.xDestroy = Drop;
  return module;
}
constexpr sqlite3_module kMakingModule = MakingModule();

Status TakenStatus(int rc, std::string_view what, std::string_view name) {
  if (rc == SQLITE_OK) return Status::Ok();
  return MakeStatus(Code::kInternal, "SQLite takes no {} \"{}\": {}", what, name, sqlite3_errstr(rc));
}

}  // namespace

void Output::Null() { sqlite3_result_null(context_); }
void Output::Integer(int64_t value) { sqlite3_result_int64(context_, value); }
void Output::Real(double value) { sqlite3_result_double(context_, value); }
void Output::Text(std::string_view value) {
  sqlite3_result_text64(context_, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}
void Output::Constant(std::string_view value) {
  sqlite3_result_text64(context_, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8);
}
void Output::Blob(std::span<const std::byte> value) {
  // A null pointer would be NULL.
  if (value.empty()) return static_cast<void>(sqlite3_result_zeroblob64(context_, 0));
  sqlite3_result_blob64(context_, value.data(), value.size(), SQLITE_TRANSIENT);
}

void Output::Put(const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return Integer(*integer);
  if (const auto* real = std::get_if<double>(&value)) return Real(*real);
  if (const auto* text = std::get_if<std::string>(&value)) return Text(*text);
  if (const auto* blob = std::get_if<std::vector<std::byte>>(&value)) return Blob(*blob);
  Null();
}

Status RegisterTable(sqlite3* database, const std::string& name, Session& session, Table& table,
                     std::shared_ptr<void> owner) {
  auto registration = std::make_unique<Registration>(Registration{&session, &table, std::move(owner)});
  const auto release = [](void* aux) { delete static_cast<Registration*>(aux); };
  const bool writable = session.writable() && table.IsWritable();
  // Also when this fails, SQLite releases what it was given.
  return TakenStatus(sqlite3_create_module_v2(database, name.c_str(), writable ? &kWritableModule : &kModule,
                                              registration.release(), release),
                     "table", name);
}

void UnregisterTable(sqlite3* database, const std::string& name) {
  sqlite3_create_module_v2(database, name.c_str(), nullptr, nullptr, nullptr);
}

Status RegisterMaker(sqlite3* database, const char* module, std::unique_ptr<TableMaker> maker) {
  const auto release = [](void* aux) { delete static_cast<TableMaker*>(aux); };
  return TakenStatus(sqlite3_create_module_v2(database, module, &kMakingModule, maker.release(), release),
                     "module", module);
}

}  // namespace quarry::sql
