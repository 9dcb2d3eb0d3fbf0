// The file VERSION of a database.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"

namespace quarry {

// Its next content, while it is replaced.
inline constexpr std::string_view kNewVersionFile = "VERSION.new";

std::string VersionText();  // as this Quarry writes it

// The version that the file says; kUnsupported for one that this Quarry does not read, kCorruption,
// kNotFound.
Result<uint32_t> ReadVersionFile(IoBackend& backend, const std::string& database_path);
// Puts the version of today into a database of an older one, whole or not at all.
Status WriteVersionFile(IoBackend& backend, const std::string& database_path);

// The first 64 bytes of a small or foreign file.
Result<std::string> ReadPrefix(IoBackend& backend, const std::string& path);

}  // namespace quarry
