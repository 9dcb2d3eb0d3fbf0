// Files of a catalog that is not open. Private to this room.
#pragma once

#include <filesystem>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

inline constexpr std::string_view kTableSuffix = ".sst";

// Makes the folder `to` with the files of `from`. Tables are never changed: the same file will do.
Status CopyFiles(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace quarry
