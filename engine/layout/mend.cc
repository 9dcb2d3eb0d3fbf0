#include "mend.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/cache/cache_simulator.h"
#include "quarry/layout/segment_reads.h"
#include "quarry/storage/layout_files.h"
#include "trace_source.h"

namespace quarry {
namespace {

constexpr std::string_view kDrawnFile = "drawn.tmp", kDrawnBlocksFile = "blocks.tmp",
                           kMendedFile = "mended.tmp";
constexpr uint64_t kRowStagingBytes = 4 * kMiB;

uint32_t FirstWord(std::span<const std::byte> bytes) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof(word));
  return word;
}

}  // namespace

Result<std::unique_ptr<Mend>> Mend::Make(Store& store, MemoryBudget& budget, const Layout& layout,
                                         const LayoutSpec& spec, const LayoutPlace& place,
                                         const ChangedSeeds& changed, bool lists_in_memory,
                                         const ProgressFunction& progress) {
  std::unique_ptr<Mend> mend(new Mend(store, budget, layout, spec, place, changed));
  QUARRY_RETURN_IF_ERROR(mend->Sample(lists_in_memory, progress));
  QUARRY_RETURN_IF_ERROR(mend->Encode(progress));
  mend->PlaceRegions();
  return mend;
}

Status Mend::Sample(bool lists_in_memory, const ProgressFunction& progress) {
  const ScopedSpan span("sample touched batches");
  QUARRY_TRY(const std::unique_ptr<TraceSource> source,
             TraceSource::Make(store_, budget_, spec_, lists_in_memory));
  QUARRY_TRY(const TraceSpec spec, source->SpecOf(spec_.share));
  if (source->seed_hash() != layout_.directory().seed_hash ||
      spec.batch_count() != layout_.directory().batches.size()) {
    return MakeStatus(Code::kUnsupported, "other nodes are trained on");
  }
  const DatabaseId id = store_.manifest()->database_id;
  QUARRY_TRY(drawn_summary_,
             SampleSome(source->neighbors(), spec, changed_.batches, store_.backend(), Path(kDrawnFile),
                        Path(kDrawnBlocksFile), id, place_.generation, [&](uint64_t batches) {
                          return progress ? progress("sampling", batches, changed_.batches.size())
                                          : Status::Ok();
                        }));
  QUARRY_TRY(drawn_, RecordFile::Open(store_.backend(), Path(kDrawnFile), id, place_.generation,
                                      drawn_summary_.trace_bytes));
  QUARRY_TRY(blocks_, RecordFile::Open(store_.backend(), Path(kDrawnBlocksFile), id, place_.generation,
                                       drawn_summary_.blocks_bytes));
  return Status::Ok();
}

Status Mend::ReadOldBlock(uint64_t batch, std::span<std::byte> pages) const {
  return layout_.ReadPages(store_.backend(), layout_.directory().batches[batch].offset, pages);
}

