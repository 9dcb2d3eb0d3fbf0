#include "sql_script.h"

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "cli.h"
#include "option_values.h"
#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/sql/connection.h"
#include "usage.h"

namespace quarry::cli {
namespace {

constexpr int kDepthMax = 8;

constexpr std::pair<const char*, SqlFormat> kModes[] = {{"box", SqlFormat::kBox},
                                                        {"csv", SqlFormat::kCsv},
                                                        {"json", SqlFormat::kJson},
                                                        {"line", SqlFormat::kLine},
                                                        {"markdown", SqlFormat::kMarkdown}};

bool IsBlank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// The word behind `marker` in a message of SQLite's, without what it is qualified by; empty when it is not there.
std::string WordBehind(std::string_view message, std::string_view marker) {
  const size_t at = message.find(marker);
  if (at == std::string_view::npos) return "";
  std::string_view word = message.substr(at + marker.size());
  word = word.substr(0, word.find_first_of(" \t\n,;()"));
  return std::string(word.substr(word.find_last_of('.') + 1));  // npos + 1 is 0
}

}  // namespace

Status SqlScript::Run(const std::string& text) {
  std::string statements;
  size_t lines = 0, first_line = 0;
  for (size_t at = 0; at < text.size() && !quits_; ++lines) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const bool between = IsBlank(statements) || sql::IsComplete(statements);
    if (!between || !line.starts_with('.')) {
      statements += line + "\n";
      continue;
    }
    if (!IsBlank(statements)) QUARRY_RETURN_IF_ERROR(RunStatements(statements, first_line));
    statements.clear();
    first_line = lines + 1;
    const Status done = RunCommand(line);
    if (!done.ok()) return MakeStatus(done.code(), "line {}: {}", lines + 1, done.message());
  }
  return IsBlank(statements) || quits_ ? Status::Ok() : RunStatements(statements, first_line);
}

// Rows go to `file`, where there is one: all of them, in boxes as wide as they are.
SqlPrinting SqlScript::PrintingTo(FILE* file) const {
  SqlPrinting printing = printing_;
  if (file != nullptr) {
    printing.out = file;
    printing.width = 0;
    printing.rows_max = 0;
  } else if (printing.width > 0) {
    printing.width = TerminalWidth(printing.out);  // windows change
  }
  return printing;
}

Status SqlScript::RunStatements(const std::string& text, size_t lines_before) {
  const double start = MonotonicSeconds();
  OutputFile once = std::exchange(once_, nullptr);  // of one statement alone, whatever becomes of it
  const Status status = connection_.Run(std::string(lines_before, '\n') + text, [&](client::RowCursor& rows) {
    const ScopedSpan span("rows of a statement");
    const OutputFile file = std::exchange(once, nullptr);
    const SqlPrinting printing = PrintingTo(file != nullptr ? file.get() : output_.get());
    const Status printed = PrintRows(rows, printing);
    std::fflush(printing.out);
    return printed;
  });
  if (timer_) Print("{:.3f} s\n", MonotonicSeconds() - start);
  return Explained(status);
}

// What the user may have meant, and what would let him.
Status SqlScript::Explained(const Status& fault) const {
  if (fault.ok()) return fault;
  const std::string message(fault.message());
  std::vector<std::string> tables, columns;
  for (const wire::SqlTable& table : connection_.tables()) {
    tables.push_back(table.name);
    for (const auto& column : table.columns) columns.push_back(column.name);
  }
  std::string more;
  if (const std::string name = WordBehind(message, "no such table: "); !name.empty()) {
    more = DidYouMean(name, tables);
  } else if (const std::string column = WordBehind(message, "no such column: "); !column.empty()) {
    more = DidYouMean(column, columns);
  } else if (!write_ && message.ends_with("may not be modified")) {
    more = " without --write";
  }
  return more.empty() ? fault : Status(fault.code(), message + more);
}

