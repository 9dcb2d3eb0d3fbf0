// Deadlines. Private to this library.
#pragma once

#include <algorithm>
#include <chrono>

namespace quarry::client {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// What is beyond a year is as good as never, and adds up without overflow.
inline Deadline DeadlineIn(double seconds) {
  constexpr double kYearSeconds = 365.0 * 24 * 3600;
  const std::chrono::duration<double> wait(std::clamp(seconds, 0.0, kYearSeconds));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(wait);
}

inline bool HasPassed(Deadline deadline) { return Clock::now() >= deadline; }

}  // namespace quarry::client