// Goes through all blocks, since only these tell what the cache holds when a batch comes.
Status Mend::Encode(const ProgressFunction& progress) {
  const ScopedSpan span("plan touched batches");
  const LayoutDirectory& old = layout_.directory();
  directory_ = old;
  directory_.node_count = spec_.snapshot->FindTable(spec_.road.feature_table)->row_count;
  const uint64_t nodes_max = std::max<uint64_t>(old.nodes_max(), drawn_summary_.batch_nodes_max);
  const uint64_t edges_max = std::max<uint64_t>(old.edges_max(), drawn_summary_.batch_edges_max);
  const uint64_t block_bytes = std::max(kPageBytes, RoundUp(old.block_bytes_max(), kPageBytes));
  constexpr uint64_t kBytesPerNode = 100, kBytesPerEdge = 28;  // old block and new, and what encoding takes
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget_.Reserve((old.segments.empty() ? 1 : 2) * directory_.node_count * sizeof(uint32_t) +
                                 2 * old.cache_slots * sizeof(NodeId) + nodes_max * kBytesPerNode +
                                 edges_max * kBytesPerEdge + IoBuffer::MappedBytes(block_bytes) + 8 * kMiB,
                             "planning touched batches"));
  QUARRY_TRY(encoded_writer_, RecordWriter::Create(store_.backend(), Path(kMendedFile)));
  QUARRY_TRY(const IoBuffer pages, IoBuffer::Allocate(block_bytes));
  BlockDecoder decoder(static_cast<uint32_t>(old.cache_slots), old.node_count, old.start_nodes);
  std::vector<NodeId> slot_nodes(old.cache_slots, kNoNode);
  std::vector<uint32_t> slot_of(directory_.node_count, kNoSlot);
  const auto hold = [&](uint32_t slot, NodeId node) {
    if (const NodeId before = slot_nodes[slot]; before != kNoNode && slot_of[before] == slot) {
      slot_of[before] = kNoSlot;
    }
    slot_nodes[slot] = node;
    slot_of[node] = slot;
  };
  for (uint32_t slot = 0; slot < old.start_nodes.size(); ++slot) {
    if (changed_.image_lasts[slot]) hold(slot, old.start_nodes[slot]);
  }
  if (!old.segments.empty()) segment_places_.assign(directory_.node_count, kNoSlot);
  QUARRY_TRY(const std::unique_ptr<Trace> drawn,
             Trace::Open(store_.backend(), Path(kDrawnFile), store_.manifest()->database_id,
                         place_.generation, drawn_summary_.trace_bytes));
  TraceCursor cursor(*drawn);
  PlannedBlock planned;
  size_t number = 0;
  for (uint64_t batch = 0; batch < old.batches.size(); ++batch) {
    const BatchEntry& entry = old.batches[batch];
    const std::span<std::byte> bytes = pages.span().first(RoundUp(entry.block_bytes, kPageBytes));
    QUARRY_RETURN_IF_ERROR(ReadOldBlock(batch, bytes));
    if (const Status decoded = decoder.Decode(bytes.first(entry.block_bytes), planned); !decoded.ok()) {
      return MakeStatus(decoded.code(), "{}: batch {}: {}", layout_.file().path(), batch, decoded.message());
    }
    if (number < changed_.batches.size() && changed_.batches[number] == batch) {
      QUARRY_TRY(const TraceBatch* const sample, cursor.Read(number));
      QUARRY_RETURN_IF_ERROR(EncodeBatch(number++, *sample, planned, slot_of));
    } else {
      QUARRY_RETURN_IF_ERROR(AddSegmentReads(planned.segment_places));
    }
    for (size_t i = 0; i < planned.admitted_rows.size(); ++i) {
      hold(planned.admitted_slots[i], planned.frame_nodes[planned.admitted_rows[i]]);
    }
    if (progress) QUARRY_RETURN_IF_ERROR(progress("planning", batch + 1, old.batches.size()));
  }
  QUARRY_TRY(const uint64_t encoded_bytes, encoded_writer_->Finish(kScratchId, kScratchGeneration));
  encoded_writer_.reset();
  segment_places_ = {};
  encoder_ = BlockEncoder();
  QUARRY_TRY(encoded_, RecordFile::Open(store_.backend(), Path(kMendedFile), kScratchId, kScratchGeneration,
                                        encoded_bytes));
  return Status::Ok();
}

