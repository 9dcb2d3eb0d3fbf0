// One-line notes on stderr about what a user should know but did not ask for (a fallback taken, a budget
// clamped). Thread-safe. The level comes from QUARRY_LOG (off, error, warn, info, debug); the default is
// info.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace quarry {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

void LogLine(LogLevel level, std::string_view line);

template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogWarn(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace quarry
