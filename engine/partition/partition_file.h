// The sections of parts.qpp. Private to this room; docs/format.md "Partitioning".
#pragma once

#include <string_view>
#include <vector>

#include "quarry/partition/partition_directory.h"
#include "quarry/storage/data_file.h"

namespace quarry {

inline constexpr std::string_view kNewIdsSection = "new_ids";
inline constexpr std::string_view kOldIdsSection = "old_ids";
inline constexpr std::string_view kPartRowsSection = "rows";
inline constexpr std::string_view kPartLabelsSection = "labels";
inline constexpr std::string_view kPartSplitsSection = "splits";
inline constexpr std::string_view kBucketsSection = "buckets";

// Appends the directory's section.
Status WritePartitionDirectory(DataFileWriter& writer, const PartitionDirectory& directory);
// kUnsupported for another version, kCorruption when it does not fit together.
Result<PartitionDirectory> ReadPartitionDirectory(IoBackend& backend, const DataFile& data);

}  // namespace quarry
