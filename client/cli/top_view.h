// What `quarry top` shows: a server's status as text for a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "quarry/format/wire_status.h"

namespace quarry::cli {

// A server at one moment.
struct TopState {
  wire::ServerStatus status;
  double seconds = 0;  // on the monotonic clock
};

struct TopOptions {
  bool color = false;
  size_t rows_max = SIZE_MAX;
  size_t columns_max = SIZE_MAX;  // columns are left out, the least telling first, until lines fit
};

// Rates are of the time since `before`; without it, none are shown. Every line ends with a line feed.
std::string TopText(const TopState& now, const TopState* before, const TopOptions& options);

}  // namespace quarry::cli
