#include "quarry/base/json.h"

#include <fmt/format.h>

#include <algorithm>

#include "quarry/base/text.h"

namespace quarry {

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    uint32_t code_point = 0;
    const size_t bytes = DecodeUtf8(text, code_point);
    if (bytes == 0) {
      json += "\\ufffd";
    } else if (code_point == '"' || code_point == '\\') {
      json += '\\';
      json += text[0];
    } else if (SteersTerminal(code_point)) {
      json += fmt::format("\\u{:04x}", code_point);
    } else {
      json += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(1, bytes));
  }
  return json + '"';
}

}  // namespace quarry
