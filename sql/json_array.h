// JSON arrays of numbers, for arguments. Private to this room.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quarry/base/status.h"

namespace quarry::sql {

// The elements of `text`, "[1, 2.5]"; of floats null is NaN. kInvalidArgument names the byte at which it is
// something else, or a number that T does not hold.
template <typename T>
class JsonArray {
 public:
  static Result<std::vector<T>> Parse(std::string_view text) { return JsonArray(text).Run(); }

 private:
  explicit JsonArray(std::string_view text) : text_(text) {}

  Result<std::vector<T>> Run() {
    std::vector<T> values;
    if (!Take('[')) return Fault();
    for (bool first = true; !Take(']'); first = false) {
      if (!first && !Take(',')) return Fault();
      const std::optional<T> value = TakeNumber();
      if (!value) return Fault();
      values.push_back(*value);
    }
    SkipSpace();
    if (at_ != text_.size()) return Fault();
    return values;
  }

  void SkipSpace() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  bool Take(char wanted) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  std::optional<T> TakeNumber() {
    SkipSpace();
    const std::string_view rest = text_.substr(at_);
    if constexpr (std::is_floating_point_v<T>) {
      if (rest.starts_with("null")) {
        at_ += 4;
        return std::numeric_limits<T>::quiet_NaN();
      }
      // from_chars takes "inf" and "nan" as well.
      if (rest.find_first_of("-0123456789") != 0 || rest.starts_with("-i") || rest.starts_with("-n"))
        return {};
    }
    T value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc()) return {};
    at_ += static_cast<size_t>(end - rest.data());
    return value;
  }

  Status Fault() const {
    return MakeStatus(Code::kInvalidArgument, "byte {}: expected a JSON array of {} numbers", at_,
                      std::is_floating_point_v<T> ? "float32" : "whole");
  }

  const std::string_view text_;
  size_t at_ = 0;
};

// The inverse, of floats: at(i) for i < count, each as short as it can be and still the same number. JSON has
// no NaN and no infinity: they become null.
template <typename At>
std::string WriteJsonArray(size_t count, At&& at) {
  std::string text = "[";
  for (size_t i = 0; i < count; ++i) {
    const float value = at(i);
    if (i > 0) text += ',';
    text += std::isfinite(value) ? fmt::format("{}", value) : "null";
  }
  return text + "]";
}

}  // namespace quarry::sql
