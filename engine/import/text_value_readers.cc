// Columns of integers and rows of numbers as text, as OGB ships them.
#include <cmath>
#include <cstring>

#include "quarry/base/log.h"
#include "text_lines.h"

namespace quarry {
namespace {

class TextInts final : public IntReader {
 public:
  TextInts(std::unique_ptr<LineReader> lines, IntRole role, std::optional<uint64_t> count,
           uint64_t header_line)
      : lines_(std::move(lines)), role_(role), count_(count), header_line_(header_line) {}

  Result<size_t> Read(std::span<int64_t> out) override {
    first_ += line_numbers_.size();
    line_numbers_.clear();
    size_t filled = 0;
    std::string_view line;
    while (filled < out.size() && lines_->Next(&line)) {
      const std::string_view field = Trim(line);
      if (field.empty() || lines_->line_number() == header_line_) continue;
      if (!ParseInteger(field, &out[filled]) &&
          !(role_ == IntRole::kLabel && ParseFloatLabel(field, &out[filled]))) {
        return MakeStatus(Code::kInvalidArgument, "{}: '{}' is not {}", lines_->Position(), Excerpt(line),
                          role_ == IntRole::kId ? "a node id (an integer)" : "a label (one integer)");
      }
      filled++;
      line_numbers_.push_back(lines_->line_number());
    }
    QUARRY_RETURN_IF_ERROR(lines_->status());
    return filled;
  }
  std::optional<uint64_t> count() const override { return count_; }
  std::string Position(uint64_t index) const override {
    return fmt::format("{}: line {}", lines_->path(), line_numbers_[index - first_]);
  }

 private:
  static bool ParseFloatLabel(std::string_view field, int64_t* value) {
    double number = 0;
    if (!ParseNumber(field, &number)) return false;
    if (std::isnan(number)) {
      *value = -1;
      return true;
    }
    *value = std::abs(number) < 0x1p53 ? static_cast<int64_t>(number) : 0;
    return static_cast<double>(*value) == number;
  }

  const std::unique_ptr<LineReader> lines_;
  const IntRole role_;
  const std::optional<uint64_t> count_;
  const uint64_t header_line_;          // 0 = none
  std::vector<uint64_t> line_numbers_;  // lines of the values that the last Read delivered
  uint64_t first_ = 0;
};

class TextRows final : public RowReader {
 public:
  TextRows(std::unique_ptr<LineReader> lines, char separator, uint64_t dim, uint64_t row_count,
           bool has_header)
      : lines_(std::move(lines)),
        separator_(separator),
        dim_(dim),
        row_count_(row_count),
        has_header_(has_header),
        row_(dim) {}

  ElementType element_type() const override { return ElementType::kFloat32; }
  uint64_t dim() const override { return dim_; }
  uint64_t row_count() const override { return row_count_; }
  std::string Position(uint64_t row) const override { return fmt::format("{}: row {}", lines_->path(), row); }

  Result<size_t> Read(std::span<std::byte> out) override {
    const size_t row_bytes = dim_ * sizeof(float);
    const size_t rows = out.size() / row_bytes;
    size_t filled = 0;
    std::string_view line;
    while (filled < rows && lines_->Next(&line)) {
      if (Trim(line).empty() || (has_header_ && lines_->line_number() == 1)) continue;
      if (next_ == row_count_) {
        return MakeStatus(Code::kInvalidArgument, "{}: a row beyond the {} that were announced",
                          lines_->Position(), row_count_);
      }
      QUARRY_RETURN_IF_ERROR(ParseRow(line));
      std::memcpy(out.data() + filled * row_bytes, row_.data(), row_bytes);
      filled++;
      next_++;
    }
    QUARRY_RETURN_IF_ERROR(lines_->status());
    if (filled == 0 && next_ < row_count_) {
      return MakeStatus(Code::kInvalidArgument, "{}: has {} rows where {} were announced", lines_->path(),
                        next_, row_count_);
    }
    return filled;
  }

 private:
  Status ParseRow(std::string_view line) {
    uint64_t column = 0;
    for (size_t at = 0; at <= line.size(); column++) {
      if (separator_ == ' ') at = std::min(line.find_first_not_of(" \t", at), line.size());
      if (separator_ == ' ' && at == line.size()) break;
      const size_t end = std::min(line.find(separator_, at), line.size());
      const std::string_view field = Trim(line.substr(at, end - at));
      if (column < dim_ && !ParseNumber(field, &row_[column])) {
        return MakeStatus(Code::kInvalidArgument, "{}: column {}: '{}' is not a number", lines_->Position(),
                          column, Excerpt(field));
      }
      at = end + 1;
    }
    if (column == dim_) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument, "{}: {} columns where the first line has {}",
                      lines_->Position(), column, dim_);
  }

  const std::unique_ptr<LineReader> lines_;
  const char separator_;
  const uint64_t dim_;
  const uint64_t row_count_;
  const bool has_header_;  // in line 1
  std::vector<float> row_;
  uint64_t next_ = 0;
};

// Lines that hold something, from the one in `line` on.
Result<uint64_t> CountLines(LineReader& lines, std::string_view line) {
  uint64_t count = 0;
  do {
    if (!Trim(line).empty()) count++;
  } while (lines.Next(&line));
  QUARRY_RETURN_IF_ERROR(lines.status());
  return count;
}

}  // namespace

Result<std::unique_ptr<IntReader>> OpenTextInts(const std::string& path, IntRole role) {
  QUARRY_TRY(const auto scout, LineReader::Open(path));
  std::string_view line;
  while (scout->Next(&line) && Trim(line).empty()) {
  }
  const std::string_view field = Trim(line);
  const uint64_t header_line = LooksLikeHeader({&field, 1}) ? scout->line_number() : 0;
  std::optional<uint64_t> count;
  if (role == IntRole::kLabel) {  // their number is that of the nodes
    QUARRY_TRY(count, CountLines(*scout, header_line == 0 ? line : std::string_view()));
  }
  QUARRY_TRY(auto lines, LineReader::Open(path));
  return std::unique_ptr<IntReader>(std::make_unique<TextInts>(std::move(lines), role, count, header_line));
}

Result<std::unique_ptr<RowReader>> OpenTextRows(const std::string& path, uint64_t row_count) {
  QUARRY_TRY(const auto scout, LineReader::Open(path));
  std::string_view line;
  if (!scout->Next(&line)) {
    QUARRY_RETURN_IF_ERROR(scout->status());
    return MakeStatus(Code::kInvalidArgument, "{}: holds no rows", path);
  }
  const char separator = DetectSeparator(line);
  const std::vector<std::string_view> fields = SplitFields(line, separator);
  const uint64_t dim = fields.size();
  if (dim == 0) return MakeStatus(Code::kInvalidArgument, "{}: line 1 is empty", path);
  bool has_header = LooksLikeHeader(fields);
  const bool numbers = NumbersColumns(fields);
  if (row_count == 0 || numbers) {
    QUARRY_TRY(const uint64_t lines, CountLines(*scout, line));
    // Two columns, or one, may well be the first node's 0 and 1: then the number of nodes has to tell.
    has_header |= numbers && (row_count > 0 ? lines == row_count + 1 : dim > 2);
    if (row_count == 0) row_count = lines - (has_header ? 1 : 0);
  }
  if (has_header && numbers) LogInfo("{}: line 1 numbers the columns: it is taken for a header", path);
  QUARRY_TRY(auto lines, LineReader::Open(path));
  return std::unique_ptr<RowReader>(
      std::make_unique<TextRows>(std::move(lines), separator, dim, row_count, has_header));
}

}  // namespace quarry
