// The files of a stored partitioning, as its record in the catalog has them. engine/partition knows what it
// holds; here it is only told where it is, for whoever verifies, copies or removes it. Pure functions.
//
//   partitions/NAME-<gen>/parts.qpp     parts, buckets of edges and the maps of nodes
//                         buckets.qpp   the buckets whose edges changed since parts.qpp was written, which is linked then
//   partitions/NAME.building/           one that is being built, or whose build was interrupted
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "quarry/format/manifest.h"
#include "quarry/storage/layout_files.h"

namespace quarry {

inline constexpr std::string_view kPartitionsFolder = "partitions";
inline constexpr std::string_view kPartsFile = "parts.qpp";
inline constexpr std::string_view kBucketsFile = "buckets.qpp";

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
inline std::string BucketsFileOf(const PartitioningRecord& record) {
  return fmt::format("{}/{}", record.directory, kBucketsFile);
}
// parts.qpp, then buckets.qpp where there is one.
inline std::vector<LayoutFile> FilesOf(const PartitioningRecord& record) {
  std::vector<LayoutFile> files = {
      {.path = PartsFileOf(record),
       .kind = FileKind::kPartitioning,
       .generation = record.parts_generation == 0 ? record.generation : record.parts_generation,
       .bytes = record.file_bytes}};
  if (record.buckets_bytes > 0) {
    files.push_back({.path = BucketsFileOf(record),
                     .kind = FileKind::kPartitioning,
                     .generation = record.generation,
                     .bytes = record.buckets_bytes});
  }
  return files;
}

}  // namespace quarry
