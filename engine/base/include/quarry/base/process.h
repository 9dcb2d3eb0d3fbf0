// Memory limits, peak memory, processors and time of this process. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace quarry {

// The largest resident set so far (VmHWM), in bytes; 0 when /proc does not tell.
uint64_t PeakRssBytes();

// The resident set now (VmRSS), in bytes; 0 when /proc does not tell.
uint64_t CurrentRssBytes();

// The least of physical memory and the limits of the memory cgroups (v1 or v2) that hold this process.
uint64_t MemoryLimitBytes();

// Logical processors that this process may run on (affinity), at most its ProcessorQuota; at least 1.
unsigned ProcessorCount();

// The time of day as RFC 3339 in UTC, to the second: "2025-01-31T12:00:00Z".
std::string UtcNow();

// Seconds of a monotonic clock, for durations.
double MonotonicSeconds();

}  // namespace quarry
