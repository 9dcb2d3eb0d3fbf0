#include "layout_encoder.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/radix_sort.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

// A record of AddStep.
struct Step {
  explicit Step(std::span<const std::byte> bytes) {
    uint32_t count = 0;
    std::memcpy(&count, bytes.data(), sizeof(count));
    const std::byte* const pairs = bytes.data() + sizeof(count);
    admitted = {reinterpret_cast<const Admission*>(pairs), count};
    bytes = bytes.subspan(sizeof(count) + count * sizeof(Admission));
    slots = {reinterpret_cast<const uint32_t*>(bytes.data()), bytes.size() / sizeof(uint32_t)};
  }
  std::span<const Admission> admitted;
  std::span<const uint32_t> slots;
};

std::span<const uint32_t> Words(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint32_t*>(bytes.data()), bytes.size() / sizeof(uint32_t)};
}

}  // namespace

Result<std::unique_ptr<LayoutEncoder>> LayoutEncoder::Make(IoBackend& backend, const std::string& folder,
                                                           const Trace& trace, uint64_t blocks_file_bytes,
                                                           const DatabaseId& database_id, uint64_t generation,
                                                           const RowLengths& rows, uint64_t gap_bytes_max) {
  std::unique_ptr<LayoutEncoder> encoder(new LayoutEncoder(backend, folder, trace, rows, gap_bytes_max));
  QUARRY_TRY(encoder->blocks_, RecordFile::Open(backend, encoder->Path("blocks.tmp"), database_id, generation,
                                                blocks_file_bytes));
  QUARRY_TRY(encoder->steps_writer_, RecordWriter::Create(backend, encoder->Path("plan.tmp")));
  QUARRY_TRY(encoder->misses_writer_, RecordWriter::Create(backend, encoder->Path("misses.tmp")));
  return encoder;
}

uint64_t LayoutEncoder::MemoryBytes(uint64_t node_count, const TraceSummary& trace, const RoadSpec& road) {
  constexpr uint64_t kBytesPerNode = 60;  // positions, pairs with scratch, slots, ids, encoded
  constexpr uint64_t kBytesPerEdge = 16, kBytesPerEdgeId = 16, kBytesPerRelation = 8;
  // Places by node, and the counts with which segments are built (segments.h).
  return 2 * node_count * sizeof(uint32_t) + trace.batch_nodes_max * kBytesPerNode +
         trace.batch_edges_max * (kBytesPerEdge + (road.edge_ids ? kBytesPerEdgeId : 0) +
                                  (road.relation_fanouts.empty() ? 0 : kBytesPerRelation)) +
         32 * kMiB;
}

void LayoutEncoder::ReleaseWork() {
  places_ = {};
  placed_ = {};
  pairs_ = scratch_ = {};
  miss_nodes_ = {};
  encoder_ = BlockEncoder();
}

Result<std::unique_ptr<RecordFile>> LayoutEncoder::Seal(RecordWriter& writer, std::string_view file) const {
  QUARRY_TRY(const uint64_t bytes, writer.Finish(kScratchId, kScratchGeneration));
  return RecordFile::Open(backend_, Path(file), kScratchId, kScratchGeneration, bytes);
}

// The record of a step: its admissions (count, then position and slot of each), then the slots.
Status LayoutEncoder::AddStep(const TraceBatch& nodes, const CacheStep& step) {
  const auto admissions = static_cast<uint32_t>(step.admitted.size());
  static_assert(sizeof(Admission) == 2 * sizeof(uint32_t));
  QUARRY_RETURN_IF_ERROR(steps_writer_->Append(
      {std::as_bytes(std::span(&admissions, 1)), BytesOf(step.admitted), BytesOf(step.slots)}));
  pairs_.clear();
  for (size_t p = 0; p < nodes.nodes.size(); ++p) {
    if (step.slots[p] == kNoSlot) pairs_.push_back(uint64_t{nodes.nodes[p]} << 32);
  }
  RadixSortByKey(pairs_, node_count_, scratch_);
  miss_nodes_.clear();
  for (const uint64_t pair : pairs_) miss_nodes_.push_back(static_cast<NodeId>(pair >> 32));
  return misses_writer_->Append({BytesOf(miss_nodes_)});
}

Status LayoutEncoder::FinishSteps(std::vector<CacheSimulator::Carried> carried, bool cyclic) {
  carried_ = std::move(carried);
  QUARRY_TRY(steps_, Seal(*steps_writer_, "plan.tmp"));
  QUARRY_TRY(misses_, Seal(*misses_writer_, "misses.tmp"));
  steps_writer_.reset();
  misses_writer_.reset();
  return PruneAdmissions(cyclic);
}

