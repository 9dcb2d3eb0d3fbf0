// What a layout file says about its regions: where each of them lies, and what the plan promises. Values;
// docs/format.md "Layout" has them as bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/types.h"
#include "quarry/layout/row_places.h"

namespace quarry {

// Where one batch lies: offsets in the section of regions.
struct BatchEntry {
  uint64_t offset = 0;  // start of the block, page-aligned; the chunk follows at the next page
  uint64_t block_bytes = 0;
  uint64_t chunk_rows = 0;  // in the chunk, or in the table when rows are not packed
  uint64_t segment_rows = 0;
  uint64_t segment = 0;  // whose cache it reads; meaningless without segment rows
  uint64_t nodes = 0;    // input nodes
  uint64_t edges = 0;
  uint64_t misses = 0;  // rows that are not in the cache
  // The chunk's rows as far apart as they lie there, and those that are not in the cache as they are stored.
  uint64_t chunk_bytes = 0;
  uint64_t useful_bytes = 0;
};

struct SegmentEntry {
  uint64_t offset = 0;
  uint64_t rows = 0;
};

struct LayoutDirectory {
  // A row of the one table, as it is stored, and from one to the next; both are a place's where there are several tables, which
  // row_places.h counts in.
  uint64_t row_bytes = 0;
  uint64_t row_stride = 0;
  // What a graph with types has; both are empty where there is one table.
  std::vector<RowForm> tables;
  std::vector<RowRange> ranges;
  uint64_t node_count = 0;
  uint64_t cache_slots = 0;
  bool packed = true;  // else chunks and cache image are read from the table
  uint64_t batches_per_epoch = 0;
  uint64_t seed_hash = 0;   // HashSeeds of the nodes that an epoch trains on
  uint64_t image_rows = 0;  // slot i of the image holds start_nodes[i]; it lies at offset 0
  uint64_t regions_bytes = 0;
  std::vector<BatchEntry> batches;
  std::vector<SegmentEntry> segments;
  std::vector<NodeId> start_nodes;
  std::vector<uint32_t> wrap;  // by slot of the image: the slot of the same row after the last batch

  uint64_t chunk_bytes(const BatchEntry& batch) const {  // in the file, whole pages
    return packed ? RoundUp(batch.chunk_bytes, kPageBytes) : 0;
  }
  RowPlaces places() const { return {node_count, cache_slots, tables, ranges}; }
  uint64_t image_bytes() const {
    return packed ? RoundUp(places().ImagePlaces(image_rows) * row_stride, kPageBytes) : 0;
  }

  // Maxima over the batches, for sizing buffers.
  uint64_t frame_rows_max() const;
  uint64_t frame_bytes_max() const;  // of these rows
  uint64_t nodes_max() const;
  uint64_t edges_max() const;
  uint64_t block_bytes_max() const;
};

// Pages of the regions that lie in one file, one after the other.
struct Extent {
  uint64_t first_page = 0;  // page of the regions
  uint64_t page_count = 0;
  uint64_t file = 0;       // 0: the layout's own; i: the record's base i - 1
  uint64_t file_page = 0;  // page of that file's section of regions
};

}  // namespace quarry
