// The fields of StreamStats, for whoever sums or stores all of them.
#pragma once

#include <cstdint>

#include "quarry/pipeline/batch_stream.h"

namespace quarry {

// In the order in which training states hold them (docs/format.md).
inline constexpr uint64_t StreamStats::*kStreamCounts[] = {&StreamStats::batches,
                                                           &StreamStats::sampled_edges,
                                                           &StreamStats::input_nodes,
                                                           &StreamStats::feature_bytes_read,
                                                           &StreamStats::topology_bytes_read,
                                                           &StreamStats::bytes_useful,
                                                           &StreamStats::read_requests,
                                                           &StreamStats::cache_lookups,
                                                           &StreamStats::cache_hits};
inline constexpr double StreamStats::*kStreamSeconds[] = {
    &StreamStats::sample_seconds,  &StreamStats::sample_wait_seconds,
    &StreamStats::extract_seconds, &StreamStats::extract_wait_seconds,
    &StreamStats::update_seconds,  &StreamStats::consumer_wait_seconds};
// Which no training state has: training here reads batches in memory.
inline constexpr uint64_t StreamStats::*kDeviceCounts[] = {&StreamStats::device_bytes,
                                                           &StreamStats::device_hits};
static_assert(sizeof(StreamStats) == (sizeof(kStreamCounts) + sizeof(kDeviceCounts)) /
                                             sizeof(*kStreamCounts) * sizeof(uint64_t) +
                                         sizeof(kStreamSeconds) / sizeof(*kStreamSeconds) * sizeof(double),
              "every field is in one of the lists");

inline void AddStats(const StreamStats& more, StreamStats& sum) {
  for (const auto count : kStreamCounts) sum.*count += more.*count;
  for (const auto count : kDeviceCounts) sum.*count += more.*count;
  for (const auto seconds : kStreamSeconds) sum.*seconds += more.*seconds;
}

}  // namespace quarry
