#include "text_lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace quarry {

Result<std::unique_ptr<LineReader>> LineReader::Open(const std::string& path) {
  std::unique_ptr<LineReader> reader(new LineReader);
  reader->path_ = path;
  QUARRY_TRY(reader->file_bytes_, RegularFileBytes(path));
  QUARRY_TRY(reader->source_, OpenTextFile(path));
  // gzip of text seldom shrinks it more than thirtyfold; small files get a small window.
  reader->window_.resize(std::min<uint64_t>(kLineBytesMax, (reader->file_bytes_ + 128) * 32));
  return reader;
}

bool LineReader::Refill() {
  std::memmove(window_.data(), window_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == window_.size()) {
    if (window_.size() < kLineBytesMax) {
      window_.resize(std::min(kLineBytesMax, 2 * window_.size()));
    } else {
      status_ =
          MakeStatus(Code::kInvalidArgument, "{}: line {} is longer than {} bytes; is this a text file?",
                     path_, line_number_ + 1, kLineBytesMax);
      return false;
    }
  }
  auto got = source_->Read(std::as_writable_bytes(std::span(window_)).subspan(end_));
  if (!got.ok()) {
    status_ = got.status();
    return false;
  }
  at_end_ = *got < window_.size() - end_;
  if (line_number_ == 0 && end_ == 0 && std::string_view(window_.data(), *got).starts_with("\xef\xbb\xbf"))
    begin_ = 3;
  end_ += *got;
  return true;
}

bool LineReader::Next(std::string_view* line) {
  if (!status_.ok()) return false;
  size_t scanned = begin_;
  while (true) {
    const char* start = window_.data() + scanned;
    const auto* newline = static_cast<const char*>(std::memchr(start, '\n', end_ - scanned));
    if (newline == nullptr && !at_end_) {
      const size_t kept = end_ - begin_;
      if (!Refill()) return false;
      scanned = line_number_ == 0 && kept == 0 ? begin_ : kept;
      continue;
    }
    if (newline == nullptr && begin_ == end_) return false;
    const size_t stop = newline != nullptr ? static_cast<size_t>(newline - window_.data()) : end_;
    *line = std::string_view(window_.data() + begin_, stop - begin_);
    if (line->ends_with('\r')) line->remove_suffix(1);
    begin_ = newline != nullptr ? stop + 1 : stop;
    line_number_++;
    return true;
  }
}

std::string Excerpt(std::string_view text) {
  constexpr size_t kCharsMax = 60;
  size_t bytes = std::min(text.size(), kCharsMax);
  while (bytes > 0 && bytes < text.size() && (text[bytes] & 0xc0) == 0x80) --bytes;  // not within a character
  std::string shown;
  for (const char c : text.substr(0, bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 && c != '\t' ? '?' : c;
  }
  return bytes < text.size() ? shown + "..." : shown;
}

std::string_view Trim(std::string_view field) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t first = field.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  field = field.substr(first, field.find_last_not_of(kBlanks) - first + 1);
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"')
    return field.substr(1, field.size() - 2);
  return field;
}

bool ParseInteger(std::string_view field, int64_t* value) {
  const char* end = field.data() + field.size();
  const auto [rest, error] = std::from_chars(field.data(), end, *value);
  return error == std::errc() && rest == end && !field.empty();
}

bool ParseNumber(std::string_view field, double* value) {
  const char* end = field.data() + field.size();
  const auto [rest, error] = std::from_chars(field.data(), end, *value);
  return error == std::errc() && rest == end && !field.empty();
}

bool ParseNumber(std::string_view field, float* value) {
  const char* end = field.data() + field.size();
  const auto [rest, error] = std::from_chars(field.data(), end, *value);
  if (error == std::errc() && rest == end && !field.empty()) return true;
  double wide = 0;  // beyond the range of a float: infinite, or zero
  if (!ParseNumber(field, &wide)) return false;
  *value = static_cast<float>(wide);
  return true;
}

bool ParseWeight(std::string_view field, float* weight) {
  return ParseNumber(field, weight) && std::isfinite(*weight);
}

Status NotAWeight(const LineReader& lines, std::string_view field) {
  return MakeStatus(Code::kInvalidArgument, "{}: '{}' is not a weight (a finite number)", lines.Position(),
                    Excerpt(field));
}

std::vector<std::string_view> SplitFields(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  for (size_t at = 0; at <= line.size();) {
    if (separator == ' ') at = std::min(line.find_first_not_of(" \t", at), line.size());
    if (separator == ' ' && at == line.size()) break;
    const size_t end =
        std::min(separator == ' ' ? line.find_first_of(" \t", at) : line.find(separator, at), line.size());
    fields.push_back(Trim(line.substr(at, end - at)));
    at = end + 1;
  }
  return fields;
}

bool LooksLikeHeader(std::span<const std::string_view> fields) {
  double number = 0;
  const auto is_name = [&number](std::string_view field) {
    return !field.empty() && !ParseNumber(field, &number);
  };
  return !fields.empty() && std::ranges::all_of(fields, is_name);
}

bool NumbersColumns(std::span<const std::string_view> fields) {
  for (size_t i = 0; i < fields.size(); i++) {
    int64_t number = -1;
    if (!ParseInteger(fields[i], &number) || number != static_cast<int64_t>(i)) return false;
  }
  return !fields.empty();
}

char DetectSeparator(std::string_view line) {
  for (const char separator : {',', ';', '\t'}) {
    if (line.find(separator) != std::string_view::npos) return separator;
  }
  return ' ';
}

}  // namespace quarry
