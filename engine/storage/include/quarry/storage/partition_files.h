// The file of a stored partitioning, as its record in the catalog has it. engine/partition knows what it
// holds; here it is only told where it is, for whoever verifies, copies or removes it. Pure functions.
//
//   partitions/NAME-<gen>/parts.qpp   parts, buckets of edges and the maps of nodes
//   partitions/NAME.building/         one that is being built, or whose build was interrupted
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "quarry/format/manifest.h"
#include "quarry/storage/layout_files.h"

namespace quarry {

inline constexpr std::string_view kPartitionsFolder = "partitions";
inline constexpr std::string_view kPartsFile = "parts.qpp";

// Relative to the database.
inline std::string PartitioningFolder(std::string_view name, uint64_t generation) {
  return fmt::format("{}/{}-{}", kPartitionsFolder, name, generation);
}
inline std::string PartitioningBuildingFolder(std::string_view name) {
  return fmt::format("{}/{}{}", kPartitionsFolder, name, kBuildingSuffix);
}
inline std::string PartsFileOf(const PartitioningRecord& record) {
  return fmt::format("{}/{}", record.directory, kPartsFile);
}

}  // namespace quarry
