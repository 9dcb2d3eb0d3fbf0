// PlannedBlock: a mini-batch as a layout stores it: the block, and for every input node where its row will
// lie, decided at planning time, so that training looks nothing up.
//
// A row is in one of three places, and the block's local ids are numbered so that each is a contiguous range
// of every hop group:
//   cached    in a slot of the cache, ascending by slot
//   packed    in the batch's chunk, ascending by node id
//   segment   in the cache of the batch's segment, ascending by place there
// Rows of chunk and segment land in a *frame*: frame row r is row r of the chunk, then of the segment rows.
// After the batch, *admissions* copy frame rows into cache slots (Ginex's changesets).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/sampling/block.h"

namespace quarry {

class ByteWriter;

struct PlannedBlock {
  Block block;
  // By local id: a cache slot, or cache_slots + a frame row.
  std::vector<uint32_t> slots;
  uint32_t chunk_rows = 0;  // carried rows included, which the block does not use
  std::vector<uint32_t>
      segment_places;                   // frame row chunk_rows + i holds row segment_places[i] of the segment
  std::vector<NodeId> frame_nodes;      // by frame row
  std::vector<uint32_t> admitted_rows;  // frame rows, ascending
  std::vector<uint32_t> admitted_slots;  // where each goes
  uint64_t misses = 0;                   // input nodes that are not cached

  uint64_t memory_bytes() const;
};

// Only the rows of a block's frame.
struct BlockFrame {
  uint32_t chunk_rows = 0;
  std::vector<NodeId> nodes;             // by frame row
  std::vector<uint32_t> segment_places;  // places of frame rows chunk_rows + i
};

// Needs no block before it. The errors of BlockDecoder::Decode.
Status DecodeFrame(std::span<const std::byte> bytes, uint64_t node_count, BlockFrame& out);

// What is encoded: the batch in the trace's order.
struct BlockPlan {
  std::span<const NodeId> nodes;
  std::span<const uint32_t> hop_offsets;
  std::span<const uint32_t> indptr, indices;  // in positions of `nodes`
  std::span<const uint32_t> slots;            // by position: cache slot, or kNoSlot
  // By node: the place in the segment's cache, kNoSlot = in the chunk. Empty: no segment.
  std::span<const uint32_t> segment_places;
  struct Admission {
    uint32_t position = 0;
    uint32_t slot = 0;
  };
  std::span<const Admission> admitted;
  // Rows that the block does not use but that enter the cache after it; ascending by node, none of them
  // missed by the batch from its chunk.
  struct Carried {
    NodeId node = 0;
    uint32_t slot = 0;
  };
  std::span<const Carried> carried;
  uint64_t node_count = 0;
  // Low and high words of each edge's id, in the order of `indices`. Empty: the block does not say which edges it has.
  std::span<const uint32_t> edge_low = {}, edge_high = {};
  // The relation of each edge, in the same order. Empty: the block does not say of which relations its edges are.
  std::span<const uint32_t> relations = {};
};

// Encodes batches; keeps its scratch memory between calls. One thread.
class BlockEncoder {
 public:
  // Appends to `out`. Afterwards chunk_nodes() are the rows of the chunk, in order.
  void Encode(const BlockPlan& plan, std::vector<std::byte>& out);
  std::span<const NodeId> chunk_nodes() const { return chunk_nodes_; }
  // After Encode: the places of the block's segment rows, in order.
  std::span<const uint32_t> segment_places() const { return segment_places_; }
  uint32_t segment_rows() const { return static_cast<uint32_t>(segment_places_.size()); }

 private:
  std::vector<uint64_t> pairs_, scratch_;
  std::vector<uint32_t> local_;      // by position
  std::vector<uint32_t> frame_row_;  // by position; kNoSlot = cached
  std::vector<NodeId> chunk_nodes_;
  std::vector<uint32_t> segment_places_;
  std::vector<uint32_t> values_, tags_;
  struct Groups;
  void NumberCached(const BlockPlan& plan, Groups& groups);
  void NumberFrame(const BlockPlan& plan, Groups& groups);
  void WriteEdgeIds(const BlockPlan& plan, std::span<const uint32_t> old_of, ByteWriter& writer);
  // The words of edges, in the order of the neighbors.
  void WriteWords(const BlockPlan& plan, std::span<const uint32_t> old_of, std::span<const uint32_t> words,
                  uint32_t bits, ByteWriter& writer);
};

// Decodes batches in their order, which is needed because a cached row's node is known from its admission.
class BlockDecoder {
 public:
  // `start_nodes`: what the cache holds before the first batch, by slot. `edge_ids`: blocks say which edges they have, and
  // of which of so many relations these are (0: they do not).
  BlockDecoder(uint32_t cache_slots, uint64_t node_count, std::span<const NodeId> start_nodes,
               bool edge_ids = false, uint32_t relation_count = 0);
  // kCorruption says what does not fit (bytes that passed their checksum but were not written by this code).
  Status Decode(std::span<const std::byte> bytes, PlannedBlock& out);
  // Back to the first batch.
  void Restart();

 private:
  const uint32_t cache_slots_;
  const uint64_t node_count_;
  const std::span<const NodeId> start_nodes_;
  const bool edge_ids_;
  const uint32_t relation_count_;
  std::vector<NodeId> slot_nodes_;
  std::vector<uint32_t> values_, tags_;
};

}  // namespace quarry
