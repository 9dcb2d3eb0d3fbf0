// LayoutEncoder: turns the simulated cache into the batches of a layout: what lies in the chunk, what in a
// segment cache, the encoded blocks, and where everything goes in the file. Private to this room.
//
//   AddStep* -> FinishSteps -> Encode (again with other segments) -> Streams, WriteBlocks
//
// Holds one batch, and while segments are encoded 4 bytes a node and a segment's nodes; the rest lies in
// files of the folder (steps, misses, encoded blocks, ids of packed rows).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layout_file.h"
#include "packer.h"
#include "quarry/cache/cache_simulator.h"
#include "quarry/layout/layout.h"
#include "quarry/layout/planned_block.h"
#include "quarry/layout/segment_reads.h"
#include "quarry/layout/segments.h"
#include "record_file.h"

namespace quarry {

// What the batches read of segment caches, over all batches.
struct SegmentReadCost {
  uint64_t bytes = 0;
  uint64_t requests = 0;
};

class LayoutEncoder {
 public:
  // `trace` outlives the encoder; the folder holds blocks.tmp of SampleTrace.
  static Result<std::unique_ptr<LayoutEncoder>> Make(IoBackend& backend, const std::string& folder,
                                                     const Trace& trace, uint64_t blocks_file_bytes,
                                                     const DatabaseId& database_id, uint64_t generation,
                                                     const RowLengths& rows, uint64_t gap_bytes_max);
  static uint64_t MemoryBytes(uint64_t node_count, const TraceSummary& trace, const RoadSpec& road);

  Status AddStep(const TraceBatch& nodes, const CacheStep& step);
  // `carried` rows are read with the last batch. Forgets the admissions of rows that leave the cache before
  // they are used: they would be copied for nothing.
  Status FinishSteps(std::vector<CacheSimulator::Carried> carried, bool cyclic);

  // Encodes all batches, in segments of `batches_per_segment` (0 = none); `image` is what the cache holds at
  // first.
  Status Encode(uint64_t batches_per_segment, const SegmentOptions& options, std::span<const NodeId> image,
                const std::function<Status(uint64_t batch)>& progress);

  // Gives back what encoding took by node. After the last Encode.
  void ReleaseWork();

  // Leaves the rows of chunks and image in the table: only blocks take room in the file then. After an Encode
  // without segments.
  void LeaveRowsInTable();

  // The misses of each batch, for the segment search. One thread; valid until Encode.
  MissReader miss_reader();

  // Results of the last Encode:
  const std::vector<BatchEntry>& entries() const { return entries_; }
  const std::vector<SegmentEntry>& segments() const { return segments_; }
  uint64_t batches_per_segment() const { return batches_per_segment_; }
  bool packed() const { return packed_; }
  uint64_t regions_bytes() const { return regions_bytes_; }
  uint64_t blocks_bytes() const { return blocks_bytes_; }  // as encoded, whole pages
  uint64_t chunk_bytes() const { return chunk_bytes_; }    // whole pages
  SegmentReadCost segment_reads() const { return segment_reads_; }
  const RecordFile& ids() const { return *ids_; }
  std::vector<PackStream> Streams() const;
  // Writes the blocks to their places in `file` and the checksums of their pages.
  Status WriteBlocks(const File& file, uint64_t section_offset, std::span<uint32_t> checksums) const;

 private:
  LayoutEncoder(IoBackend& backend, std::string folder, const Trace& trace, const RowLengths& rows,
                uint64_t gap_bytes_max)
      : backend_(backend),
        folder_(std::move(folder)),
        trace_(trace),
        node_count_(rows.node_count),
        row_bytes_(rows.row_bytes),
        row_stride_(rows.row_stride),
        places_of_rows_(rows.node_count, 0, rows.tables, rows.ranges),
        gap_bytes_max_(gap_bytes_max) {}
  Status PruneAdmissions(bool cyclic);
  Status BeginSegment(uint64_t segment, const SegmentOptions& options, RecordWriter& ids);
  Status EncodeBatch(uint64_t batch, TraceCursor& cursor, std::vector<std::byte>& out);
  void PlaceRegions();
  std::string Path(std::string_view file) const { return folder_ + "/" + std::string(file); }
  Result<std::unique_ptr<RecordFile>> Seal(RecordWriter& writer, std::string_view file) const;

  IoBackend& backend_;
  const std::string folder_;
  const Trace& trace_;
  const uint64_t node_count_;
  const uint64_t row_bytes_, row_stride_;
  const RowPlaces places_of_rows_;
  const uint64_t gap_bytes_max_;  // for reads from segment caches

  std::unique_ptr<RecordFile> blocks_;  // as sampled
  std::unique_ptr<RecordWriter> steps_writer_, misses_writer_;
  std::unique_ptr<RecordFile> steps_, misses_;
  std::unique_ptr<RecordFile> admissions_;  // useful ones in steps_, the last batch first
  std::vector<CacheSimulator::Carried> carried_;
  std::vector<uint64_t> pairs_, scratch_;
  std::vector<NodeId> miss_nodes_;

  uint64_t batches_per_segment_ = 0;
  std::vector<uint32_t> places_;             // by node, in the cache of the segment at hand
  std::vector<NodeId> placed_;               // nodes with a place, to be forgotten
  std::vector<std::vector<uint64_t>> runs_;  // by segment: run ends in its record
  BlockEncoder encoder_;
  std::unique_ptr<RecordFile> ids_, encoded_;
  std::vector<uint64_t> segment_records_, batch_records_;  // record numbers in ids_
  std::vector<BatchEntry> entries_;
  std::vector<SegmentEntry> segments_;
  SegmentReadCost segment_reads_;
  std::vector<ByteRange> ranges_;
  std::vector<MergedRead> reads_;
  // Rows of the image up to where each ascending piece of it ends, and the places that they take up to there.
  struct ImagePiece {
    uint64_t rows_end = 0, places_end = 0;
  };
  std::vector<ImagePiece> image_;
  bool packed_ = true;
  uint64_t regions_bytes_ = 0, blocks_bytes_ = 0, chunk_bytes_ = 0;
  IoBuffer blocks_buffer_, steps_buffer_, admissions_buffer_, misses_buffer_;
};

}  // namespace quarry
