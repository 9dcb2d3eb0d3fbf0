// Edge lists as text: CSV, TSV, blanks, SNAP's with '#' lines.
#include <algorithm>

#include "text_lines.h"

namespace quarry {
namespace {

bool IsComment(std::string_view line) { return line.starts_with('#') || line.starts_with('%'); }

// Splits at `separator` (' ' = runs of blanks); counts the fields, keeps the first two.
struct Columns {
  std::string_view first, second;
  size_t count = 0;
};

Columns SplitColumns(std::string_view line, char separator) {
  Columns columns;
  const auto take = [&columns](std::string_view field) {
    columns.count++;
    if (columns.count == 1) columns.first = Trim(field);
    if (columns.count == 2) columns.second = Trim(field);
  };
  if (separator == ' ') {
    size_t at = 0;
    while ((at = line.find_first_not_of(" \t", at)) != std::string_view::npos) {
      const size_t end = std::min(line.find_first_of(" \t", at), line.size());
      take(line.substr(at, end - at));
      at = end;
    }
    return columns;
  }
  size_t at = 0;
  while (true) {
    const size_t end = line.find(separator, at);
    if (end == std::string_view::npos) break;
    take(line.substr(at, end - at));
    at = end + 1;
  }
  take(line.substr(at));
  return columns;
}

class TextEdges final : public EdgeReader {
 public:
  TextEdges(std::unique_ptr<LineReader> lines, char separator, uint64_t header_line)
      : lines_(std::move(lines)), separator_(separator), header_line_(header_line) {}

  Result<size_t> Read(std::span<Edge> out) override {
    first_ += line_numbers_.size();
    line_numbers_.clear();
    size_t filled = 0;
    std::string_view line;
    while (filled < out.size() && lines_->Next(&line)) {
      int64_t source = 0;
      int64_t destination = 0;
      if (!ParsePlain(line, &source, &destination)) {
        if (IsComment(line) || Trim(line).empty() || lines_->line_number() == header_line_) continue;
        QUARRY_RETURN_IF_ERROR(ParseCarefully(line, &source, &destination));
      }
      out[filled++] = {static_cast<uint64_t>(source), static_cast<uint64_t>(destination)};
      line_numbers_.push_back(lines_->line_number());
    }
    QUARRY_RETURN_IF_ERROR(lines_->status());
    return filled;
  }
  std::optional<uint64_t> count() const override { return std::nullopt; }
  uint64_t bytes_read() const override { return lines_->consumed_bytes(); }
  uint64_t bytes_total() const override { return lines_->file_bytes(); }
  std::string Position(uint64_t edge) const override {
    return fmt::format("{}: line {}", lines_->path(), line_numbers_[edge - first_]);
  }

 private:
  // The common line, "12<separator>34" with nothing around it: 3 times faster than the careful way.
  bool ParsePlain(std::string_view line, int64_t* source, int64_t* destination) const {
    const char* at = line.data();
    const char* const end = at + line.size();
    if (!ParseDigits(&at, end, source) || at == end || *at != separator_) return false;
    at++;
    return ParseDigits(&at, end, destination) && at == end;
  }

  static bool ParseDigits(const char** at, const char* end, int64_t* value) {
    constexpr ptrdiff_t kDigitsMax = 18;  // cannot overflow; longer ones are for the careful way
    const char* const start = *at;
    const char* const stop = end - start > kDigitsMax ? start + kDigitsMax : end;
    int64_t number = 0;
    while (*at != stop && **at >= '0' && **at <= '9') number = number * 10 + (*(*at)++ - '0');
    *value = number;
    return *at != start;
  }

  Status ParseCarefully(std::string_view line, int64_t* source, int64_t* destination) const {
    const Columns columns = SplitColumns(line, separator_);
    if (columns.count != 2) {
      return MakeStatus(Code::kInvalidArgument,
                        "{}: {} column{} in '{}'; an edge list has exactly two, source and destination",
                        lines_->Position(), columns.count, columns.count == 1 ? "" : "s", Excerpt(line));
    }
    for (const auto& [field, value] :
         {std::pair(columns.first, source), std::pair(columns.second, destination)}) {
      if (!ParseInteger(field, value)) {
        return MakeStatus(Code::kInvalidArgument, "{}: '{}' is not a node id (an integer)",
                          lines_->Position(), Excerpt(field));
      }
      if (*value < 0) {
        return MakeStatus(Code::kInvalidArgument, "{}: the node id {} is negative", lines_->Position(),
                          *value);
      }
    }
    return Status::Ok();
  }

  const std::unique_ptr<LineReader> lines_;
  const char separator_;
  const uint64_t header_line_;          // 0 = none
  std::vector<uint64_t> line_numbers_;  // of the edges that the last Read delivered
  uint64_t first_ = 0;                  // number of the first of them
};

// A header names its columns: neither field is a number. "nan" is data gone wrong, not a name.
bool LooksLikeHeader(const Columns& columns) {
  double number = 0;
  const auto is_name = [&number](std::string_view field) {
    return !field.empty() && !ParseNumber(field, &number);
  };
  return columns.count == 2 && is_name(columns.first) && is_name(columns.second);
}

}  // namespace

Result<std::unique_ptr<EdgeReader>> OpenTextEdges(const std::string& path) {
  QUARRY_TRY(const auto scout, LineReader::Open(path));
  std::string_view line;
  bool found = false;
  while (!found && scout->Next(&line)) found = !IsComment(line) && !Trim(line).empty();
  QUARRY_RETURN_IF_ERROR(scout->status());
  const char separator = found ? DetectSeparator(line) : ',';
  const bool header = found && LooksLikeHeader(SplitColumns(line, separator));
  const uint64_t header_line = header ? scout->line_number() : 0;
  QUARRY_TRY(auto lines, LineReader::Open(path));
  return std::unique_ptr<EdgeReader>(std::make_unique<TextEdges>(std::move(lines), separator, header_line));
}

}  // namespace quarry
