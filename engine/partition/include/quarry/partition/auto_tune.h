// Auto-tuning: how many parts to cut a graph into, how many of them to hold, and how many logical ones to make
// of them, from the graph's sizes, the memory and the device (Waleffe §5.4). Pure functions.
#pragma once

#include <cstdint>

#include "quarry/base/status.h"
#include "quarry/io/coalesce.h"
#include "quarry/partition/policy.h"

namespace quarry {

// A share of the device's sequential bandwidth that a read of one part or bucket should reach.
inline constexpr double kBandwidthShare = 0.9;

// The size of single reads that reach `share` of the device's bandwidth, by what the profile says a request
// costs; the nearest power of two. The paper takes the device's block of 4 KiB, which asks for thousands of
// parts and reads each at the price of a request. 256 KiB for the default profile. REQUIRES: 0 < share < 1.
uint64_t RequestBytesAt(const DeviceProfile& device, double share);

// What is partitioned. NO of the paper is node_count * row_bytes, and EO is edge_count * edge_bytes.
struct PartitionedSizes {
  uint64_t node_count = 0;
  uint64_t row_bytes = 0;  // with optimizer state and timestamp, where there are any; 0: topology alone
  uint64_t edge_count = 0;
  uint64_t edge_bytes = 8;  // of an edge in one of the two sorted lists that a buffer holds
};

struct TuneOptions {
  PartitionOrder order = PartitionOrder::kComet;
  uint64_t memory_bytes = 0;           // for parts and buckets
  uint64_t working_bytes = 0;          // F: what batches need of it
  uint64_t request_bytes = 256 << 10;  // D
  bool prefetch = true;                // the next step's parts are read into frames of their own
};

struct PartitionTuning {
  uint32_t parts = 0;         // p
  uint32_t buffer = 0;        // c
  uint32_t logical = 0;       // l
  uint64_t memory_bytes = 0;  // that buffer and prefetched parts take, with the working memory
};

// More parts than this make an index of buckets that is larger than it is worth.
inline constexpr uint32_t kPartsMax = 1024;

// What `buffer` parts of `parts` and their buckets take, all of one size; with `incoming` more that are
// prefetched, and the buckets between these and the parts that stay.
uint64_t PartitionBufferBytes(const PartitionedSizes& sizes, uint32_t parts, uint32_t buffer,
                              uint32_t incoming);

// p: the most parts whose smallest read is still D. c: the largest share of them that fits into the memory.
// l = 2 p / c, so that two logical parts are held. Parts are a multiple of c / 2, and of an odd number of
// logical ones for euler. Where not even two of so few parts fit, there are more, smaller ones.
// kOutOfBudget with the least that would do.
Result<PartitionTuning> TunePartitions(const PartitionedSizes& sizes, const TuneOptions& options);

}  // namespace quarry
