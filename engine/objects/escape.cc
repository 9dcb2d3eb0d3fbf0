#include "escape.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

namespace quarry {
namespace {

// The rest of `xml` behind the element, whose content goes to `content`; nothing where there is none.
std::optional<std::string_view> FindElement(std::string_view xml, std::string_view name,
                                            std::string_view& content) {
  for (size_t at = 0; (at = xml.find('<', at)) != std::string_view::npos; at++) {
    const std::string_view tag = xml.substr(at + 1);
    if (!tag.starts_with(name) || tag.size() == name.size()) continue;
    const char next = tag[name.size()];
    if (next != '>' && next != '/' && next != ' ') continue;
    const size_t end = tag.find('>');
    if (end == std::string_view::npos) return {};
    if (tag[end - 1] == '/') {
      content = {};
      return tag.substr(end + 1);
    }
    const std::string_view inner = tag.substr(end + 1);
    const std::string closing = "</" + std::string(name) + ">";
    const size_t close = inner.find(closing);
    if (close == std::string_view::npos) return {};
    content = inner.substr(0, close);
    return inner.substr(close + closing.size());
  }
  return {};
}

// As UTF-8; what is no code point is left out.
void AppendCodePoint(std::string_view digits, int base, std::string& out) {
  uint32_t point = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), point, base);
  if (error != std::errc() || end != digits.data() + digits.size() || point > 0x10ffff) return;
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xc0 | (point >> 6));
    out += static_cast<char>(0x80 | (point & 0x3f));
  } else {
    if (point < 0x10000) {
      out += static_cast<char>(0xe0 | (point >> 12));
    } else {
      out += static_cast<char>(0xf0 | (point >> 18));
      out += static_cast<char>(0x80 | ((point >> 12) & 0x3f));
    }
    out += static_cast<char>(0x80 | ((point >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (point & 0x3f));
  }
}

std::string Resolved(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, char>, 5> kEntities = {
      {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}}};
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    const size_t end = text[i] == '&' ? text.find(';', i) : std::string_view::npos;
    if (end == std::string_view::npos) {
      out += text[i];
      continue;
    }
    const std::string_view entity = text.substr(i + 1, end - i - 1);
    if (entity.starts_with("#x")) AppendCodePoint(entity.substr(2), 16, out);
    if (entity.starts_with("#") && !entity.starts_with("#x")) AppendCodePoint(entity.substr(1), 10, out);
    for (const auto& [name, character] : kEntities) {
      if (entity == name) out += character;
    }
    i = end;
  }
  return out;
}

}  // namespace

std::string PercentEncoded(std::string_view text, bool keep_slashes) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (keep_slashes && c == '/');
    if (plain) {
      out += c;
      continue;
    }
    const auto byte = static_cast<uint8_t>(c);
    out += '%';
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

std::optional<std::string> XmlText(std::string_view xml, std::string_view name) {
  std::string_view content;
  if (!FindElement(xml, name, content)) return {};
  return Resolved(content);
}

std::vector<std::string_view> XmlElements(std::string_view xml, std::string_view name) {
  std::vector<std::string_view> found;
  std::string_view content;
  for (auto rest = FindElement(xml, name, content); rest; rest = FindElement(*rest, name, content)) {
    found.push_back(content);
  }
  return found;
}

}  // namespace quarry
