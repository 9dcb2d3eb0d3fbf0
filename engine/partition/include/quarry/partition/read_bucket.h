// Buckets of a stored partitioning one at a time, for those who go through all of them and hold none. Those that are
// held while training goes on are a PartitionBuffer's (partition_buffer.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/partition/edge_bucket.h"
#include "quarry/partition/partition_directory.h"
#include "quarry/partition/stored_partitioning.h"

namespace quarry {

// Reads a bucket into `pages`, which have room for it, and verifies it. Empty without edges.
Result<EdgeBucket> ReadBucket(const StoredPartitioning& partitioning, IoBackend& backend, uint32_t source,
                              uint32_t destination, std::span<std::byte> pages);
// The largest bucket's pages.
uint64_t LargestBucketBytes(const PartitionDirectory& directory);

}  // namespace quarry
