// Statements and dot commands of `quarry sql`: what the shell, scripts and .read have in common.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "quarry/base/status.h"
#include "quarry/client/sql.h"
#include "sql_print.h"

namespace quarry::cli {

// Used by one thread; the connection outlives it.
class SqlScript {
 public:
  // `write`: the connection may write to the database.
  SqlScript(client::SqlConnection& connection, const SqlPrinting& printing, bool write)
      : connection_(connection), printing_(printing), write_(write) {}

  static constexpr std::string_view kHelp =
      "Statements end with ; and may have several lines.\n"
      "  .tables                tables, and functions that give one\n"
      "  .schema [TABLE]        their columns\n"
      "  .mode box|csv|json|line|markdown\n"
      "                         how rows are printed\n"
      "  .limit N               rows of a box that are printed, the others are counted; 0: all\n"
      "  .output [FILE]         where rows go from here on; without one, to stdout\n"
      "  .once FILE             where those of the next statement go\n"
      "  .read FILE             statements and commands of a file\n"
      "  .timer on|off          tell how long a statement took\n"
      "  .quit                  or Ctrl-D\n";
  static constexpr const char* kCommands[] = {".help", ".limit", ".mode",   ".once",   ".output",
                                              ".quit", ".read",  ".schema", ".tables", ".timer"};

  // Statements and, on lines of their own between them, commands; ends at the first error, whose line is
  // counted from the text's first.
  Status Run(const std::string& text);
  // A line that begins with a dot. kUsage for no command, or another argument than it takes.
  Status RunCommand(const std::string& line);
  // Statements alone; `lines_before` of the text that they are of.
  Status RunStatements(const std::string& text, size_t lines_before = 0);
  bool quits() const { return quits_; }  // .quit was said

 private:
  struct CloseFile {
    void operator()(FILE* file) const { std::fclose(file); }
  };
  using OutputFile = std::unique_ptr<FILE, CloseFile>;

  SqlPrinting PrintingTo(FILE* file) const;
  Status ReadFile(const std::string& path);
  Status SetMode(const std::string& name);
  Status SetLimit(const std::string& rows);
  Status PrintSchema(const std::string& name) const;
  static Status OpenOutput(const std::string& path, OutputFile& file);
  Status Explained(const Status& fault) const;

  client::SqlConnection& connection_;
  SqlPrinting printing_;
  const bool write_;
  bool timer_ = false;
  bool quits_ = false;
  int depth_ = 0;             // files that .read is in
  OutputFile output_, once_;  // null: stdout
};

}  // namespace quarry::cli
