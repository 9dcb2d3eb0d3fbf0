#include "quarry/base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace quarry {

size_t DecodeUtf8(std::string_view text, uint32_t& code_point) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) {
    code_point = lead;
    return 1;
  }
  // The least code point of each length: what a shorter sequence can say is no UTF-8.
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const size_t bytes = lead >= 0xf8 ? 0 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  code_point = lead & (0x7fU >> bytes);
  for (const char c : text.substr(1, bytes - 1)) {
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) return 0;
    code_point = code_point << 6 | (static_cast<unsigned char>(c) & 0x3f);
  }
  const bool surrogate = code_point >= 0xd800 && code_point < 0xe000;
  return code_point < kLeast[bytes] || code_point > 0x10ffff || surrogate ? 0 : bytes;
}

bool SteersTerminal(uint32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0) ||
         (code_point >= 0x2028 && code_point <= 0x202e) || (code_point >= 0x2066 && code_point <= 0x2069);
}

std::string Printable(std::string_view text, LineEnds line_ends) {
  const auto plain = [line_ends](char c) {
    return (c >= ' ' && c < 0x7f) || c == '\t' || (c == '\n' && line_ends == LineEnds::kKeep);
  };
  if (std::ranges::all_of(text, plain)) return std::string(text);
  std::string shown;
  shown.reserve(text.size() + 16);
  while (!text.empty()) {
    uint32_t code_point = 0;
    const size_t bytes = DecodeUtf8(text, code_point);
    if (bytes == 0) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (SteersTerminal(code_point) && !plain(text[0])) {
      shown += fmt::format("\\u{:04x}", code_point);
    } else {
      shown += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(1, bytes));
  }
  return shown;
}

}  // namespace quarry
