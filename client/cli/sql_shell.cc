#include "sql_shell.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <set>
#include <vector>

#include "cli.h"
#include "line_editor.h"
#include "quarry/base/process.h"
#include "quarry/sql/connection.h"

namespace quarry::cli {
namespace {

constexpr const char* kCommands[] = {".help", ".mode", ".quit", ".schema", ".tables", ".timer"};
constexpr const char* kKeywords[] = {
    "AND",        "AS",      "BEGIN",     "BETWEEN",       "BY",       "CASE",      "COMMIT",     "COUNT",
    "CREATE",     "DESC",    "DISTINCT",  "ELSE",          "END",      "EXISTS",    "EXPLAIN",    "FROM",
    "GROUP",      "HAVING",  "IN",        "INSERT",        "INTO",     "IS",        "JOIN",       "LEFT",
    "LIKE",       "LIMIT",   "NOT",       "NULL",          "OFFSET",   "ON",        "OR",         "ORDER",
    "PLAN",       "QUERY",   "RECURSIVE", "REPLACE",       "ROLLBACK", "SELECT",    "SET",        "TABLE",
    "THEN",       "UNION",   "UPDATE",    "USING",         "VALUES",   "WHEN",      "WHERE",      "WITH",
    "vec_cosine", "vec_dim", "vec_dot",   "vec_from_json", "vec_l2",   "vec_slice", "vec_to_json"};

constexpr const char* kHelp =
    "Statements end with ; and may have several lines.\n"
    "  .tables             tables, and functions that give one\n"
    "  .schema [TABLE]     their columns\n"
    "  .mode box|csv|json  how rows are printed\n"
    "  .timer on|off       tell how long a statement took\n"
    "  .quit               or Ctrl-D\n"
    "Tab completes names, Ctrl-R searches the history, Ctrl-C ends a statement.\n";

bool BeginsWith(std::string_view text, std::string_view start) {
  const auto equal = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return text.size() >= start.size() && std::ranges::equal(text.substr(0, start.size()), start, equal);
}

std::string HistoryFile() {
  const char* const home = std::getenv("HOME");
  return home == nullptr ? "" : std::string(home) + "/.quarry_history";
}

std::string ArgumentsOf(const wire::SqlTable& table) {
  std::string text;
  for (const auto& column : table.columns) {
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", column.name, column.type,
                        column.hidden ? " HIDDEN" : "");
  }
  return text;
}

class Shell {
 public:
  Shell(client::SqlConnection& connection, SqlFormat format)
      : connection_(connection),
        format_(format),
        editor_(HistoryFile(), [this](std::string_view word) { return Complete(word); }) {
    words_.insert(std::begin(kCommands), std::end(kCommands));
    words_.insert(std::begin(kKeywords), std::end(kKeywords));
    for (const wire::SqlTable& table : connection_.tables()) {
      words_.insert(table.name);
      for (const auto& column : table.columns) words_.insert(column.name);
    }
  }

  void Run() {
    std::string text, line;
    while (!quit_) {
      const LineEditor::Outcome outcome = editor_.Read(text.empty() ? "quarry> " : "   ...> ", line);
      if (outcome == LineEditor::Outcome::kEnd) return static_cast<void>(std::fputc('\n', stdout));
      if (outcome == LineEditor::Outcome::kCancelled) {
        text.clear();
        continue;
      }
      if (line.find_first_not_of(" \t") != std::string::npos) editor_.Remember(line);
      if (text.empty() && line.starts_with('.')) {
        Command(line);
        continue;
      }
      text += line + "\n";
      if (text.find_first_not_of(" \t\n") == std::string::npos) text.clear();
      if (!sql::IsComplete(text)) continue;
      Execute(text);
      text.clear();
    }
  }

 private:
  void Execute(const std::string& text) {
    ForgetInterrupt();
    const double start = MonotonicSeconds();
    const Status status =
        connection_.Run(text, [this](client::RowCursor& rows) { return PrintRows(rows, format_); });
    std::fflush(stdout);
    if (!status.ok()) PrintError(status.ToString());
    if (timer_) Print("{:.3f} s\n", MonotonicSeconds() - start);
  }

  void Command(const std::string& line) {
    const size_t end = std::min(line.find_first_of(" \t"), line.size());
    std::string argument = line.substr(std::min(line.find_first_not_of(" \t", end), line.size()));
    argument.erase(argument.find_last_not_of(" \t") + 1);
    if (RunCommand(line.substr(0, end), argument)) return;
    PrintError(fmt::format("no such command: {}; .help lists them", line));
  }

  bool RunCommand(const std::string& command, const std::string& argument) {
    if (command == ".schema") return PrintSchema(argument);
    if (command == ".mode") return SetMode(argument);
    if (command == ".timer") return SetTimer(argument);
    if (!argument.empty()) return false;
    if (command == ".help") return Print("{}", kHelp), true;
    if (command == ".tables") return PrintTables();
    if (command == ".quit") return quit_ = true;
    return false;
  }

  bool PrintTables() const {
    for (const wire::SqlTable& table : connection_.tables()) Print("{}\n", table.name);
    return true;
  }
  bool PrintSchema(const std::string& name) const {
    bool found = false;
    for (const wire::SqlTable& table : connection_.tables()) {
      if (!name.empty() && name != table.name) continue;
      Print("{}({})\n", table.name, ArgumentsOf(table));
      found = true;
    }
    return found;
  }
  bool SetMode(const std::string& name) {
    constexpr std::pair<const char*, SqlFormat> kModes[] = {
        {"box", SqlFormat::kBox}, {"csv", SqlFormat::kCsv}, {"json", SqlFormat::kJson}};
    for (const auto& [mode, format] : kModes) {
      if (name != mode) continue;
      format_ = format;
      return true;
    }
    return false;
  }
  bool SetTimer(const std::string& value) {
    if (value != "on" && value != "off") return false;
    timer_ = value == "on";
    return true;
  }

  std::vector<std::string> Complete(std::string_view word) const {
    std::vector<std::string> found;
    if (word.empty()) return found;
    // Only the part of table.column behind the point is completed.
    const size_t point = word.find_last_of('.');
    const size_t skip = point == std::string_view::npos || point == 0 ? 0 : point + 1;
    for (const std::string& candidate : words_) {
      if (!BeginsWith(candidate, word.substr(skip))) continue;
      found.push_back(std::string(word.substr(0, skip)) + candidate);
    }
    return found;
  }

  client::SqlConnection& connection_;
  SqlFormat format_;
  bool timer_ = false;
  bool quit_ = false;
  std::set<std::string> words_;
  LineEditor editor_;
};

}  // namespace

Status RunSqlShell(client::SqlConnection& connection, const std::string& database, SqlFormat format) {
  Print("{}: .help lists commands, Ctrl-D ends\n", database);
  Shell(connection, format).Run();
  return Status::Ok();
}

}  // namespace quarry::cli
