#include "sql_print.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "quarry/base/text.h"

namespace quarry::cli {
namespace {

using client::RowCursor;
using client::ValueView;
using Json = nlohmann::ordered_json;

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

using Blob = std::span<const std::byte>;

// A value for people and for CSV: blobs in hexadecimal, NULL empty.
std::string TextOf(const RowCursor& rows, size_t column) {
  const ValueView value = rows.value(column);
  const auto* const blob = std::get_if<Blob>(&value);
  return blob != nullptr ? Hex(*blob) : rows.Text(column);
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
Status PrintCsvLine(size_t columns, Field&& field) {
  std::string line;
  for (size_t i = 0; i < columns; ++i) line += (i > 0 ? "," : "") + CsvField(field(i));
  // Programs get the bytes as they are.
  if (isatty(STDOUT_FILENO) != 0) line = Printable(line, LineEnds::kKeep);
  return PrintBytes(line + "\n");
}

Status PrintCsv(RowCursor& rows) {
  const std::vector<std::string>& names = rows.columns();
  QUARRY_RETURN_IF_ERROR(PrintCsvLine(names.size(), [&](size_t i) { return names[i]; }));
  while (true) {
    QUARRY_TRY(const bool more, rows.Next());
    if (!more) return Status::Ok();
    QUARRY_RETURN_IF_ERROR(PrintCsvLine(names.size(), [&](size_t i) { return TextOf(rows, i); }));
  }
}

Json JsonOf(const RowCursor& rows, size_t column) {
  const ValueView value = rows.value(column);
  if (std::holds_alternative<std::monostate>(value)) return nullptr;
  if (const auto* const integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* const real = std::get_if<double>(&value)) return *real;
  return TextOf(rows, column);
}

// One array of objects for each statement.
Status PrintRowsJson(RowCursor& rows) {
  const std::vector<std::string>& names = rows.columns();
  for (bool first = true;; first = false) {
    QUARRY_TRY(const bool more, rows.Next());
    if (!more) return PrintBytes(first ? "[]\n" : "]\n");
    Json object = Json::object();
    for (size_t i = 0; i < names.size(); ++i) object[names[i]] = JsonOf(rows, i);
    // Names in a database may hold any bytes; JSON may not.
    const std::string line = object.dump(-1, ' ', false, Json::error_handler_t::replace);
    QUARRY_RETURN_IF_ERROR(PrintBytes((first ? "[" : ",\n ") + Printable(line)));
  }
}

// Columns in a frame, as wide as the first rows want them: a result of any length is printed while it comes.
class Box {
 public:
  explicit Box(RowCursor& rows) : rows_(rows), widths_(rows.columns().size()) {
    std::vector<std::string> heads = rows.columns();
    for (std::string& head : heads) head = CellText(std::move(head));
    Add(std::move(heads));
  }

  Status Run() {
    while (true) {
      QUARRY_TRY(const bool more, rows_.Next());
      if (!more) break;
      std::vector<std::string> cells;
      for (size_t i = 0; i < widths_.size(); ++i) cells.push_back(Cell(i));
      Add(std::move(cells));
      if (held_.size() > kHeldRowsMax) QUARRY_RETURN_IF_ERROR(Flush());
    }
    QUARRY_RETURN_IF_ERROR(Flush());
    return PrintBytes(Rule("└", "┴", "┘"));
  }

 private:
  static constexpr size_t kHeldRowsMax = 1000;
  static constexpr size_t kBlobBytesMax = 16;  // more of one is only counted

  std::string Cell(size_t column) const {
    std::string text;
    const ValueView value = rows_.value(column);
    const auto* const blob = std::get_if<Blob>(&value);
    if (blob != nullptr && blob->size() > kBlobBytesMax) {
      text = fmt::format("{}... {} bytes", Hex(blob->first(kBlobBytesMax)), blob->size());
    } else {
      text = TextOf(rows_, column);
    }
    return CellText(std::move(text));
  }

  // Line ends would break the frame, tabs its columns, and other controls steer a terminal.
  static std::string CellText(std::string text) {
    std::ranges::replace_if(
        text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
    return Printable(text);
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

  RowCursor& rows_;
  std::vector<size_t> widths_;
  bool measured_ = false;  // and the head is printed
  std::vector<std::vector<std::string>> held_;
};

}  // namespace

Status PrintRows(RowCursor& rows, SqlFormat format) {
  if (rows.columns().empty()) return rows.Next().status();
  switch (format) {
    case SqlFormat::kCsv:
      return PrintCsv(rows);
    case SqlFormat::kJson:
      return PrintRowsJson(rows);
    case SqlFormat::kBox:
      return Box(rows).Run();
  }
  return Status::Ok();
}

}  // namespace quarry::cli
