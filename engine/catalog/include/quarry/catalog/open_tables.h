// How many of its tables an open catalog keeps open: what others who use up descriptors leave it.
#pragma once

#include <cstdint>

namespace quarry {

// A limit of the process's descriptors up to which they are few.
inline constexpr uint64_t kFewDescriptors = 256;
// Tables that stay open where they are few: the least that RocksDB takes.
inline constexpr int kTablesOpenOfFew = 10;
// Tables that stay open elsewhere.
inline constexpr int kTablesOpen = 54;

}  // namespace quarry
