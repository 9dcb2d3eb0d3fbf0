// quarry sql DB ["SQL"]: statements over a database, their rows on stdout; on a terminal a shell.
#include "quarry/sql/connection.h"

#include <unistd.h>

#include <array>

#include "cli.h"
#include "quarry/database.h"
#include "sql_print.h"
#include "sql_shell.h"

namespace quarry::cli {
namespace {

struct Arguments {
  std::string database;
  std::string text;
  bool script = true;  // on stdin, unless the text was given
  bool json = false, csv = false, box = false;
  sql::ConnectionOptions options;

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

Status Run(Arguments& arguments) {
  const bool shell = arguments.script && isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  QUARRY_TRY(const std::unique_ptr<Database> database, Database::Open(arguments.database));
  if (arguments.script && !shell) {
    QUARRY_TRY(arguments.text, ReadStdin());
  }
  arguments.options.cancelled = Interrupted;
  QUARRY_TRY(const std::unique_ptr<sql::Connection> connection, database->Connect(arguments.options));
  if (shell) return RunSqlShell(*connection, arguments.database, arguments.format());
  return connection->Run(arguments.text,
                         [&](sql::Rows& rows) { return PrintRows(rows, arguments.format()); });
}

}  // namespace

void AddSql(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("sql", "query a database by SQL");
  auto arguments = std::make_shared<Arguments>();
  verb->add_option("DB", arguments->database, "database folder")->required();
  CLI::Option* text =
      verb->add_option("SQL", arguments->text,
                       "statements; without them, stdin is read: a script, or what is typed on a terminal");
  CLI::Option* json = verb->add_flag("--json", arguments->json, "an array of objects for each statement");
  CLI::Option* csv = verb->add_flag("--csv", arguments->csv, "a line of names, then a line a row");
  CLI::Option* box = verb->add_flag("--box", arguments->box, "columns in a frame (the default)");
  json->excludes(csv)->excludes(box);
  csv->excludes(box);
  verb->add_flag("--write", arguments->options.write, "UPDATE and INSERT OR REPLACE reach the database");
  verb->add_option("--timeout", arguments->options.timeout_seconds, "seconds that a statement may take")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  verb->footer(
      "Tables: nodes, edges, relations, features, embeddings, embedding_rows, layouts, batches, segments, "
      "caches,\npartitions, files, versions, stats, device_profile. On a terminal, .help lists commands.\n"
      "Without --write the database is only read. The first statement that fails ends the script: exit code "
      "1.\n"
      "Example: quarry sql db/ \"SELECT split, count(*) FROM nodes GROUP BY split\"");
  verb->callback([arguments, text, &action] {
    arguments->script = text->count() == 0;
    action = [arguments] { return Run(*arguments); };
  });
}

}  // namespace quarry::cli
