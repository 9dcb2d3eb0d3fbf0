// How many of its tables an open catalog keeps open: what others who use up descriptors leave it.
#pragma once

#include <cstdint>

namespace quarry {

inline constexpr uint64_t kFewDescriptors = 256;  // up to this limit of the process's descriptors,
inline constexpr int kTablesOpenOfFew = 10;       // this many, and else
inline constexpr int kTablesOpen = 54;

}  // namespace quarry
