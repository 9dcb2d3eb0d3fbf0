// libquarry_sqlite.so: the tables of a database for programs that have an SQLite of their own, as its shell
// and Python do.
//
//   SELECT load_extension('./libquarry_sqlite');              the functions over vectors
//   CREATE VIRTUAL TABLE g USING quarry('graph.db');          nodes, edges, ...; also as g_nodes, g_edges,
//   ... CREATE VIRTUAL TABLE h USING quarry('other.db', write);   h_nodes, ...: of further ones, under these
//   names
//
// g itself lists them. The tables are eponymous modules, so no name has to be told twice; they are there from
// when g is made, or first read in a later session, until DROP TABLE g. The process holds the database as
// long.
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "list_table.h"
#include "module.h"
#include "quarry/base/process.h"
#include "quarry/io/backend.h"
#include "sqlite_api.h"
#include "tables.h"

SQLITE_EXTENSION_INIT1

namespace quarry::sql {
namespace {

constexpr int kOldestVersion = 3'038'000;  // lists of IN are handed to tables from here on

struct Arguments {
  std::string path;
  bool write = false;
};

// An SQL literal without its quotes; nothing when it has none.
std::optional<std::string> Unquoted(std::string_view text) {
  if (text.size() < 2 || text.front() != text.back() || (text.front() != '\'' && text.front() != '"')) {
    return std::nullopt;
  }
  const char quote = text.front();
  std::string plain;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    plain += text[i];
    if (text[i] == quote) ++i;  // it stands for one when there are two
  }
  return plain;
}

Result<Arguments> ReadArguments(std::span<const char* const> words) {
  std::optional<std::string> path;
  if (!words.empty()) path = Unquoted(words[0]);
  const bool write = words.size() == 2 && std::string_view(words[1]) == "write";
  if (path && (words.size() == 1 || write)) return Arguments{std::move(*path), write};
  return Status(Code::kUsage, "quarry('DATABASE') reads a database, quarry('DATABASE', write) writes too");
}

// The members die last to first.
struct OpenDatabase {
  static Result<std::shared_ptr<OpenDatabase>> Open(const Arguments& arguments);
  OpenDatabase() : budget(MemoryLimitBytes() / 10 * 8) {}

  std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  std::unique_ptr<Store> store;
  MemoryBudget budget;
  std::unique_ptr<Session> session;
  std::vector<std::unique_ptr<Table>> tables;
  std::unique_ptr<Table> list;  // lists the others
};

Result<RowList> ListTables(const OpenDatabase& database) {
  RowList rows;
  for (const std::unique_ptr<Table>& table : database.tables) {
    std::string columns;
    for (const Column& column : table->columns()) {
      columns += (columns.empty() ? "" : ", ") + std::string(column.name);
    }
    rows.Add({std::string(table->name()), columns});
  }
  return rows;
}

Result<std::shared_ptr<OpenDatabase>> OpenDatabase::Open(const Arguments& arguments) {
  auto database = std::make_shared<OpenDatabase>();
  QUARRY_TRY(database->store, Store::Open(*database->backend, arguments.path));
  // Nothing tells that the program wants a statement to end; SQLite asks it between two rows.
  database->session = std::make_unique<Session>(*database->store, database->budget, arguments.write,
                                                [] { return Status::Ok(); });
  database->tables = MakeTables(*database->session);
  const std::vector<Column> columns = {{"name", ColumnType::kText}, {"columns", ColumnType::kText}};
  database->list = std::make_unique<ListTable>(
      *database->session, "quarry", columns,
      [self = database.get()](Session&, const Query&) { return ListTables(*self); });
  return database;
}

// The databases of one connection, by the tables that name them. What is registered holds them; not this.
class Databases final : public TableMaker {
 public:
  Result<Made> Make(sqlite3* connection, const std::string& name,
                    std::span<const char* const> words) override {
    QUARRY_TRY(const Arguments arguments, ReadArguments(words));
    std::error_code error;
    std::string path = std::filesystem::weakly_canonical(arguments.path, error).string();
    if (error) path = arguments.path;
    QUARRY_TRY(const std::shared_ptr<OpenDatabase> database, FindOrOpen(arguments, path));
    const auto found = named_.find(name);
    if (found == named_.end() || found->second.database.lock() != database) {
      Drop(connection, name);
      const bool first = std::ranges::none_of(
          named_, [](const auto& other) { return other.second.plain && !other.second.database.expired(); });
      named_[name] = {database, path, arguments.write, first};
      QUARRY_RETURN_IF_ERROR(Register(connection, name + "_", database));
      if (first) QUARRY_RETURN_IF_ERROR(Register(connection, "", database));
    }
    return Made{database->session.get(), database->list.get(), database};
  }

  void Drop(sqlite3* connection, const std::string& name) override {
    const auto found = named_.find(name);
    if (found == named_.end()) return;
    if (const std::shared_ptr<OpenDatabase> database = found->second.database.lock()) {
      for (const std::unique_ptr<Table>& table : database->tables) {
        UnregisterTable(connection, name + "_" + std::string(table->name()));
        if (found->second.plain) UnregisterTable(connection, std::string(table->name()));
      }
    }
    named_.erase(found);
  }

 private:
  struct Named {
    std::weak_ptr<OpenDatabase> database;
    std::string path;
    bool write = false;
    bool plain = false;  // its tables are there without a prefix, too
  };

  // A database is opened once, whatever the number of its names: nobody else could open it meanwhile.
  Result<std::shared_ptr<OpenDatabase>> FindOrOpen(const Arguments& arguments, const std::string& path) {
    for (const auto& [name, named] : named_) {
      std::shared_ptr<OpenDatabase> database = named.database.lock();
      if (database == nullptr || named.path != path) continue;
      if (named.write == arguments.write) return database;
      return MakeStatus(Code::kInvalidArgument, "{}: table \"{}\" has it open {} writing", path, name,
                        named.write ? "for" : "without");
    }
    return OpenDatabase::Open(arguments);
  }

  static Status Register(sqlite3* connection, const std::string& prefix,
                         const std::shared_ptr<OpenDatabase>& database) {
    for (const std::unique_ptr<Table>& table : database->tables) {
      QUARRY_RETURN_IF_ERROR(RegisterTable(connection, prefix + std::string(table->name()),
                                           *database->session, *table, database));
    }
    return Status::Ok();
  }

  std::map<std::string, Named> named_;
};

Status Initialize(sqlite3* connection) {
  if (sqlite3_libversion_number() < kOldestVersion) {
    return MakeStatus(Code::kUnsupported, "quarry needs SQLite 3.38 or later; this is {}",
                      sqlite3_libversion());
  }
  QUARRY_RETURN_IF_ERROR(RegisterVectorFunctions(connection));
  return RegisterMaker(connection, "quarry", std::make_unique<Databases>());
}

}  // namespace
}  // namespace quarry::sql

// What SQLite looks for in a library that it loads.
extern "C" __attribute__((visibility("default"))) int sqlite3_extension_init(
    sqlite3* connection, char** error, const sqlite3_api_routines* routines) {
  SQLITE_EXTENSION_INIT2(routines);
  try {
    const quarry::Status status = quarry::sql::Initialize(connection);
    // Threads of the libraries below may still run when the connection is closed: the code stays.
    if (status.ok()) return SQLITE_OK_LOAD_PERMANENTLY;
    *error = sqlite3_mprintf("%s", status.ToString().c_str());
    return SQLITE_ERROR;
  } catch (const std::exception&) {
    return SQLITE_NOMEM;
  }
}
