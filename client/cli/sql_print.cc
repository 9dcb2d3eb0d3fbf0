#include "sql_print.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
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
Status PrintBytes(FILE* out, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), out);
  if (std::ferror(out) == 0) return Status::Ok();
  return MakeStatus(Code::kIoError, "{} takes no more", out == stdout ? "stdout" : "the file of .output");
}

bool IsTerminal(FILE* out) { return isatty(fileno(out)) != 0; }

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
Status PrintCsvLine(FILE* out, size_t columns, Field&& field) {
  std::string line;
  for (size_t i = 0; i < columns; ++i) line += (i > 0 ? "," : "") + CsvField(field(i));
  // Programs get the bytes as they are.
  if (IsTerminal(out)) line = Printable(line, LineEnds::kKeep);
  return PrintBytes(out, line + "\n");
}

Status PrintCsv(RowCursor& rows, FILE* out) {
  const std::vector<std::string>& names = rows.columns();
  QUARRY_RETURN_IF_ERROR(PrintCsvLine(out, names.size(), [&](size_t i) { return names[i]; }));
  while (true) {
    QUARRY_TRY(const bool more, rows.Next());
    if (!more) return Status::Ok();
    QUARRY_RETURN_IF_ERROR(PrintCsvLine(out, names.size(), [&](size_t i) { return TextOf(rows, i); }));
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
Status PrintRowsJson(RowCursor& rows, FILE* out) {
  const std::vector<std::string>& names = rows.columns();
  for (bool first = true;; first = false) {
    QUARRY_TRY(const bool more, rows.Next());
    if (!more) return PrintBytes(out, first ? "[]\n" : "]\n");
    Json object = Json::object();
    for (size_t i = 0; i < names.size(); ++i) object[names[i]] = JsonOf(rows, i);
    // Names in a database may hold any bytes; JSON may not.
    const std::string line = object.dump(-1, ' ', false, Json::error_handler_t::replace);
    QUARRY_RETURN_IF_ERROR(PrintBytes(out, (first ? "[" : ",\n ") + Printable(line)));
  }
}

// Line ends would break a frame, tabs its columns, and other controls steer a terminal.
std::string CellText(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return Printable(text);
}

bool IsNumber(const ValueView& value) {
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
}

// A value for people: NULL by its name, and long blobs by their size.
std::string CellOf(const RowCursor& rows, size_t column) {
  constexpr size_t kBlobBytesMax = 16;
  const ValueView value = rows.value(column);
  if (std::holds_alternative<std::monostate>(value)) return "NULL";
  const auto* const blob = std::get_if<Blob>(&value);
  if (blob != nullptr && blob->size() > kBlobBytesMax) {
    return fmt::format("{}... {} bytes", Hex(blob->first(kBlobBytesMax)), blob->size());
  }
  return CellText(TextOf(rows, column));
}

// Characters, not bytes: UTF-8 goes on in bytes of the form 10xxxxxx.
bool GoesOn(char c) { return (c & 0xc0) == 0x80; }
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return !GoesOn(c); }));
}

// The text, or as much of it as fits, and an ellipsis.
std::string Shortened(std::string text, size_t width) {
  if (Width(text) <= width) return text;
  size_t end = 0;
  for (size_t left = width - 1; end < text.size(); ++end) {
    if (!GoesOn(text[end]) && left-- == 0) break;
  }
  return text.substr(0, end) + "…";
}

// Prints at most so many rows, counts the others, and says so.
class RowLimit {
 public:
  RowLimit(RowCursor& rows, const SqlPrinting& printing) : rows_(rows), printing_(printing) {}
  // To the next row that is printed.
  Result<bool> Next() {
    if (printing_.rows_max > 0 && count_ == printing_.rows_max) return false;
    QUARRY_TRY(const bool more, rows_.Next());
    count_ += more ? 1 : 0;
    return more;
  }
  Status Finish() {
    if (printing_.rows_max == 0 || count_ < printing_.rows_max) return Status::Ok();
    uint64_t all = count_;
    while (true) {
      QUARRY_TRY(const bool more, rows_.Next());
      if (!more) break;
      ++all;
    }
    if (all == count_) return Status::Ok();
    return PrintBytes(printing_.out,
                      fmt::format("{} rows, the first {} of them shown; .limit 0 shows all\n", all, count_));
  }

 private:
  RowCursor& rows_;
  const SqlPrinting& printing_;
  uint64_t count_ = 0;
};

// A line for each value, rows apart by an empty one.
Status PrintLines(RowCursor& rows, const SqlPrinting& printing) {
  size_t width = 0;
  for (const std::string& name : rows.columns()) width = std::max(width, Width(CellText(name)));
  RowLimit limited(rows, printing);
  for (bool first = true;; first = false) {
    QUARRY_TRY(const bool more, limited.Next());
    if (!more) return limited.Finish();
    std::string text = first ? "" : "\n";
    for (size_t i = 0; i < rows.columns().size(); ++i) {
      const std::string name = CellText(rows.columns()[i]);
      text += fmt::format("{}{} = {}\n", std::string(width - Width(name), ' '), name, CellOf(rows, i));
    }
    QUARRY_RETURN_IF_ERROR(PrintBytes(printing.out, text));
  }
}