// Fits the new sample to what the old batch found in the cache and left there.
Status Mend::EncodeBatch(uint64_t number, const TraceBatch& drawn, const PlannedBlock& old,
                         std::span<const uint32_t> slot_of) {
  const uint64_t batch = changed_.batches[number];
  QUARRY_TRY(const std::span<const std::byte> block_bytes, blocks_->Read(number, blocks_buffer_));
  const uint32_t targets = FirstWord(block_bytes);
  const std::span<const uint32_t> words(reinterpret_cast<const uint32_t*>(block_bytes.data()),
                                        block_bytes.size() / sizeof(uint32_t));
  // Nodes that enter the cache behind the batch, ascending. What the batch itself has of them is read with it.
  std::vector<BlockPlan::Carried> entering;
  for (size_t i = 0; i < old.admitted_rows.size(); ++i) {
    entering.push_back({old.frame_nodes[old.admitted_rows[i]], old.admitted_slots[i]});
  }
  std::ranges::sort(entering, {}, &BlockPlan::Carried::node);
  std::vector<bool> used(entering.size());
  std::vector<uint32_t> slots;
  std::vector<BlockPlan::Admission> admitted;
  for (uint32_t position = 0; position < drawn.nodes.size(); ++position) {
    const NodeId node = drawn.nodes[position];
    auto entry = std::ranges::lower_bound(entering, node, {}, &BlockPlan::Carried::node);
    const auto enters = [&] { return entry != entering.end() && entry->node == node; };
    slots.push_back(enters() ? kNoSlot : slot_of[node]);
    for (; enters(); ++entry) {
      admitted.push_back({position, entry->slot});
      used[static_cast<size_t>(entry - entering.begin())] = true;
    }
  }
  std::vector<BlockPlan::Carried> carried;
  for (size_t i = 0; i < entering.size(); ++i) {
    if (!used[i]) carried.push_back(entering[i]);
  }
  for (size_t i = 0; i < old.segment_places.size(); ++i) {
    segment_places_[old.frame_nodes[old.chunk_rows + i]] = old.segment_places[i];
  }
  bytes_.clear();
  encoder_.Encode({.nodes = drawn.nodes,
                   .hop_offsets = drawn.hop_offsets,
                   .indptr = words.subspan(1, targets + 1),
                   .indices = words.subspan(2 + uint64_t{targets}),
                   .slots = slots,
                   .segment_places = segment_places_,
                   .admitted = admitted,
                   .carried = carried,
                   .node_count = directory_.node_count},
                  bytes_);
  for (size_t i = 0; i < old.segment_places.size(); ++i) {
    segment_places_[old.frame_nodes[old.chunk_rows + i]] = kNoSlot;
  }
  const auto misses = static_cast<uint64_t>(std::count(slots.begin(), slots.end(), kNoSlot));
  BatchEntry& entry = directory_.batches[batch];
  old_accesses_ += old.block.nodes.size();
  old_hits_ += old.block.nodes.size() - old.misses;
  new_accesses_ += slots.size();
  new_hits_ += slots.size() - misses;
  entry = {.block_bytes = bytes_.size(),
           .chunk_rows = encoder_.chunk_nodes().size(),
           .segment_rows = encoder_.segment_rows(),
           .segment = entry.segment,
           .nodes = slots.size(),
           .edges = words.size() - 2 - targets,
           .misses = misses + carried.size(),
           .chunk_bytes = encoder_.chunk_nodes().size() * directory_.row_stride,
           .useful_bytes = (misses + carried.size()) * directory_.row_bytes};
  QUARRY_RETURN_IF_ERROR(AddSegmentReads(encoder_.segment_places()));
  return encoded_writer_->Append({bytes_});
}

Status Mend::AddSegmentReads(std::span<const uint32_t> places) {
  if (places.empty()) return Status::Ok();
  std::vector<ByteRange> ranges;
  std::vector<MergedRead> reads;
  PlanSegmentReads(0, directory_.row_stride, places, ProfileOf(*store_.manifest()).GapBytesMax(), ranges,
                   reads);
  segment_requests_ += reads.size();
  for (const MergedRead& read : reads) segment_bytes_ += read.bytes;
  return Status::Ok();
}

void Mend::AddPart(uint64_t first_page, uint64_t page_count, uint64_t old_page) {
  if (page_count == 0) return;
  if (!parts_.empty() && old_page != RegionPart::kNew && parts_.back().old_page != RegionPart::kNew &&
      parts_.back().old_page + parts_.back().page_count == old_page) {
    parts_.back().page_count += page_count;
  } else {
    parts_.push_back({first_page, page_count, old_page});
  }
}

// Image and segment caches stay where they are, at the beginning; batches keep their order.
void Mend::PlaceRegions() {
  const LayoutDirectory& old = layout_.directory();
  uint64_t page = old.batches.front().offset / kPageBytes;
  AddPart(0, page, 0);
  auto touched = changed_.batches.begin();
  for (uint64_t batch = 0; batch < old.batches.size(); ++batch) {
    const bool mended = touched != changed_.batches.end() && *touched == batch;
    if (mended) ++touched;
    directory_.batches[batch].offset = page * kPageBytes;
    const uint64_t pages = RegionBytes(directory_, batch) / kPageBytes;
    AddPart(page, pages, mended ? RegionPart::kNew : old.batches[batch].offset / kPageBytes);
    page += pages;
  }
  directory_.regions_bytes = page * kPageBytes;
}