// Backwards over the steps: an admission is of use when the node's next occurrence is a hit. A cycle's last
// occurrences are followed by its first ones, so a round before finds those.
Status LayoutEncoder::PruneAdmissions(bool cyclic) {
  QUARRY_TRY(const std::unique_ptr<RecordWriter> writer, RecordWriter::Create(backend_, Path("admit.tmp")));
  std::vector<bool> next_is_hit(node_count_);
  TraceCursor cursor(trace_);
  std::vector<Admission> kept;
  for (int round = cyclic ? 0 : 1; round < 2; ++round) {
    for (uint64_t batch = trace_.batch_count(); batch-- > 0;) {
      QUARRY_TRY(const TraceBatch* const nodes, cursor.Read(batch));
      QUARRY_TRY(const std::span<const std::byte> bytes, steps_->Read(batch, steps_buffer_));
      const Step step(bytes);
      if (round == 1) {
        kept.clear();
        for (const Admission& admission : step.admitted) {
          if (next_is_hit[nodes->nodes[admission.position]]) kept.push_back(admission);
        }
        QUARRY_RETURN_IF_ERROR(writer->Append({BytesOf(kept)}));
      }
      for (size_t p = 0; p < nodes->nodes.size(); ++p) {
        next_is_hit[nodes->nodes[p]] = step.slots[p] != kNoSlot;
      }
    }
  }
  std::erase_if(carried_, [&](const CacheSimulator::Carried& c) { return !next_is_hit[c.node]; });
  QUARRY_TRY(admissions_, Seal(*writer, "admit.tmp"));
  return Status::Ok();
}

MissReader LayoutEncoder::miss_reader() {
  return [this](uint64_t batch) { return ReadArray<NodeId>(*misses_, batch, misses_buffer_); };
}

// Builds the segment's cache, notes its ids and gives its nodes their places.
Status LayoutEncoder::BeginSegment(uint64_t segment, const SegmentOptions& options, RecordWriter& ids) {
  const uint64_t first = segment * batches_per_segment_;
  const uint64_t count = std::min(batches_per_segment_, trace_.batch_count() - first);
  QUARRY_TRY(const SegmentCache cache, BuildSegmentCache(miss_reader(), first, count, options));
  places_.resize(node_count_, kNoSlot);
  for (const NodeId node : placed_) places_[node] = kNoSlot;
  placed_ = cache.nodes;
  for (size_t i = 0; i < placed_.size(); ++i) places_[placed_[i]] = static_cast<uint32_t>(i);
  segment_records_.push_back(1 + segment_records_.size() + batch_records_.size());
  segments_.push_back({0, placed_.size()});
  runs_.push_back(cache.runs);
  return ids.Append({BytesOf(placed_)});
}

