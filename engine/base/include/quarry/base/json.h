// JSON text, for rooms that write a little of it and read none.
#pragma once

#include <string>
#include <string_view>

namespace quarry {

// Returns `text` in quotes. Characters that JSON does not allow there, and those that would steer a terminal
// (text.h), are escaped; bytes that are not UTF-8 become U+FFFD.
std::string JsonString(std::string_view text);

}  // namespace quarry
