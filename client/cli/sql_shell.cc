#include "sql_shell.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <set>
#include <vector>

#include "cli.h"
#include "line_editor.h"
#include "quarry/sql/connection.h"
#include "sql_script.h"

namespace quarry::cli {
namespace {

constexpr const char* kKeywords[] = {
    "AND",        "AS",      "BEGIN",     "BETWEEN",       "BY",       "CASE",      "COMMIT",     "COUNT",
    "CREATE",     "DESC",    "DISTINCT",  "ELSE",          "END",      "EXISTS",    "EXPLAIN",    "FROM",
    "GROUP",      "HAVING",  "IN",        "INSERT",        "INTO",     "IS",        "JOIN",       "LEFT",
    "LIKE",       "LIMIT",   "NOT",       "NULL",          "OFFSET",   "ON",        "OR",         "ORDER",
    "PLAN",       "QUERY",   "RECURSIVE", "REPLACE",       "ROLLBACK", "SELECT",    "SET",        "TABLE",
    "THEN",       "UNION",   "UPDATE",    "USING",         "VALUES",   "WHEN",      "WHERE",      "WITH",
    "vec_cosine", "vec_dim", "vec_dot",   "vec_from_json", "vec_l2",   "vec_slice", "vec_to_json"};

constexpr uint64_t kRowsMax = 40;  // printed of a statement, unless .limit says otherwise

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

class Shell {
 public:
  Shell(client::SqlConnection& connection, const SqlPrinting& printing, bool write)
      : script_(connection, printing, write),
        editor_(HistoryFile(), [this](std::string_view word) { return Complete(word); }) {
    words_.insert(std::begin(SqlScript::kCommands), std::end(SqlScript::kCommands));
    words_.insert(std::begin(kKeywords), std::end(kKeywords));
    for (const wire::SqlTable& table : connection.tables()) {
      words_.insert(table.name);
      for (const auto& column : table.columns) words_.insert(column.name);
    }
  }

  void Run() {
    std::string text, line;
    while (!script_.quits()) {
      const LineEditor::Outcome outcome = editor_.Read(text.empty() ? "quarry> " : "   ...> ", line);
      if (outcome == LineEditor::Outcome::kEnd) return static_cast<void>(std::fputc('\n', stdout));
      if (outcome == LineEditor::Outcome::kCancelled) {
        text.clear();
        continue;
      }
      if (line.find_first_not_of(" \t") != std::string::npos) editor_.Remember(line);
      if (text.empty() && line.starts_with('.')) {
        Tell([&] { return script_.RunCommand(line); });
        continue;
      }
      text += line + "\n";
      if (text.find_first_not_of(" \t\n") == std::string::npos) text.clear();
      if (!sql::IsComplete(text)) continue;
      Tell([&] { return script_.RunStatements(text); });
      text.clear();
    }
  }

 private:
  // Runs it; what fails is told, and the shell goes on.
  template <typename Work>
  void Tell(Work&& work) {
    ForgetInterrupt();
    const Status status = work();
    std::fflush(stdout);
    if (!status.ok()) PrintError(status.ToString());
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

  SqlScript script_;
  std::set<std::string> words_;
  LineEditor editor_;
};

}  // namespace

Status RunSqlShell(client::SqlConnection& connection, const std::string& database, SqlFormat format,
                   bool write) {
  Print(
      "{}: .help lists commands, Ctrl-D ends; Tab completes names, Ctrl-R searches the history, Ctrl-C ends "
      "a "
      "statement\n",
      database);
  Shell(connection, {.format = format, .width = TerminalWidth(stdout), .rows_max = kRowsMax}, write).Run();
  return Status::Ok();
}

}  // namespace quarry::cli