Status LayoutEncoder::EncodeBatch(uint64_t batch, TraceCursor& cursor, std::vector<std::byte>& out) {
  QUARRY_TRY(const TraceBatch* const nodes, cursor.Read(batch));
  QUARRY_TRY(const std::span<const std::byte> block_bytes, blocks_->Read(batch, blocks_buffer_));
  QUARRY_TRY(const std::span<const std::byte> step_bytes, steps_->Read(batch, steps_buffer_));
  const std::span<const uint32_t> block = Words(block_bytes);
  const uint32_t targets = block[0];
  const uint32_t edges = block[1 + uint64_t{targets}];
  const std::span<const uint32_t> of_edges = block.subspan(2 + uint64_t{targets});
  // The neighbors; low words, then high ones, of edges' ids; relations: there may be either of these, or both.
  const uint64_t arrays = edges == 0 ? 1 : of_edges.size() / edges;
  const bool edge_ids = arrays > 2, relations = arrays == 2 || arrays == 4;
  const std::span<const uint32_t> slots = Step(step_bytes).slots;
  QUARRY_TRY(const std::span<const Admission> useful,
             ReadArray<Admission>(*admissions_, trace_.batch_count() - 1 - batch, admissions_buffer_));
  std::vector<BlockPlan::Admission> admitted;
  for (const Admission& admission : useful) admitted.push_back({admission.position, admission.slot});

  std::vector<BlockPlan::Carried> carried;
  if (batch + 1 == trace_.batch_count() && !carried_.empty()) {
    // What entered after this batch and made way for a carried row again does not enter.
    std::vector<bool> taken(1 + std::ranges::max(carried_, {}, &CacheSimulator::Carried::slot).slot);
    for (const CacheSimulator::Carried& c : carried_) taken[c.slot] = true;
    std::erase_if(admitted,
                  [&](const BlockPlan::Admission& a) { return a.slot < taken.size() && taken[a.slot]; });
    // Carried rows that the batch misses anyway are admitted from there.
    std::vector<uint32_t> slot_of(node_count_, kNoSlot);
    for (const CacheSimulator::Carried& c : carried_) slot_of[c.node] = c.slot;
    for (uint32_t p = 0; p < nodes->nodes.size(); ++p) {
      const NodeId node = nodes->nodes[p];
      if (slots[p] == kNoSlot && slot_of[node] != kNoSlot) {
        admitted.push_back({p, std::exchange(slot_of[node], kNoSlot)});
      }
    }
    for (const CacheSimulator::Carried& c : carried_) {
      if (slot_of[c.node] != kNoSlot) carried.push_back({c.node, c.slot});
    }
  }
  out.clear();
  encoder_.Encode({.nodes = nodes->nodes,
                   .hop_offsets = nodes->hop_offsets,
                   .indptr = block.subspan(1, targets + 1),
                   .indices = of_edges.first(edges),
                   .slots = slots,
                   .segment_places = batches_per_segment_ > 0 ? std::span<const uint32_t>(places_)
                                                              : std::span<const uint32_t>(),
                   .admitted = admitted,
                   .carried = carried,
                   .node_count = node_count_,
                   .edge_low = of_edges.subspan(edges, edge_ids ? edges : 0),
                   .edge_high = of_edges.subspan(edge_ids ? 2 * edges : edges, edge_ids ? edges : 0),
                   .relations = of_edges.last(relations ? edges : 0)},
                  out);
  miss_nodes_.clear();
  for (size_t p = 0; p < slots.size(); ++p) {
    const NodeId node = nodes->nodes[p];
    if (slots[p] == kNoSlot && places_of_rows_.Of(node) > 0) miss_nodes_.push_back(node);
  }
  for (const BlockPlan::Carried& each : carried) miss_nodes_.push_back(each.node);
  entries_.push_back({.block_bytes = out.size(),
                      .chunk_rows = encoder_.chunk_nodes().size(),
                      .segment_rows = encoder_.segment_rows(),
                      .segment = segments_.empty() ? 0 : segments_.size() - 1,
                      .nodes = nodes->nodes.size(),
                      .edges = edges,
                      .misses = miss_nodes_.size(),
                      .chunk_bytes = places_of_rows_.Sum(encoder_.chunk_nodes()) * row_stride_,
                      .useful_bytes = places_of_rows_.StoredBytes(miss_nodes_, row_bytes_)});
  if (encoder_.segment_rows() > 0) {
    reads_.clear();
    PlanSegmentReads(0, row_stride_, encoder_.segment_places(), gap_bytes_max_, ranges_, reads_);
    segment_reads_.requests += reads_.size();
    for (const MergedRead& read : reads_) segment_reads_.bytes += read.bytes;
  }
  return Status::Ok();
}

