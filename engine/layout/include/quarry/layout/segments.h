// The segmented disk cache (DiskGNN §5.1): when packed chunks outgrow the disk budget, rows that miss more
// than once within a segment (a run of mini-batches) are stored once, in the segment's cache, and read from
// there by all its batches: less space for some read amplification.
//
// Rows of a segment cache are ordered by MinHash (Algorithm 1): each of k hash functions permutes the
// segment's batches, a row's key is the tuple of its least hash values over the batches that miss it, and
// equal keys, ordered by node id, form a *run*. Rows that the same batches need lie together.
//
// The size of a segment is found by one-dimensional search over the size alone, as in Algorithm 2: the
// smallest segments that fit the space read least, as a rule. All segments are of one size but for the last.
// Where the paper scales the space of the first segment, which may overrun the budget, here the rows of the
// whole are known exactly for every size from one pass over the misses: a miss needs no row when its segment
// missed the node before, so the batches between a node's successive misses tell at which sizes it does.
//
// The functions keep no state; any thread may call them whose `misses` may be called there. They return the
// errors of `misses`. Beside what they return they hold, per node of the graph, about 3 bits (4 bytes in
// SearchSegmentSize), and 20 + 4k bytes per node of one segment's cache.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/types.h"

namespace quarry {

// The misses of one batch: unique node ids below node_count, ascending. Valid until the next call.
using MissReader = std::function<Result<std::span<const NodeId>>(uint64_t batch)>;

struct SegmentOptions {
  uint64_t node_count = 0;
  uint64_t batch_count = 0;
  uint64_t row_bytes = 0;  // distance of two rows in chunk and cache
  uint64_t page_bytes = 4096;
  uint64_t gap_bytes_max = 0;  // between pages; gaps up to this are read through (0: touched pages alone)
  // With 2, as in the paper, rows that look alike to both functions but are needed by different batches share
  // a bucket. On the benchmark's trace 8 functions bring the amplification at three times the feature bytes
  // from 1.15 to 1.00, for 1.5 s more of planning.
  uint32_t hash_functions = 8;  // k; 0 = no reordering: rows by node id
  uint64_t seed = 0;
};

// One segment's division of rows.
struct SegmentCache {
  std::vector<NodeId> nodes;   // nodes of the cache, in the order of the file
  std::vector<uint64_t> runs;  // [run count + 1] offsets in nodes: each run is ascending
};

// The cache of the segment of batches [first, first + count): the nodes that at least two of them miss.
// Depends on the misses, `first`, `count`, hash_functions and seed alone. Reads each batch's misses twice.
Result<SegmentCache> BuildSegmentCache(const MissReader& misses, uint64_t first, uint64_t count,
                                       const SegmentOptions& options);

// What building a segment cache of `rows` rows holds: the nodes, their hash values and the sort, and three
// bits a node.
uint64_t SegmentCacheBytes(uint64_t rows, const SegmentOptions& options);

// What a configuration costs, summed over an epoch.
struct SegmentCost {
  uint64_t disk_bytes = 0;    // chunks and segment caches, each padded to pages
  uint64_t useful_bytes = 0;  // missing rows
  uint64_t read_bytes = 0;    // padded chunks, and pages of segment caches with the gaps that are bridged
  double amplification() const {
    return useful_bytes == 0 ? 1.0 : static_cast<double>(read_bytes) / static_cast<double>(useful_bytes);
  }
};

// Exactly, by building every segment. 0 (or 1) batches per segment: chunks alone. Reads each batch's misses
// three times.
Result<SegmentCost> MeasureSegments(const MissReader& misses, uint64_t batches_per_segment,
                                    const SegmentOptions& options);

struct SegmentSearch {
  uint64_t batches_per_segment = 0;  // 0 = no segment caches are needed: chunks alone fit
  SegmentCost estimate;  // for the whole: read_bytes scaled from the first segment, the others exact
};

// The smallest segment with which the whole takes at most `disk_bytes`, as MeasureSegments counts it: a size
// whose rows fit is verified with its padding before it is returned. kNoSpace, naming the least space that
// would do, when no size fits. Reads each batch's misses three times; twice more per size whose rows fit and
// padding does not, which are few (padding is under a page per batch and segment); and those of the first
// segment three times more, for the amplification.
//
// 98 batches of 270 thousand misses of 10 million nodes, held in memory: 0.2 s when segments of 6 batches
// fit, 0.4 s at 32 and 1.3 s at 84, on one core.
Result<SegmentSearch> SearchSegmentSize(const MissReader& misses, uint64_t disk_bytes,
                                        const SegmentOptions& options);

}  // namespace quarry
