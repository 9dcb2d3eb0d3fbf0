// Files of a catalog that is not open. Changed through the file system that RocksDB has, so that a test sees
// it all. Private to this room.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

inline constexpr std::string_view kTableSuffix = ".sst";

inline constexpr std::string_view kLogSuffix = ".log";

// Makes the folder `to` with those files of `from` that are wanted. Tables are never changed: the same file will do.
Status CopyFiles(const std::filesystem::path& from, const std::filesystem::path& to,
                 const std::function<bool(const std::filesystem::path&)>& wanted);
// With the folder itself, as far as it can be.
void RemoveFiles(const std::filesystem::path& folder);

}  // namespace quarry