Status Mend::MovePlaces(const RowOverlay& newer, FoundRows& found) const {
  FoundRows moved;
  auto place = found.places.begin();
  size_t number = 0;
  IoBuffer buffer;
  BlockFrame frame;
  for (const RegionPart& part : parts_) {
    if (part.old_page != RegionPart::kNew) {
      const uint64_t begin = part.old_page * kPageBytes, end = begin + part.page_count * kPageBytes;
      while (place != found.places.end() && place->offset < begin) ++place;
      for (; place != found.places.end() && place->offset < end; ++place) {
        const uint64_t offset = place->offset - begin + part.first_page * kPageBytes;
        QUARRY_RETURN_IF_ERROR(moved.Add(budget_, {offset, place->row}));
      }
      continue;
    }
    // Mended batches that follow each other are parts of their own.
    const BatchEntry& entry = directory_.batches[changed_.batches[number]];
    QUARRY_TRY(const std::span<const std::byte> block, encoded_->Read(number++, buffer));
    if (!directory_.packed || newer.empty()) continue;
    QUARRY_RETURN_IF_ERROR(DecodeFrame(block, directory_.node_count, frame));
    const uint64_t chunk = entry.offset + RoundUp(entry.block_bytes, kPageBytes);
    for (uint64_t row = 0; row < frame.chunk_rows; ++row) {
      if (!newer.Touched(frame.nodes[row])) continue;
      QUARRY_RETURN_IF_ERROR(moved.Add(budget_, {chunk + row * directory_.row_stride, frame.nodes[row]}));
    }
  }
  found = std::move(moved);
  return Status::Ok();
}

Status Mend::WriteTrace() {
  const ScopedSpan span("write the trace");
  const LayoutRecord& record = layout_.record();
  const DatabaseId id = store_.manifest()->database_id;
  QUARRY_TRY(
      const std::unique_ptr<RecordFile> old,
      RecordFile::Open(store_.backend(), fmt::format("{}/{}/{}", store_.path(), record.directory, kTraceFile),
                       id, record.trace_generation, record.trace_bytes));
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget_.Reserve(2 * old->resident_bytes(), "the trace of a layout"));
  QUARRY_TRY(const std::unique_ptr<RecordWriter> writer,
             RecordWriter::Create(store_.backend(), Path(kTraceFile)));
  IoBuffer buffer;
  size_t number = 0;
  for (uint64_t batch = 0; batch < old->size(); ++batch) {
    const bool mended = number < changed_.batches.size() && changed_.batches[number] == batch;
    QUARRY_TRY(const std::span<const std::byte> bytes,
               mended ? drawn_->Read(number++, buffer) : old->Read(batch, buffer));
    QUARRY_RETURN_IF_ERROR(writer->Append({bytes}));
  }
  QUARRY_TRY(trace_bytes_, writer->Finish(id, place_.generation));
  return Status::Ok();
}

Status Mend::OpenTable() {
  uint64_t region_bytes = kPageBytes, old_bytes = kPageBytes;
  for (const uint64_t batch : changed_.batches) {
    region_bytes = std::max(region_bytes, RegionBytes(directory_, batch));
    old_bytes = std::max(old_bytes, RegionBytes(layout_.directory(), batch));
  }
  QUARRY_TRY(reservation_,
             budget_.Reserve(IoBuffer::MappedBytes(region_bytes) + IoBuffer::MappedBytes(old_bytes) +
                                 directory_.frame_rows_max() * (2 * sizeof(NodeId) + 4 * sizeof(uint64_t)),
                             "the regions of touched batches"));
  QUARRY_TRY(region_, IoBuffer::Allocate(region_bytes));
  QUARRY_TRY(old_region_, IoBuffer::Allocate(old_bytes));
  if (!directory_.packed) return Status::Ok();
  files_ = std::make_unique<TableFiles>(store_, budget_);
  QUARRY_TRY(TableView view, TableView::Open(store_, *files_, spec_.snapshot,
                                             *spec_.snapshot->FindTable(spec_.road.feature_table)));
  table_ = std::make_unique<TableView>(std::move(view));
  QUARRY_TRY(overlay_reservation_,
             budget_.Reserve(table_->overlay->resident_bytes(), "the versions of changed rows"));
  reader_ = std::make_unique<MergedReader>(store_.backend(), budget_, ProfileOf(*store_.manifest()),
                                           kRowStagingBytes);
  return Status::Ok();
}

