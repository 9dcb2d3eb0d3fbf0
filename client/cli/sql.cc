// quarry sql DB ["SQL"]: statements over a database, in a folder or a server's, their rows on stdout; on a
// terminal a shell.
#include <unistd.h>

#include <array>

#include "cli.h"
#include "opened_store.h"
#include "option_values.h"
#include "quarry/base/trace.h"
#include "server_address.h"
#include "sql_print.h"
#include "sql_script.h"
#include "sql_shell.h"

namespace quarry::cli {
namespace {

constexpr uint64_t kWriteBytes = 192 << 20;  // for a session that writes: a transaction takes 128 MiB
constexpr uint64_t kReadBytes = 32 << 20;    // for one that reads, and leaves others room
constexpr double kWaitSeconds = 5;           // for a session's memory to be free when it has ended

struct SqlArguments {
  std::string database;
  std::string text;
  bool script = true;  // on stdin, unless the text was given
  bool inline_only = false;
  bool json = false, csv = false, box = false;
  client::SqlOptions options;

  SqlFormat format() const {
    if (json) return SqlFormat::kJson;
    return csv ? SqlFormat::kCsv : SqlFormat::kBox;
  }
};

Result<std::string> ReadStdin() {
  std::string text;
  std::array<char, 65536> piece;
  while (const size_t bytes = std::fread(piece.data(), 1, piece.size(), stdin))
    text.append(piece.data(), bytes);
  if (std::ferror(stdin) != 0) return Status(Code::kIoError, "stdin cannot be read");
  return text;
}

// What gives the connection, and outlives it.
class Source {
 public:
  explicit Source(const SqlArguments& arguments) : arguments_(arguments) {}

  Status Open() { return OpenWith({.memory_bytes_min = served() ? LeastBytes(0) : 0}); }

  // A session that took all that was left has none for what SQLite needs beside it: a smaller one may.
  Result<std::unique_ptr<client::SqlConnection>> Connect(const client::SqlOptions& options) {
    auto connection = store_->Connect(options);
    if (!served() || connection.status().code() != Code::kOutOfBudget) return connection;
    store_.reset();
    const uint64_t bytes = LeastBytes(kReadBytes);
    QUARRY_RETURN_IF_ERROR(
        OpenWith({.memory_bytes = bytes, .memory_bytes_min = bytes, .wait_seconds = kWaitSeconds}));
    return store_->Connect(options);
  }

 private:
  uint64_t LeastBytes(uint64_t read_bytes) const {
    return arguments_.options.write ? kWriteBytes : read_bytes;
  }

  bool served() const { return IsServerAddress(arguments_.database); }

  Status OpenWith(client::OpenOptions options) {
    options.inline_only = arguments_.inline_only;
    QUARRY_TRY(store_, client::Open(arguments_.database, options));
    return Status::Ok();
  }

  const SqlArguments& arguments_;
  std::unique_ptr<client::Store> store_;
};

Status Run(SqlArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckInlineFlag(arguments.inline_only, arguments.database));
  const bool shell = arguments.script && isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  Source source(arguments);
  QUARRY_RETURN_IF_ERROR(source.Open());
  if (arguments.script && !shell) {
    QUARRY_TRY(arguments.text, ReadStdin());
  }
  arguments.options.cancelled = Interrupted;
  QUARRY_TRY(const std::unique_ptr<client::SqlConnection> connection, source.Connect(arguments.options));
  if (shell) return RunSqlShell(*connection, arguments.database, arguments.format(), arguments.options.write);
  const ScopedSpan span("statements");
  return SqlScript(*connection, {.format = arguments.format(), .width = TerminalWidth(stdout)},
                   arguments.options.write)
      .Run(arguments.text);
}

}  // namespace

void AddSql(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("sql", "query a database by SQL");
  auto arguments = std::make_shared<SqlArguments>();
  verb->add_option("DB", arguments->database, kAddressHelp)->required();
  CLI::Option* text =
      verb->add_option("SQL", arguments->text,
                       "statements; without them, stdin is read: a script, or what is typed on a terminal");
  CLI::Option* json = verb->add_flag("--json", arguments->json, "an array of objects for each statement");
  CLI::Option* csv = verb->add_flag("--csv", arguments->csv, "a line of names, then a line a row");
  CLI::Option* box = verb->add_flag("--box", arguments->box, "columns in a frame (the default)");
  json->excludes(csv)->excludes(box);
  csv->excludes(box);
  verb->add_flag("--write", arguments->options.write, "INSERT, UPDATE and DELETE reach the database");
  verb->add_option("--timeout", arguments->options.timeout_seconds, "seconds that a statement may take")
      ->type_name("SECONDS")
      ->check(SecondsBetween(0.001, 1e6));
  AddInlineFlag(verb, arguments->inline_only);
  verb->footer(
      "Tables: nodes, edges, relations, node_types, node_ranges, edge_types, features, embeddings, "
      "embedding_rows, "
      "layouts, batches,\nsegments, caches, partitions, files, runs, versions, snapshots, stats, "
      "device_profile.\n"
      "On a terminal, .help lists commands.\n"
      "Without --write the database is only read. The first statement that fails ends the script: exit code "
      "1.\n"
      "Example: quarry sql db/ \"SELECT split, count(*) FROM nodes GROUP BY split\"");
  verb->callback([arguments, text, &action] {
    arguments->script = text->count() == 0;
    action = [arguments] { return Run(*arguments); };
  });
}

}  // namespace quarry::cli
