// What `quarry top` shows: a server's counters as text for a terminal, or as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/format/wire_responses.h"

namespace quarry::cli {

// A session or a stream, by the fields that the server told of it.
struct TopItem {
  std::map<std::string, double, std::less<>> fields;
  std::string road, group;  // a stream's

  double Of(std::string_view field) const;  // 0 when the server does not tell
};

// A server at one moment.
class TopState {
 public:
  // As the `stats` request answers: session_ID_FIELD and stream_ID_FIELD among other names.
  static TopState FromCounters(const std::vector<wire::Counter>& counters, double seconds);

  double seconds = 0;  // on a monotonic clock
  std::map<std::string, double> counters;
  std::map<uint64_t, TopItem> sessions, streams;
};

struct TopOptions {
  bool color = false;
  size_t rows_max = SIZE_MAX;
};

// Rates are of the time since `before`; without it, none are shown. Every line ends with a line feed.
std::string TopText(const TopState& now, const TopState* before, const TopOptions& options);
nlohmann::ordered_json TopJson(const TopState& state);

}  // namespace quarry::cli
