// Edge lists as text: CSV, TSV, blanks, SNAP's with '#' lines; a third column holds weights.
#include <algorithm>
#include <array>

#include "text_lines.h"

namespace quarry {
namespace {

bool IsComment(std::string_view line) { return line.starts_with('#') || line.starts_with('%'); }

// Splits at `separator` (' ' = runs of blanks); counts the fields, keeps the first three.
struct Columns {
  std::array<std::string_view, 3> fields;
  size_t count = 0;
};

Columns SplitColumns(std::string_view line, char separator) {
  Columns columns;
  const auto take = [&columns](std::string_view field) {
    if (columns.count < columns.fields.size()) columns.fields[columns.count] = Trim(field);
    columns.count++;
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
  TextEdges(std::unique_ptr<LineReader> lines, char separator, uint64_t header_line, bool weighted)
      : lines_(std::move(lines)), separator_(separator), header_line_(header_line), weighted_(weighted) {}

  Result<size_t> Read(std::span<Edge> out) override {
    first_ += line_numbers_.size();
    line_numbers_.clear();
    weights_.clear();
    size_t filled = 0;
    std::string_view line;
    while (filled < out.size() && lines_->Next(&line)) {
      Fields fields;
      if (!ParsePlain(line, &fields)) {
        if (IsComment(line) || Trim(line).empty() || lines_->line_number() == header_line_) continue;
        QUARRY_RETURN_IF_ERROR(ParseCarefully(line, &fields));
      }
      out[filled++] = {static_cast<uint64_t>(fields.source), static_cast<uint64_t>(fields.destination)};
      if (weighted_) weights_.push_back(fields.weight);
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
  bool weighted() const override { return weighted_; }
  std::span<const float> weights() const override { return weights_; }

 private:
  struct Fields {
    int64_t source = 0;
    int64_t destination = 0;
    float weight = 0;
  };

  // The common line, "12<separator>34" with nothing around it: 3 times faster than the careful way.
  bool ParsePlain(std::string_view line, Fields* fields) const {
    const char* at = line.data();
    const char* const end = at + line.size();
    if (!ParseDigits(&at, end, &fields->source) || at == end || *at != separator_) return false;
    at++;
    if (!ParseDigits(&at, end, &fields->destination)) return false;
    if (!weighted_) return at == end;
    return at != end && *at == separator_ && ParseWeight({at + 1, end}, &fields->weight);
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

  Status ParseCarefully(std::string_view line, Fields* fields) const {
    const Columns columns = SplitColumns(line, separator_);
    if (columns.count != (weighted_ ? 3 : 2)) {
      return MakeStatus(Code::kInvalidArgument, "{}: {} column{} in '{}'; {}", lines_->Position(),
                        columns.count, columns.count == 1 ? "" : "s", Excerpt(line),
                        weighted_ ? "this edge list has three, source, destination and weight"
                                  : "an edge list has two, source and destination, or, from its first line "
                                    "on, a third, the weight");
    }
    for (const auto& [field, value] : {std::pair(columns.fields[0], &fields->source),
                                       std::pair(columns.fields[1], &fields->destination)}) {
      if (!ParseInteger(field, value)) {
        return MakeStatus(Code::kInvalidArgument, "{}: '{}' is not a node id (an integer)",
                          lines_->Position(), Excerpt(field));
      }
      if (*value < 0) {
        return MakeStatus(Code::kInvalidArgument, "{}: the node id {} is negative", lines_->Position(),
                          *value);
      }
    }
    if (!weighted_ || ParseWeight(columns.fields[2], &fields->weight)) return Status::Ok();
    return NotAWeight(*lines_, columns.fields[2]);
  }

  const std::unique_ptr<LineReader> lines_;
  const char separator_;
  const uint64_t header_line_;  // 0 = none
  const bool weighted_;
  std::vector<float> weights_;  // these two: of the edges that the last Read delivered
  std::vector<uint64_t> line_numbers_;
  uint64_t first_ = 0;  // number of the first of them
};

}  // namespace

Result<std::unique_ptr<EdgeReader>> OpenTextEdges(const std::string& path) {
  QUARRY_TRY(const auto scout, LineReader::Open(path));
  std::string_view line;
  bool found = false;
  bool matrix = false;
  while (!found && scout->Next(&line)) {
    matrix = matrix || line.starts_with("%%MatrixMarket");
    found = !IsComment(line) && !Trim(line).empty();
  }
  QUARRY_RETURN_IF_ERROR(scout->status());
  const char separator = found ? DetectSeparator(line) : ',';
  const Columns columns = found ? SplitColumns(line, separator) : Columns();
  if (matrix && columns.count == 3) {  // its line of sizes would pass for an edge with a weight
    return MakeStatus(Code::kInvalidArgument,
                      "{}: is a MatrixMarket file, which counts from 1; save the matrix with "
                      "scipy.sparse.save_npz",
                      path);
  }
  const bool known = columns.count == 2 || columns.count == 3;
  const bool is_header = known && LooksLikeHeader(std::span(columns.fields).first(columns.count));
  const uint64_t header_line = is_header ? scout->line_number() : 0;
  QUARRY_TRY(auto lines, LineReader::Open(path));
  return std::unique_ptr<EdgeReader>(
      std::make_unique<TextEdges>(std::move(lines), separator, header_line, columns.count == 3));
}

}  // namespace quarry
