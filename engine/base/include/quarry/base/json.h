// JSON text, for rooms that write a little of it and read none.
#pragma once

#include <string>
#include <string_view>

namespace quarry {

// `text` in quotes. Escaped is what JSON does not allow in them, and what would steer a terminal (text.h);
// what is no UTF-8 is replaced by U+FFFD.
std::string JsonString(std::string_view text);

}  // namespace quarry
