#include "quarry/format/wire_sql.h"

#include <cstring>
#include <optional>

namespace quarry::wire {
namespace {

template <typename T>
void AppendNumber(T number, std::vector<std::byte>& out) {
  const size_t at = out.size();
  out.resize(at + sizeof(number));
  std::memcpy(&out[at], &number, sizeof(number));
}

void AppendBytes(std::span<const std::byte> bytes, std::vector<std::byte>& out) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

SqlValueView ViewOf(const SqlValue& value) {
  return std::visit(
      [](const auto& is) -> SqlValueView {
        using T = std::decay_t<decltype(is)>;
        if constexpr (std::is_same_v<T, std::string>) return std::string_view(is);
        if constexpr (std::is_same_v<T, std::vector<std::byte>>) return std::span<const std::byte>(is);
        if constexpr (!std::is_same_v<T, std::string> && !std::is_same_v<T, std::vector<std::byte>>)
          return is;
      },
      value);
}

SqlValue ValueOf(const SqlValueView& view) {
  if (const auto* text = std::get_if<std::string_view>(&view)) return std::string(*text);
  if (const auto* blob = std::get_if<std::span<const std::byte>>(&view)) {
    return std::vector<std::byte>(blob->begin(), blob->end());
  }
  if (const auto* integer = std::get_if<int64_t>(&view)) return *integer;
  if (const auto* real = std::get_if<double>(&view)) return *real;
  return std::monostate();
}

// Takes parts of values from the front of what is there.
class Parts {
 public:
  explicit Parts(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t left() const { return bytes_.size(); }

  template <typename T>
  bool Take(T& number) {
    if (bytes_.size() < sizeof(number)) return false;
    std::memcpy(&number, bytes_.data(), sizeof(number));
    bytes_ = bytes_.subspan(sizeof(number));
    return true;
  }
  bool Take(size_t count, std::span<const std::byte>& part) {
    if (bytes_.size() < count) return false;
    part = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
};

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The next value; false when it is not there whole.
Result<bool> ReadValue(Parts& parts, SqlValueView& value, std::string_view& text) {
  uint8_t type = 0;
  if (!parts.Take(type)) return false;
  std::span<const std::byte> bytes;
  switch (static_cast<SqlType>(type)) {
    case SqlType::kNull:
      value = std::monostate();
      return true;
    case SqlType::kInteger:
      return parts.Take(value.emplace<int64_t>());
    case SqlType::kReal: {
      uint8_t count = 0;
      if (!parts.Take(value.emplace<double>()) || !parts.Take(count) || !parts.Take(count, bytes))
        return false;
      text = TextOf(bytes);
      return true;
    }
    case SqlType::kText:
    case SqlType::kBlob: {
      uint32_t count = 0;
      if (!parts.Take(count)) return false;
      if (count > kSqlRowBytesMax) {
        return MakeStatus(Code::kCorruption, "a value of {} bytes; the limit is {}", count, kSqlRowBytesMax);
      }
      if (!parts.Take(count, bytes)) return false;
      if (static_cast<SqlType>(type) == SqlType::kBlob) {
        value = bytes;
      } else {
        value = TextOf(bytes);
      }
      return true;
    }
  }
  return MakeStatus(Code::kCorruption, "a value of type {}, which there is not", type);
}

}  // namespace

void AppendSqlHead(const SqlValueView& value, std::string_view text, std::vector<std::byte>& out) {
  out.push_back(static_cast<std::byte>(value.index()));
  if (const auto* integer = std::get_if<int64_t>(&value)) return AppendNumber(*integer, out);
  if (const auto* real = std::get_if<double>(&value)) {
    AppendNumber(*real, out);
    AppendNumber(static_cast<uint8_t>(text.size()), out);
    return AppendBytes(std::as_bytes(std::span(text)), out);
  }
  if (const auto* words = std::get_if<std::string_view>(&value)) {
    return AppendNumber(static_cast<uint32_t>(words->size()), out);
  }
  if (const auto* blob = std::get_if<std::span<const std::byte>>(&value)) {
    return AppendNumber(static_cast<uint32_t>(blob->size()), out);
  }
}

std::vector<std::byte> SqlValueBytes(std::span<const SqlValue> values) {
  std::vector<std::byte> bytes;
  for (const SqlValue& value : values) {
    const SqlValueView view = ViewOf(value);
    AppendSqlHead(view, "", bytes);
    if (const auto* text = std::get_if<std::string_view>(&view)) {
      AppendBytes(std::as_bytes(std::span(*text)), bytes);
    } else if (const auto* blob = std::get_if<std::span<const std::byte>>(&view)) {
      AppendBytes(*blob, bytes);
    }
  }
  return bytes;
}

Result<std::vector<SqlValue>> ReadSqlValues(std::span<const std::byte> bytes, uint32_t count) {
  std::vector<SqlValue> values;
  Parts parts(bytes);
  for (uint32_t i = 0; i < count; ++i) {
    SqlValueView view;
    std::string_view text;
    const Result<bool> whole = ReadValue(parts, view, text);
    if (!whole.ok() || !*whole) {
      return MakeStatus(Code::kInvalidArgument, "parameter {}: {}", i + 1,
                        whole.ok() ? "its bytes are cut short" : whole.status().message());
    }
    values.push_back(ValueOf(view));
  }
  if (parts.left() == 0) return values;
  return MakeStatus(Code::kInvalidArgument, "{} bytes behind the last of {} parameters", parts.left(), count);
}

void SqlRowReader::Add(std::span<const std::byte> page) {
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(next_));
  next_ = 0;
  AppendBytes(page, bytes_);
}

Result<bool> SqlRowReader::Next() {
  const std::span<const std::byte> left = std::span(bytes_).subspan(next_);
  if (cells_.empty() && left.empty()) return false;
  if (cells_.empty()) return Status(Code::kCorruption, "rows of a statement that has none");
  Parts parts(left);
  for (Cell& cell : cells_) {
    QUARRY_TRY(const bool whole, ReadValue(parts, cell.value, cell.text));
    if (whole) continue;
    if (left.size() <= kSqlRowBytesMax) return false;
    return MakeStatus(Code::kCorruption, "a row of more than {} bytes", kSqlRowBytesMax);
  }
  next_ = bytes_.size() - parts.left();
  return true;
}

}  // namespace quarry::wire
