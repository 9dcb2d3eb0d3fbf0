// JSON text, for rooms that write a little of it and read none.
#pragma once

#include <string>
#include <string_view>

namespace quarry {

// `text` in quotes, with what JSON does not allow in them escaped. Bytes beyond ASCII stay as they are.
std::string JsonString(std::string_view text);

}  // namespace quarry