Status LayoutEncoder::Encode(uint64_t batches_per_segment, const SegmentOptions& options,
                             std::span<const NodeId> image,
                             const std::function<Status(uint64_t batch)>& progress) {
  batches_per_segment_ = batches_per_segment;
  packed_ = true;
  entries_.clear();
  segment_reads_ = {};
  segments_.clear();
  runs_.clear();
  segment_records_.clear();
  batch_records_.clear();
  ids_.reset();
  encoded_.reset();
  QUARRY_RETURN_IF_ERROR(RemoveTree(backend_, Path("ids.tmp")));
  QUARRY_RETURN_IF_ERROR(RemoveTree(backend_, Path("encoded.tmp")));
  QUARRY_TRY(const std::unique_ptr<RecordWriter> ids, RecordWriter::Create(backend_, Path("ids.tmp")));
  QUARRY_TRY(const std::unique_ptr<RecordWriter> encoded,
             RecordWriter::Create(backend_, Path("encoded.tmp")));
  QUARRY_RETURN_IF_ERROR(ids->Append({std::as_bytes(image)}));
  TraceCursor cursor(trace_);
  std::vector<std::byte> bytes;
  for (uint64_t batch = 0; batch < trace_.batch_count(); ++batch) {
    if (batches_per_segment > 0 && batch % batches_per_segment == 0) {
      QUARRY_RETURN_IF_ERROR(BeginSegment(batch / batches_per_segment, options, *ids));
    }
    QUARRY_RETURN_IF_ERROR(EncodeBatch(batch, cursor, bytes));
    batch_records_.push_back(1 + segment_records_.size() + batch_records_.size());
    QUARRY_RETURN_IF_ERROR(ids->Append({std::as_bytes(encoder_.chunk_nodes())}));
    QUARRY_RETURN_IF_ERROR(encoded->Append({bytes}));
    if (progress) QUARRY_RETURN_IF_ERROR(progress(batch + 1));
  }
  QUARRY_TRY(ids_, Seal(*ids, "ids.tmp"));
  QUARRY_TRY(encoded_, Seal(*encoded, "encoded.tmp"));
  // It ascends within each table's part of it, and so in the whole where one table's nodes come behind another's.
  image_.clear();
  for (std::span<const NodeId> left = image; !left.empty();) {
    const auto rows = static_cast<size_t>(std::ranges::is_sorted_until(left) - left.begin());
    const ImagePiece before = image_.empty() ? ImagePiece() : image_.back();
    image_.push_back({before.rows_end + rows, before.places_end + places_of_rows_.Sum(left.first(rows))});
    left = left.subspan(rows);
  }
  PlaceRegions();
  return Status::Ok();
}

void LayoutEncoder::LeaveRowsInTable() {
  packed_ = false;
  PlaceRegions();
}

// Image, segment caches, then the batches, each from a page on.
void LayoutEncoder::PlaceRegions() {
  blocks_bytes_ = chunk_bytes_ = 0;
  const uint64_t image_places = image_.empty() ? 0 : image_.back().places_end;
  uint64_t offset = packed_ ? RoundUp(image_places * row_stride_, kPageBytes) : 0;
  for (SegmentEntry& segment : segments_) {
    segment.offset = offset;
    offset += RoundUp(segment.rows * row_stride_, kPageBytes);
  }
  for (BatchEntry& entry : entries_) {
    entry.offset = offset;
    // A batch's chunk lies right behind its block, so one sequential read brings both.
    const uint64_t block_bytes = RoundUp(entry.block_bytes, kPageBytes);
    const uint64_t chunk_bytes = packed_ ? RoundUp(entry.chunk_bytes, kPageBytes) : 0;
    blocks_bytes_ += block_bytes;
    chunk_bytes_ += chunk_bytes;
    offset += block_bytes + chunk_bytes;
  }
  regions_bytes_ = offset;
}

std::vector<PackStream> LayoutEncoder::Streams() const {
  std::vector<PackStream> streams;
  if (!packed_) return streams;
  ImagePiece before;
  for (const ImagePiece& piece : image_) {  // rows of a stream ascend by node
    streams.push_back(
        {0, before.rows_end, piece.rows_end - before.rows_end, before.places_end * row_stride_});
    before = piece;
  }
  for (size_t s = 0; s < segments_.size(); ++s) {
    for (size_t run = 0; run + 1 < runs_[s].size(); ++run) {
      const uint64_t first = runs_[s][run];
      streams.push_back(
          {segment_records_[s], first, runs_[s][run + 1] - first, segments_[s].offset + first * row_stride_});
    }
  }
  for (size_t b = 0; b < entries_.size(); ++b) {
    streams.push_back({batch_records_[b], 0, entries_[b].chunk_rows,
                       entries_[b].offset + RoundUp(entries_[b].block_bytes, kPageBytes)});
  }
  return streams;
}

Status LayoutEncoder::WriteBlocks(const File& file, uint64_t section_offset,
                                  std::span<uint32_t> checksums) const {
  IoBuffer buffer;
  for (size_t b = 0; b < entries_.size(); ++b) {
    QUARRY_TRY(const std::span<const std::byte> bytes, encoded_->Read(b, buffer));
    const uint64_t whole = RoundUp(bytes.size(), kPageBytes);
    // The record starts at a page of the buffer and its page is padded with zeros in the file already.
    const std::span<const std::byte> pages(bytes.data(), whole);
    for (uint64_t at = 0; at < whole; at += kPageBytes) {
      const uint64_t page = (entries_[b].offset + at) / kPageBytes;
      checksums[page] = CellChecksum(pages.subspan(at, kPageBytes), page);
    }
    QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file, section_offset + entries_[b].offset, pages));
  }
  return Status::Ok();
}

}  // namespace quarry
