// The sections of parts.qpp, and of buckets.qpp, which has the last two. Private to this room; docs/format.md "Partitioning".
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
inline constexpr std::string_view kRenewedSection = "renewed";

// Appends the directory's section.
Status WritePartitionDirectory(DataFileWriter& writer, const PartitionDirectory& directory);
// kUnsupported for another version, kCorruption when it does not fit together.
Result<PartitionDirectory> ReadPartitionDirectory(IoBackend& backend, const DataFile& data);

// Appends the section of buckets.qpp that says which of the directory's buckets are in it, by their numbers.
Status WriteRenewedBuckets(DataFileWriter& writer, const PartitionDirectory& directory,
                           const std::vector<bool>& renewed);
// Puts these into the directory of parts.qpp, says which they are, and returns the bytes of their section. kCorruption.
Result<uint64_t> TakeRenewedBuckets(IoBackend& backend, const DataFile& data, PartitionDirectory& directory,
                                    std::vector<bool>& renewed);

}  // namespace quarry
