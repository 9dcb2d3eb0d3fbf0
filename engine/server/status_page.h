// The status page: one HTML text that loads nothing but /status.json.
#pragma once

#include <string_view>

namespace quarry {

extern const std::string_view kStatusPage;

}  // namespace quarry
