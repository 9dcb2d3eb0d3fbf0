// quarry sql DB ["SQL"]: statements over a database, their rows on stdout.
#include "quarry/sql/connection.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "quarry/database.h"

namespace quarry::cli {
namespace {

using sql::Rows;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::string database;
  std::string text;
  bool script = true;  // on stdin, unless the text was given
  bool json = false, csv = false, box = false;
  sql::ConnectionOptions options;
};

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

// A value for people and for CSV: blobs in hexadecimal, NULL empty.
std::string TextOf(const Rows& rows, int column) {
  return rows.type(column) == Rows::Type::kBlob ? Hex(rows.Blob(column)) : std::string(rows.Text(column));
}

// Values may hold any bytes. An error ends the statement: `quarry sql ... | head`.
Status PrintBytes(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::ferror(stdout) == 0 ? Status::Ok() : Status(Code::kIoError, "stdout takes no more");
}

// RFC 4180: what holds a comma, a quote or a line end is quoted.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

template <typename Field>
Status PrintCsvLine(int columns, Field&& field) {
  std::string line;
  for (int i = 0; i < columns; ++i) line += (i > 0 ? "," : "") + CsvField(field(i));
  return PrintBytes(line + "\n");
}

Status PrintCsv(Rows& rows) {
  const int columns = rows.column_count();
  QUARRY_RETURN_IF_ERROR(PrintCsvLine(columns, [&](int i) { return std::string(rows.column_name(i)); }));
  while (true) {
    QUARRY_TRY(const bool more, rows.Next());
    if (!more) return Status::Ok();
    QUARRY_RETURN_IF_ERROR(PrintCsvLine(columns, [&](int i) { return TextOf(rows, i); }));
  }
}

Json JsonOf(const Rows& rows, int column) {
  switch (rows.type(column)) {
    case Rows::Type::kNull:
      return nullptr;
    case Rows::Type::kInteger:
      return rows.Integer(column);
    case Rows::Type::kReal:
      return rows.Real(column);
    default:
      return TextOf(rows, column);
  }
}

// One array of objects for each statement.
Status PrintJson(Rows& rows) {
  for (bool first = true;; first = false) {
    QUARRY_TRY(const bool more, rows.Next());
    if (!more) return PrintBytes(first ? "[]\n" : "]\n");
    Json object = Json::object();
    for (int i = 0; i < rows.column_count(); ++i) object[std::string(rows.column_name(i))] = JsonOf(rows, i);
    // Names in a database may hold any bytes; JSON may not.
    QUARRY_RETURN_IF_ERROR(
        PrintBytes((first ? "[" : ",\n ") + object.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
}

// Columns in a frame, as wide as the first rows want them: a result of any length is printed while it comes.
class Box {
 public:
  explicit Box(Rows& rows) : rows_(rows), widths_(static_cast<size_t>(rows.column_count())) {
    std::vector<std::string> names;
    for (int i = 0; i < rows.column_count(); ++i) names.emplace_back(rows.column_name(i));
    Add(std::move(names));
  }

  Status Run() {
    while (true) {
      QUARRY_TRY(const bool more, rows_.Next());
      if (!more) break;
      std::vector<std::string> cells;
      for (int i = 0; i < rows_.column_count(); ++i) cells.push_back(Cell(i));
      Add(std::move(cells));
      if (held_.size() > kHeldRowsMax) QUARRY_RETURN_IF_ERROR(Flush());
    }
    QUARRY_RETURN_IF_ERROR(Flush());
    return PrintBytes(Rule("└", "┴", "┘"));
  }

 private:
  static constexpr size_t kHeldRowsMax = 1000;
  static constexpr size_t kBlobBytesMax = 16;  // more of one is only counted

  std::string Cell(int column) const {
    std::string text;
    if (rows_.type(column) == Rows::Type::kBlob && rows_.Blob(column).size() > kBlobBytesMax) {
      const std::span<const std::byte> blob = rows_.Blob(column);
      text = fmt::format("{}... {} bytes", Hex(blob.first(kBlobBytesMax)), blob.size());
    } else {
      text = TextOf(rows_, column);
    }
    // Line ends would break the frame, and other controls steer a terminal.
    std::ranges::replace_if(
        text, [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; }, ' ');
    return text;
  }

  // Characters, not bytes: UTF-8 goes on in bytes of the form 10xxxxxx.
  static size_t Width(const std::string& text) {
    return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
  }

  void Add(std::vector<std::string> cells) {
    for (size_t i = 0; i < cells.size() && !measured_; ++i)
      widths_[i] = std::max(widths_[i], Width(cells[i]));
    held_.push_back(std::move(cells));
  }

  Status Flush() {
    std::string text;
    for (const std::vector<std::string>& cells : held_) {
      if (!measured_) text += Rule("┌", "┬", "┐");
      text += Line(cells);
      if (!measured_) text += Rule("├", "┼", "┤");
      measured_ = true;
    }
    held_.clear();
    return PrintBytes(text);
  }

  std::string Rule(const char* left, const char* middle, const char* right) const {
    std::string line;
    for (const size_t width : widths_) {
      line += line.empty() ? left : middle;
      for (size_t i = 0; i < width + 2; ++i) line += "─";
    }
    return line + right + "\n";
  }
  std::string Line(const std::vector<std::string>& cells) const {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      const size_t width = Width(cells[i]);
      line += "│ " + cells[i] + std::string(width < widths_[i] ? widths_[i] - width + 1 : 1, ' ');
    }
    return line + "│\n";
  }

  Rows& rows_;
  std::vector<size_t> widths_;
  bool measured_ = false;  // and the head is printed
  std::vector<std::vector<std::string>> held_;
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
  QUARRY_TRY(const std::unique_ptr<Database> database, Database::Open(arguments.database));
  if (arguments.script) {
    QUARRY_TRY(arguments.text, ReadStdin());
  }
  arguments.options.cancelled = Interrupted;
  QUARRY_TRY(const std::unique_ptr<sql::Connection> connection,
             sql::Connection::Open(database->store(), database->budget(), arguments.options));
  return connection->Run(arguments.text, [&](Rows& rows) -> Status {
    if (rows.column_count() == 0) return rows.Next().status();
    if (arguments.json) return PrintJson(rows);
    return arguments.csv ? PrintCsv(rows) : Box(rows).Run();
  });
}

}  // namespace

void AddSql(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("sql", "query a database by SQL");
  auto arguments = std::make_shared<Arguments>();
  verb->add_option("DB", arguments->database, "database folder")->required();
  CLI::Option* text = verb->add_option("SQL", arguments->text, "statements; without them, stdin is read");
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
      "Tables: nodes, edges, relations, features, embeddings, layouts, files, versions, device_profile.\n"
      "Without --write the database is only read. The first statement that fails ends the script: exit code "
      "1.\n"
      "Example: quarry sql db/ \"SELECT split, count(*) FROM nodes GROUP BY split\"");
  verb->callback([arguments, text, &action] {
    arguments->script = text->count() == 0;
    action = [arguments] { return Run(*arguments); };
  });
}

}  // namespace quarry::cli
