#include "sql_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace quarry::cli {
namespace {

using sql::Rows;
using Json = nlohmann::ordered_json;

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

}  // namespace

Status PrintRows(Rows& rows, SqlFormat format) {
  if (rows.column_count() == 0) return rows.Next().status();
  switch (format) {
    case SqlFormat::kCsv:
      return PrintCsv(rows);
    case SqlFormat::kJson:
      return PrintJson(rows);
    case SqlFormat::kBox:
      return Box(rows).Run();
  }
  return Status::Ok();
}

}  // namespace quarry::cli
