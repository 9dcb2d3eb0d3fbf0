// Byte sizes and shares as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// Parses "512MiB", "2GB" (GB = 1000^3, GiB = 1024^3), "4096", and "10%" of `whole_bytes`. Fractions such as
// "1.5GiB" are accepted. kUsage for anything else, for a negative size, and for one that overflows 64 bits.
Result<uint64_t> ParseBytes(std::string_view text, uint64_t whole_bytes);

// Parses "1M", "50k", "2.5M", "100" (decimal multiples: k, M, G). kUsage otherwise.
Result<uint64_t> ParseCount(std::string_view text);

// "1.50 GiB", "512 B": binary multiples, for people.
std::string FormatBytes(uint64_t bytes);

// "12.3 M", "1,024"-free short counts for people.
std::string FormatCount(double count);

constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr uint64_t RoundDown(uint64_t value, uint64_t multiple) { return value / multiple * multiple; }
constexpr uint64_t CeilDiv(uint64_t value, uint64_t divisor) { return (value + divisor - 1) / divisor; }

}  // namespace quarry
