#include "quarry/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "quarry/base/text.h"

namespace quarry {
namespace {

// Function-local so that no static constructor runs before main.
spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made =
        std::make_shared<spdlog::logger>("quarry", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("quarry: %^%l%$: %v");
    const char* level = std::getenv("QUARRY_LOG");
    made->set_level(level != nullptr ? spdlog::level::from_str(level) : spdlog::level::info);
    return made;
  }();
  return *logger;
}

}  // namespace

void LogLine(LogLevel level, std::string_view line) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  Logger().log(kLevels[static_cast<int>(level)], "{}", Printable(line));  // it may quote names
}

}  // namespace quarry
