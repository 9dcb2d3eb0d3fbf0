// Lines and fields of text files, plain or gzip. Private to this room.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "byte_source.h"
#include "npy_reader.h"
#include "quarry/base/status.h"
#include "quarry/import/dataset.h"

namespace quarry {

// Lines in order, without their ends (LF or CRLF) and without a byte order mark. Holds a window of the file;
// a line that does not fit in it is an error.
class LineReader {
 public:
  static constexpr size_t kLineBytesMax = 2 << 20;
  static Result<std::unique_ptr<LineReader>> Open(const std::string& path);

  // False at the end and on an error: ask status(). `*line` is valid until the next call.
  bool Next(std::string_view* line);
  const Status& status() const { return status_; }

  // "edges.csv: line 18", of the line that Next returned last.
  std::string Position() const { return fmt::format("{}: line {}", path_, line_number_); }
  uint64_t line_number() const { return line_number_; }  // from 1
  const std::string& path() const { return path_; }
  uint64_t consumed_bytes() const { return source_->consumed_bytes(); }
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  LineReader() = default;
  bool Refill();
  std::string path_;
  std::unique_ptr<ByteSource> source_;
  uint64_t file_bytes_ = 0;
  std::vector<char> window_;
  size_t begin_ = 0;  // start of what has not been returned
  size_t end_ = 0;
  bool at_end_ = false;
  uint64_t line_number_ = 0;
  Status status_;
};

// `text` shortened for a message.
std::string Excerpt(std::string_view text);

// Trims blanks and one pair of double quotes.
std::string_view Trim(std::string_view field);

// True when the whole of `field` is an integer in int64; trimmed before.
bool ParseInteger(std::string_view field, int64_t* value);
// True for anything that from_chars takes as a number, "nan" and "inf" included; trimmed before.
bool ParseNumber(std::string_view field, double* value);
// The nearest float, by one rounding, so that what was written as a float reads back as the same.
bool ParseNumber(std::string_view field, float* value);

// A weight is a finite number, also as a float; trimmed before.
bool ParseWeight(std::string_view field, float* weight);
// REQUIRES: the line that was returned last has `field`.
Status NotAWeight(const LineReader& lines, std::string_view field);

// Two columns of integers, and perhaps one of weights; the separator (comma, semicolon, tab, blanks) and a
// header line are recognised; lines that start with '#' or '%' are comments.
Result<std::unique_ptr<EdgeReader>> OpenTextEdges(const std::string& path);
// One integer a line. Labels are counted first.
Result<std::unique_ptr<IntReader>> OpenTextInts(const std::string& path, IntRole role);
// Numbers, the same count on every line, as float32. `row_count` 0 = count the lines first.
Result<std::unique_ptr<RowReader>> OpenTextRows(const std::string& path, uint64_t row_count);

// Fields of a line, trimmed: at `separator`, or (' ') runs of blanks.
std::vector<std::string_view> SplitFields(std::string_view line, char separator);
// A header names its columns: no field is a number. "nan" is data gone wrong, not a name.
bool LooksLikeHeader(std::span<const std::string_view> fields);
// Or numbers them, as pandas does: 0, 1, 2, ...
bool NumbersColumns(std::span<const std::string_view> fields);

// The separator of a data line: the first of ',', ';', TAB that it holds, else ' ' (runs of blanks).
char DetectSeparator(std::string_view line);

}  // namespace quarry
