// One GET of a page of a server that is trusted, such as `quarry serve`'s.
#pragma once

#include <string>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry::cli {

// The body at `path` of "http://HOST:PORT" (what follows the port is ignored). kUsage for other addresses,
// kNotFound when nobody answers there, kIoError for an answer other than 200, that is too long, or takes more
// than five seconds for a piece.
Result<std::string> HttpGet(std::string_view url, std::string_view path);

}  // namespace quarry::cli
