// Batched packing (DiskGNN §5.2): the feature table is read once, front to back, in partitions that fit in
// memory; from each, every stream (the chunk of a batch, a run of a segment cache, the cache image) is given
// its next rows by large page-aligned writes. Threads take streams, so they share nothing that changes.
// Private to this room.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "quarry/format/node_types.h"
#include "quarry/format/types.h"
#include "quarry/io/backend.h"
#include "quarry/storage/deltas.h"
#include "quarry/storage/feature_table.h"
#include "record_file.h"

namespace quarry {

// Rows of ascending node ids, which go to one place of the file, row after row. Streams do not overlap; pages
// that several of them share are put together in memory.
struct PackStream {
  uint64_t record = 0;  // in the id file: an array of NodeId
  uint64_t first = 0;   // [first, first + count) of it
  uint64_t count = 0;
  uint64_t offset = 0;  // in the section of regions
};

// A file that rows go to.
struct PackTarget {
  const RecordFile* ids = nullptr;  // of its streams
  std::vector<PackStream> streams;
  const File* file = nullptr;
  uint64_t section_offset = 0;    // of its regions
  std::span<uint32_t> checksums;  // of its pages
};

// A table that rows come from.
struct PackSource {
  const FeatureTable* table = nullptr;
  const RowOverlay* newer = nullptr;        // put over the table's rows; null: nothing is newer
  uint64_t row_stride = 0;                  // what a row takes in the regions; row bytes, rounded up to 4
  std::span<const NodeTypes::Range> nodes;  // whose rows it has, ascending; empty: all nodes
};

struct PackOptions {
  uint64_t memory_bytes = 0;  // for partitions and write buffers; at least PackBytesMin
  unsigned threads = 1;
};

struct PackStats {
  double seconds = 0;
  double read_seconds = 0;  // the reading thread at work (reads overlap with writes)
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t partitions = 0;
};

uint64_t PackBytesMin(uint64_t row_bytes, uint64_t streams, unsigned threads);

// Writes the rows of all streams to their target's file at section_offset + stream.offset, what no stream fills of the
// pages that they touch zero, and the checksum of each page written to checksums[page of the section]. The tables are read
// once, however many targets there are, and their rows follow each other in a stream by the nodes' ids. Nodes of no source have
// no rows. `progress` gets rows of the tables done. kCorruption for a row that does not verify, kNoSpace, kIoError; what was
// written is then worthless.
Result<PackStats> PackRows(IoBackend& backend, std::span<const PackSource> sources,
                           std::span<const PackTarget> targets, const PackOptions& options,
                           const std::function<Status(uint64_t rows, uint64_t total)>& progress);

}  // namespace quarry