// Makes the region of a mended batch: its block, and the rows of its chunk, which come from the chunk of the old batch where
// that has them.
Status Mend::Assemble(uint64_t number) {
  if (region_.span().empty()) QUARRY_RETURN_IF_ERROR(OpenTable());
  const uint64_t batch = changed_.batches[number];
  const BatchEntry& entry = directory_.batches[batch];
  const std::span<std::byte> region = region_.span().first(RegionBytes(directory_, batch));
  std::ranges::fill(region, std::byte{0});
  QUARRY_TRY(const std::span<const std::byte> block, encoded_->Read(number, encoded_buffer_));
  std::ranges::copy(block, region.begin());
  assembled_ = number;
  if (!directory_.packed || entry.chunk_rows == 0) return Status::Ok();
  BlockFrame frame, old_frame;
  QUARRY_RETURN_IF_ERROR(DecodeFrame(block, directory_.node_count, frame));
  const LayoutDirectory& old = layout_.directory();
  const BatchEntry& old_entry = old.batches[batch];
  const std::span<std::byte> old_region = old_region_.span().first(RegionBytes(old, batch));
  QUARRY_RETURN_IF_ERROR(ReadOldBlock(batch, old_region));
  QUARRY_RETURN_IF_ERROR(DecodeFrame(std::span<const std::byte>(old_region).first(old_entry.block_bytes),
                                     old.node_count, old_frame));
  const uint64_t stride = directory_.row_stride, row_bytes = directory_.row_bytes;
  std::byte* const chunk = region.data() + RoundUp(entry.block_bytes, kPageBytes);
  const std::byte* const old_chunk = old_region.data() + RoundUp(old_entry.block_bytes, kPageBytes);
  std::vector<uint64_t> wanted, rows;  // ids, and where in the chunk
  uint64_t at = 0;                     // in the old chunk; both ascend
  for (uint64_t row = 0; row < frame.chunk_rows; ++row) {
    const NodeId node = frame.nodes[row];
    while (at < old_frame.chunk_rows && old_frame.nodes[at] < node) ++at;
    if (at < old_frame.chunk_rows && old_frame.nodes[at] == node) {
      std::memcpy(chunk + row * stride, old_chunk + at * stride, row_bytes);
      continue;
    }
    wanted.push_back(node);
    rows.push_back(row);
  }
  rows_read_ += wanted.size();
  return table_->Gather(*reader_, wanted, [&](size_t i, std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, chunk + rows[i] * stride);
  });
}

Status Mend::Read(uint64_t offset, std::span<std::byte> pages) {
  auto part = std::prev(std::ranges::upper_bound(parts_, offset / kPageBytes, {}, &RegionPart::first_page));
  for (; !pages.empty(); ++part) {
    const uint64_t begin = part->first_page * kPageBytes;
    const std::span<std::byte> piece =
        pages.first(std::min<uint64_t>(pages.size(), begin + part->page_count * kPageBytes - offset));
    if (part->old_page != RegionPart::kNew) {
      QUARRY_RETURN_IF_ERROR(
          layout_.ReadPages(store_.backend(), part->old_page * kPageBytes + (offset - begin), piece));
    } else {
      const auto found = std::ranges::lower_bound(
          changed_.batches, begin, {}, [&](uint64_t batch) { return directory_.batches[batch].offset; });
      const auto number = static_cast<size_t>(found - changed_.batches.begin());
      if (number != assembled_) QUARRY_RETURN_IF_ERROR(Assemble(number));
      std::ranges::copy(region_.span().subspan(offset - begin, piece.size()), piece.begin());
    }
    offset += piece.size();
    pages = pages.subspan(piece.size());
  }
  return Status::Ok();
}

void Mend::Describe(LayoutRecord& record) const {
  record.trace_generation = place_.generation;
  record.trace_bytes = trace_bytes_;
  record.accesses = record.accesses + new_accesses_ - old_accesses_;
  record.hits = record.hits + new_hits_ - old_hits_;
  record.row_bytes_read = segment_bytes_;
  record.useful_bytes = 0;
  for (uint64_t batch = 0; batch < directory_.batches.size(); ++batch) {
    record.row_bytes_read += RegionBytes(directory_, batch);
    record.useful_bytes += directory_.batches[batch].misses * directory_.row_bytes;
  }
  if (!directory_.packed) return;  // what reading from the table takes stays about the same
  record.predicted_seconds =
      ProfileOf(*store_.manifest()).ReadSeconds(record.row_bytes_read, segment_requests_) / record.epochs;
}

Status Mend::RemoveScratch() const {
  for (const std::string_view file : {kDrawnFile, kDrawnBlocksFile, kMendedFile}) {
    QUARRY_RETURN_IF_ERROR(RemoveTree(store_.backend(), Path(file)));
  }
  return store_.backend().SyncDirectory(place_.building);
}

}  // namespace quarry
