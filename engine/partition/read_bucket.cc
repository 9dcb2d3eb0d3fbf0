#include "quarry/partition/read_bucket.h"

#include <algorithm>

namespace quarry {

Result<EdgeBucket> ReadBucket(const StoredPartitioning& partitioning, IoBackend& backend, uint32_t source,
                              uint32_t destination, std::span<std::byte> pages) {
  pages = pages.first(partitioning.directory().bucket_bytes(source, destination));
  if (pages.empty()) return EdgeBucket();
  QUARRY_RETURN_IF_ERROR(backend.ReadAt(partitioning.BucketFile(source, destination),
                                        partitioning.BucketAt(source, destination), pages));
  QUARRY_RETURN_IF_ERROR(partitioning.VerifyBucket(source, destination, pages));
  return partitioning.View(source, destination, pages);
}

uint64_t LargestBucketBytes(const PartitionDirectory& directory) {
  uint64_t largest = 0;
  for (const uint64_t bytes : directory.BucketBytes()) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace quarry
