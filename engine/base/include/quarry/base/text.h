// Makes text from data (names, values, lines of files, words of a client) safe to print on a terminal. It may
// hold bytes that steer the terminal or make it show other text than is there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quarry {

enum class LineEnds : uint8_t { kEscape, kKeep };

// Returns the text with everything that a terminal would obey escaped: controls (C0 but TAB, DEL, C1), the
// overrides and isolates of writing direction, and the line and paragraph separators as \u001b (which is also
// JSON's escape), and bytes that are not UTF-8 as \xff. A backslash stays as it is: the result is for people
// and is never decoded. `kKeep`: '\n' stays.
std::string Printable(std::string_view text, LineEnds line_ends = LineEnds::kEscape);

// Length in bytes of the UTF-8 sequence that `text` begins with, and its code point; 0 when it begins with
// none. REQUIRES: !text.empty()
size_t DecodeUtf8(std::string_view text, uint32_t& code_point);

// Whether a terminal would obey this code point.
bool SteersTerminal(uint32_t code_point);

}  // namespace quarry