// A table of GitHub's Markdown.
Status PrintMarkdown(RowCursor& rows, const SqlPrinting& printing) {
  const auto escaped = [](const std::string& text) {
    std::string cell;
    for (const char c : text) cell += c == '|' ? "\\|" : std::string(1, c);
    return cell;
  };
  std::string head = "|", rule = "|";
  for (const std::string& name : rows.columns()) {
    head += " " + escaped(CellText(name)) + " |";
    rule += " --- |";
  }
  QUARRY_RETURN_IF_ERROR(PrintBytes(printing.out, head + "\n" + rule + "\n"));
  RowLimit limited(rows, printing);
  while (true) {
    QUARRY_TRY(const bool more, limited.Next());
    if (!more) return limited.Finish();
    std::string line = "|";
    for (size_t i = 0; i < rows.columns().size(); ++i) line += " " + escaped(CellOf(rows, i)) + " |";
    QUARRY_RETURN_IF_ERROR(PrintBytes(printing.out, line + "\n"));
  }
}

// Columns in a frame, as wide as the first rows want them, and no wider than the line: a result of any length is
// printed while it comes.
class Box {
 public:
  static constexpr size_t kColumnWidthMin = 4;  // of a column that is made narrower

  Box(RowCursor& rows, const SqlPrinting& printing)
      : rows_(rows), printing_(printing), widths_(rows.columns().size()) {
    std::vector<Cell> heads;
    for (const std::string& name : rows.columns()) heads.push_back({CellText(name)});
    Add(std::move(heads));
  }
  // Whether a line has room for so many columns.
  static bool Fits(size_t columns, const SqlPrinting& printing) {
    return printing.width == 0 || columns * (kColumnWidthMin + 3) + 1 <= printing.width;
  }

  Status Run() {
    RowLimit limited(rows_, printing_);
    while (true) {
      QUARRY_TRY(const bool more, limited.Next());
      if (!more) break;
      std::vector<Cell> cells;
      for (size_t i = 0; i < widths_.size(); ++i)
        cells.push_back({CellOf(rows_, i), IsNumber(rows_.value(i))});
      Add(std::move(cells));
      if (held_.size() > kHeldRowsMax) QUARRY_RETURN_IF_ERROR(Flush());
    }
    QUARRY_RETURN_IF_ERROR(Flush());
    QUARRY_RETURN_IF_ERROR(PrintBytes(printing_.out, Rule("└", "┴", "┘")));
    return limited.Finish();
  }

 private:
  static constexpr size_t kHeldRowsMax = 1000;

  struct Cell {
    std::string text;
    bool to_the_right = false;  // numbers, whose digits then stand below each other
  };

  void Add(std::vector<Cell> cells) {
    for (size_t i = 0; i < cells.size() && !measured_; ++i)
      widths_[i] = std::max(widths_[i], Width(cells[i].text));
    held_.push_back(std::move(cells));
  }

  // Makes the widest columns narrower until all fit.
  void FitLine() {
    if (printing_.width == 0) return;
    const auto line_width = [&] {
      size_t sum = 1;
      for (const size_t width : widths_) sum += width + 3;
      return sum;
    };
    while (line_width() > printing_.width) {
      size_t& widest = *std::ranges::max_element(widths_);
      if (widest <= kColumnWidthMin) return;
      --widest;
    }
  }

  Status Flush() {
    std::string text;
    for (const std::vector<Cell>& cells : held_) {
      if (!measured_) {
        FitLine();
        text += Rule("┌", "┬", "┐");
      }
      text += Line(cells);
      if (!measured_) text += Rule("├", "┼", "┤");
      measured_ = true;
    }
    held_.clear();
    return PrintBytes(printing_.out, text);
  }

  std::string Rule(const char* left, const char* middle, const char* right) const {
    std::string line;
    for (const size_t width : widths_) {
      line += line.empty() ? left : middle;
      for (size_t i = 0; i < width + 2; ++i) line += "─";
    }
    return line + right + "\n";
  }
  std::string Line(const std::vector<Cell>& cells) const {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      // Behind the first rows, what is wider pushes the frame out, unless the terminal is at its end.
      const std::string text =
          printing_.width == 0 ? cells[i].text : Shortened(cells[i].text, std::max<size_t>(widths_[i], 1));
      const size_t width = Width(text);
      const std::string space(width < widths_[i] ? widths_[i] - width : 0, ' ');
      line += "│ " + (cells[i].to_the_right ? space + text : text + space) + " ";
    }
    return line + "│\n";
  }

  RowCursor& rows_;
  const SqlPrinting& printing_;
  std::vector<size_t> widths_;
  bool measured_ = false;  // and the head is printed
  std::vector<std::vector<Cell>> held_;
};

}  // namespace

size_t TerminalWidth(FILE* out) {
  winsize size{};
  if (!IsTerminal(out) || ioctl(fileno(out), TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

Status PrintRows(RowCursor& rows, const SqlPrinting& printing) {
  if (rows.columns().empty()) return rows.Next().status();
  switch (printing.format) {
    case SqlFormat::kCsv:
      return PrintCsv(rows, printing.out);
    case SqlFormat::kJson:
      return PrintRowsJson(rows, printing.out);
    case SqlFormat::kMarkdown:
      return PrintMarkdown(rows, printing);
    case SqlFormat::kLine:
      return PrintLines(rows, printing);
    case SqlFormat::kBox:
      return Box::Fits(rows.columns().size(), printing) ? Box(rows, printing).Run()
                                                        : PrintLines(rows, printing);
  }
  return Status::Ok();
}

}  // namespace quarry::cli