Status SqlScript::RunCommand(const std::string& line) {
  const size_t end = std::min(line.find_first_of(" \t\r"), line.size());
  const std::string command = line.substr(0, end);
  std::string argument = line.substr(std::min(line.find_first_not_of(" \t\r", end), line.size()));
  argument.erase(argument.find_last_not_of(" \t\r") + 1);
  if (command == ".schema") return PrintSchema(argument);
  if (command == ".mode") return SetMode(argument);
  if (command == ".limit") return SetLimit(argument);
  if (command == ".output") return OpenOutput(argument, output_);
  if (command == ".once" && !argument.empty()) return OpenOutput(argument, once_);
  if (command == ".read" && !argument.empty()) return ReadFile(argument);
  if (command == ".timer" && (argument == "on" || argument == "off")) {
    timer_ = argument == "on";
    return Status::Ok();
  }
  if (argument.empty() && command == ".help") return Print("{}", kHelp), Status::Ok();
  if (argument.empty() && command == ".quit") return quits_ = true, Status::Ok();
  if (argument.empty() && command == ".tables") {
    for (const wire::SqlTable& table : connection_.tables()) Print("{}\n", table.name);
    return Status::Ok();
  }
  const std::vector<std::string> commands(std::begin(kCommands), std::end(kCommands));
  const std::string meant = DidYouMean(command, commands);
  return MakeStatus(Code::kUsage, "no such command: {}{}", line,
                    meant.empty() ? "; .help lists them" : meant);
}

Status SqlScript::ReadFile(const std::string& path) {
  if (depth_ == kDepthMax) {
    return MakeStatus(Code::kUsage, ".read {}: {} files read one another already", path, kDepthMax);
  }
  const OutputFile file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) return ErrnoStatus(errno, "open", path);
  std::string text;
  std::array<char, 65536> piece;
  while (const size_t bytes = std::fread(piece.data(), 1, piece.size(), file.get())) {
    text.append(piece.data(), bytes);
  }
  if (std::ferror(file.get()) != 0) return ErrnoStatus(errno, "read", path);
  ++depth_;
  const Status status = Run(text);
  --depth_;
  if (status.ok()) return status;
  return MakeStatus(status.code(), "{}: {}", path, status.message());
}

Status SqlScript::SetMode(const std::string& name) {
  for (const auto& [mode, format] : kModes) {
    if (name != mode) continue;
    printing_.format = format;
    return Status::Ok();
  }
  return MakeStatus(Code::kUsage, ".mode {}: it is one of box, csv, json, line, markdown", name);
}

Status SqlScript::SetLimit(const std::string& rows) {
  const Result<uint64_t> count = ParseCount(rows);
  if (!count.ok()) return MakeStatus(Code::kUsage, ".limit {}: a number of rows, such as 40; 0: all", rows);
  printing_.rows_max = *count;
  return Status::Ok();
}

Status SqlScript::PrintSchema(const std::string& name) const {
  std::vector<std::string> tables;
  for (const wire::SqlTable& table : connection_.tables()) {
    tables.push_back(table.name);
    if (!name.empty() && name != table.name) continue;
    std::string columns;
    for (const auto& column : table.columns) {
      columns += fmt::format("{}{} {}{}", columns.empty() ? "" : ", ", column.name, column.type,
                             column.hidden ? " HIDDEN" : "");
    }
    Print("{}({})\n", table.name, columns);
  }
  const bool found = name.empty() || std::ranges::find(tables, name) != tables.end();
  if (found) return Status::Ok();
  return MakeStatus(Code::kUsage, ".schema {}: there is no such table{}", name, DidYouMean(name, tables));
}

Status SqlScript::OpenOutput(const std::string& path, OutputFile& file) {
  file.reset();
  if (path.empty()) return Status::Ok();
  file.reset(std::fopen(path.c_str(), "we"));
  return file == nullptr ? ErrnoStatus(errno, "open", path) : Status::Ok();
}

}  // namespace quarry::cli
