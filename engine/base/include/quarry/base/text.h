// Text that came from data, on its way to a terminal: names, values, lines of files, what a client sent. It
// may hold bytes that steer the terminal, or show other text than is there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quarry {

enum class LineEnds : uint8_t { kEscape, kKeep };

// The text with what a terminal would obey escaped: controls (C0 but TAB, DEL, C1), the overrides and
// isolates of writing direction, and the line and paragraph separators as \u001b (which is also JSON's
// escape), bytes that are no UTF-8 as \xff. A backslash stays as it is: this is for people, and is not
// undone. `kKeep`: '\n' stays.
std::string Printable(std::string_view text, LineEnds line_ends = LineEnds::kEscape);

// Length in bytes of the UTF-8 sequence that `text` begins with, and its code point; 0 when it begins with
// none. REQUIRES: !text.empty()
size_t DecodeUtf8(std::string_view text, uint32_t& code_point);

// Code points that a terminal would obey.
bool SteersTerminal(uint32_t code_point);

}  // namespace quarry
