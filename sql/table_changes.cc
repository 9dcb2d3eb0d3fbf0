#include "table_changes.h"

#include <sqlite3.h>

#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>

#include "quarry/format/element_type.h"

namespace quarry::sql {
namespace {

using Arguments = std::span<sqlite3_value*>;

Result<std::string> TextOf(sqlite3_value* value, std::string_view what) {
  const auto* const text = reinterpret_cast<const char*>(sqlite3_value_text(value));
  if (text != nullptr && sqlite3_value_type(value) == SQLITE_TEXT) {
    return std::string(text, static_cast<size_t>(sqlite3_value_bytes(value)));
  }
  return MakeStatus(Code::kInvalidArgument, "{} is a text", what);
}

Result<wire::MaintenanceTask> Creation(Arguments arguments) {
  wire::CreateTable create;
  QUARRY_TRY(create.table, TextOf(arguments[0], "the table's name"));
  const int64_t dim = sqlite3_value_int64(arguments[1]);
  if (sqlite3_value_type(arguments[1]) != SQLITE_INTEGER || dim < 1) {
    return Status(Code::kInvalidArgument, "the elements of a row are a whole number from 1 on");
  }
  create.dim = static_cast<uint64_t>(dim);
  if (arguments.size() == 3) {
    QUARRY_TRY(const std::string type, TextOf(arguments[2], "the element type"));
    const Result<ElementType> parsed = ParseElementType(type);
    if (!parsed.ok()) return Status(Code::kInvalidArgument, std::string(parsed.status().message()));
    create.element_type = *parsed;
  }
  return wire::MaintenanceTask(std::move(create));
}

Result<wire::MaintenanceTask> Removal(Arguments arguments) {
  QUARRY_TRY(std::string table, TextOf(arguments[0], "the table's name"));
  return wire::MaintenanceTask(wire::DropTable{std::move(table)});
}

struct TableFunction {
  const char* name;
  int arguments;
  Result<wire::MaintenanceTask> (*task)(Arguments arguments);
};

constexpr TableFunction kTableFunctions[] = {
    {"create_table", 2, Creation},
    {"create_table", 3, Creation},
    {"drop_table", 1, Removal},
};

// What a function is and what it works on: SQLite keeps it.
struct Registered {
  const TableFunction* function = nullptr;
  TableChanges* changes = nullptr;
};

Status Run(const Registered& registered, Arguments arguments) {
  const TableChanges& changes = *registered.changes;
  Session& session = *changes.session;
  if (!session.writable()) {
    return Status(Code::kUsage, "this connection only reads: open it to write (`quarry sql --write`)");
  }
  if (!*changes.maintain) {
    return Status(Code::kUnsupported, "whoever opened this connection makes and removes no tables by it");
  }
  if (sqlite3_get_autocommit(changes.database) == 0 || !session.pending().empty()) {
    return Status(Code::kUsage,
                  "it is done at once and no part of a transaction: COMMIT or ROLLBACK first, and call it "
                  "outside of one");
  }
  QUARRY_TRY(const wire::MaintenanceTask task, registered.function->task(arguments));
  session.BeginUpkeep();
  return (*changes.maintain)(task,
                             [&](std::string_view, uint64_t, uint64_t) -> Status { return session.Look(); });
}

// SQLite is C: nothing may be thrown through it.
void Call(sqlite3_context* context, int count, sqlite3_value** values) {
  const auto& registered = *static_cast<const Registered*>(sqlite3_user_data(context));
  const auto fail = [&](const Status& status) {
    const Status named =
        MakeStatus(status.code(), "{}: {}", registered.function->name, std::string(status.message()));
    registered.changes->session->SetFault(named);
    const std::string text = named.ToString();
    sqlite3_result_error(context, text.c_str(), -1);
  };
  try {
    const Status done = Run(registered, Arguments(values, static_cast<size_t>(count)));
    if (!done.ok()) return fail(done);
    sqlite3_result_value(context, values[0]);  // the table's name
  } catch (const std::bad_alloc&) {
    sqlite3_result_error_nomem(context);
  } catch (const std::exception& error) {
    fail(Status(Code::kInternal, error.what()));
  }
}

}  // namespace

Status RegisterTableChanges(TableChanges& changes) {
  for (const TableFunction& function : kTableFunctions) {
    auto registered = std::make_unique<Registered>(Registered{&function, &changes});
    const auto release = [](void* aux) { delete static_cast<Registered*>(aux); };
    // Also when this fails, SQLite releases what it was given. Views and triggers may not call them.
    const int rc = sqlite3_create_function_v2(changes.database, function.name, function.arguments,
                                              SQLITE_UTF8 | SQLITE_DIRECTONLY, registered.release(), Call,
                                              nullptr, nullptr, release);
    if (rc != SQLITE_OK) {
      return MakeStatus(Code::kInternal, "SQLite takes no function {}: {}", function.name,
                        sqlite3_errstr(rc));
    }
  }
  return Status::Ok();
}

}  // namespace quarry::sql
