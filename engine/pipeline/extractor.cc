#include "extractor.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "quarry/base/radix_sort.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

// Requests are planned for this many rows at a time, so that their bookkeeping stays in the processor's cache
// and does not grow with the batch; one merge is lost at each seam.
constexpr size_t kWindowRows = 16 << 10;

// Beyond this a request gains no bandwidth (docs/benchmarks.md).
constexpr uint32_t kRequestBytesMax = 256 << 10;

// Rows are announced in portions of about this many: the feature buffer's latch is taken once for each.
constexpr size_t kAnnounceRows = 4 << 10;

// Requests handed to the ring ahead of its depth, so that completions are refilled without waiting for
// copies.
constexpr unsigned kFlightsPerDepth = 2;

}  // namespace

RowTarget RowTarget::In(FeatureBuffer& buffer, DeviceRows* on_device) {
  return {.base = on_device == nullptr ? buffer.SlotData(0) : nullptr,
          .row_stride = buffer.slot_bytes(),
          .arrived = [&buffer](std::span<const uint32_t> slots) { buffer.FinishLoad(slots); },
          .on_device = on_device};
}

uint64_t Extractor::StagingBytesMin(const RowSources& rows) {
  uint64_t bytes = kRequestBytesMax;
  for (const RowSource& source : rows.sources()) bytes = std::max(bytes, StagingBytesMin(*source.table));
  return bytes;
}

uint64_t Extractor::StagingBytesMin(const FeatureTable& table) {
  // A cell may begin and end within a block.
  const uint64_t cell = table.geometry().cell_bytes() + 2 * uint64_t{table.block_bytes()};
  return RoundUp(std::max<uint64_t>(cell, kRequestBytesMax), kPageBytes);
}

uint64_t Extractor::ScratchBytes(uint64_t batch_nodes_max) {
  const uint64_t per_node = 2 * sizeof(uint64_t) +
                            2 * sizeof(uint32_t) +              // keys, their scratch, misses, waits
                            sizeof(uint64_t) + sizeof(size_t);  // rows of the overlay
  const uint64_t per_window_row = sizeof(ByteRange) + sizeof(MergedRead) + sizeof(uint32_t);
  return batch_nodes_max * per_node + (kWindowRows + 2 * kAnnounceRows) * per_window_row;
}

uint64_t Extractor::ScratchBytes(uint64_t batch_nodes_max, const RowSources& rows) {
  const uint64_t all_keys = rows.types().empty() ? 0 : batch_nodes_max * sizeof(uint64_t);
  return ScratchBytes(batch_nodes_max) + all_keys;
}

Result<std::unique_ptr<Extractor>> Extractor::Make(IoBackend& backend, const FeatureTable& table,
                                                   const ExtractorOptions& options) {
  assert(options.staging_bytes >= StagingBytesMin(table));
  const uint64_t rows = table.geometry().row_count;
  return MakeOf(backend, {{{{.end = rows}}, &table, options.overlay}}, {}, rows, options);
}

Result<std::unique_ptr<Extractor>> Extractor::Make(IoBackend& backend, const RowSources& rows,
                                                   const ExtractorOptions& options) {
  assert(options.staging_bytes >= StagingBytesMin(rows) && options.overlay == nullptr &&
         options.joined == nullptr);
  std::vector<Part> parts;
  for (const RowSource& source : rows.sources()) {
    parts.push_back({source.nodes, source.table.get(), source.overlay.get()});
  }
  const std::span<const NodeTypes::Range> without_rows = rows.nodes_without_rows();
  ExtractorOptions joining = options;
  joining.joined = rows.joined();
  return MakeOf(backend, std::move(parts), {without_rows.begin(), without_rows.end()}, rows.node_count(),
                joining);
}

Result<std::unique_ptr<Extractor>> Extractor::MakeOf(IoBackend& backend, std::vector<Part> parts,
                                                     std::vector<NodeTypes::Range> without_rows,
                                                     uint64_t node_count, const ExtractorOptions& options) {
  assert(options.io_depth > 0);
  QUARRY_TRY(IoBuffer staging, IoBuffer::Allocate(options.staging_bytes));
  return std::unique_ptr<Extractor>(new Extractor(backend, std::move(parts), std::move(without_rows),
                                                  node_count, options, std::move(staging)));
}

// Misses become keys (node << 32 | slot) sorted by node, which is the order of the file: neighbouring rows
// can then be merged, and the device sees ascending offsets. After an error the ring is drained before it
// goes, since the kernel may still write to staging memory.
Status Extractor::Load(const RowTarget& target, std::span<const NodeId> nodes,
                       std::span<const uint32_t> slots, std::span<const uint32_t> misses,
                       const std::atomic<bool>& cancelled, LoadStats& stats) {
  if (!ring_) {
    QUARRY_TRY(ring_, IoRing::Make(backend_, options_.io_depth));
    flights_.resize(size_t{options_.io_depth} * kFlightsPerDepth);
    idle_flights_.resize(flights_.size());
    for (size_t i = 0; i < flights_.size(); ++i) idle_flights_[i] = static_cast<uint32_t>(i);
    staging_ring_.Clear();
  }
  keys_.clear();
  for (const uint32_t p : misses) keys_.push_back(uint64_t{nodes[p]} << 32 | slots[p]);
  RadixSortByKey(keys_, node_count_, sort_scratch_);
  loaded_.clear();

  const bool one_table = parts_.size() == 1 && without_rows_.empty();
  const Status status =
      one_table ? LoadPart(parts_[0], target, cancelled, stats) : LoadParts(target, cancelled, stats);
  if (!status.ok()) {
    ring_->Drain();
    ring_.reset();
  }
  const Status delivered = Deliver(target);
  return status.ok() ? delivered : status;
}

// Loads the rows of keys_, whose nodes are rows of the part.
Status Extractor::LoadPart(const Part& part, const RowTarget& target, const std::atomic<bool>& cancelled,
                           LoadStats& stats) {
  table_ = part.table;
  overlay_ = part.overlay;
  planned_keys_ = next_read_ = 0;
  reads_.clear();
  stats.useful_bytes += keys_.size() * table_->geometry().row_bytes;
  QUARRY_RETURN_IF_ERROR(TakeOverlaid(target));
  return LoadSorted(target, cancelled, stats);
}

// Table by table: the rows of a type ascend with its nodes. Nodes of no table have no row, and nobody has to wait for it.
Status Extractor::LoadParts(const RowTarget& target, const std::atomic<bool>& cancelled, LoadStats& stats) {
  all_keys_.swap(keys_);
  const auto keys_of = [&](const NodeTypes::Range& nodes) {
    const auto from = [&](uint64_t node) {
      return node > 0xffffffff ? all_keys_.end()
                               : std::lower_bound(all_keys_.begin(), all_keys_.end(), node << 32);
    };
    return std::span(from(nodes.first), from(nodes.end));
  };
  for (const NodeTypes::Range& nodes : without_rows_) {
    for (const uint64_t key : keys_of(nodes)) loaded_.push_back(static_cast<uint32_t>(key));
  }
  for (const Part& part : parts_) {
    keys_.clear();
    for (const NodeTypes::Range& nodes : part.nodes) {
      for (const uint64_t key : keys_of(nodes)) keys_.push_back(key - ((nodes.first - nodes.row) << 32));
    }
    QUARRY_RETURN_IF_ERROR(LoadPart(part, target, cancelled, stats));
  }
  return Status::Ok();
}

// Where the row of a slot is to be written next.
Result<std::byte*> Extractor::Place(uint32_t slot, const RowTarget& target) {
  if (target.on_device != nullptr) {
    if (piece_.memory != nullptr && target.on_device->IsFull(piece_)) {
      QUARRY_RETURN_IF_ERROR(Deliver(target));
    }
    if (piece_.memory == nullptr) {
      QUARRY_TRY(piece_, target.on_device->Take());
    }
  }
  loaded_.push_back(slot);
  return target.on_device == nullptr ? target.base + slot * target.row_stride
                                     : target.on_device->Add(piece_, slot);
}

void Extractor::PutRow(uint64_t row, const std::byte* from, std::byte* to) const {
  const uint64_t row_bytes = table_->geometry().row_bytes;
  std::memcpy(to, from, row_bytes);
  if (options_.joined != nullptr) options_.joined->Write(row, to + row_bytes);
}

// Announces what has been copied; rows for a device are sent there first.
Status Extractor::Deliver(const RowTarget& target) {
  Status status;
  if (piece_.memory != nullptr) status = target.on_device->Send(std::exchange(piece_, {}));
  if (status.ok() && target.arrived) target.arrived(loaded_);
  loaded_.clear();
  return status;
}

// Rows that the overlay has are not read from the table: their keys go.
Status Extractor::TakeOverlaid(const RowTarget& target) {
  if (overlay_ == nullptr || overlay_->empty()) return Status::Ok();
  touched_.clear();
  touched_keys_.clear();
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (!overlay_->Touched(keys_[i] >> 32)) continue;
    touched_.push_back(keys_[i] >> 32);
    touched_keys_.push_back(i);
  }
  constexpr uint64_t kTaken = ~uint64_t{0};
  Status placed;
  QUARRY_RETURN_IF_ERROR(overlay_->Read(touched_, [&](size_t i, std::span<const std::byte> value) {
    if (!placed.ok()) return;
    const auto slot = static_cast<uint32_t>(std::exchange(keys_[touched_keys_[i]], kTaken));
    Result<std::byte*> place = Place(slot, target);
    placed = place.status();
    if (placed.ok()) PutRow(touched_[i], value.data(), *place);
  }));
  std::erase(keys_, kTaken);
  return placed;
}

// Two things go on at once: requests are in flight up to the ring's depth, and rows that have arrived are
// verified and copied. Rows are announced in portions, so the buffer's latch is taken once per thousands of
// rows, and batches that wait for shared rows need not wait for all of them.
Status Extractor::LoadSorted(const RowTarget& target, const std::atomic<bool>& cancelled, LoadStats& stats) {
  for (;;) {
    if (cancelled.load(std::memory_order_relaxed))
      return Status(Code::kCancelled, "extraction was cancelled");
    QUARRY_RETURN_IF_ERROR(SubmitWhileRoom(stats));
    if (ring_->pending() == 0) return Status::Ok();
    done_.clear();
    QUARRY_RETURN_IF_ERROR(ring_->Wait(done_));
    for (const uint64_t id : done_) {
      const Flight& flight = flights_[id];
      QUARRY_RETURN_IF_ERROR(CopyRows(flight, target));
      staging_ring_.Free(flight.piece.id);
      idle_flights_.push_back(static_cast<uint32_t>(id));
      // At once: the device must not wait for the rows of the other reads to be copied.
      QUARRY_RETURN_IF_ERROR(SubmitWhileRoom(stats));
    }
    if (target.on_device == nullptr && loaded_.size() >= kAnnounceRows)
      QUARRY_RETURN_IF_ERROR(Deliver(target));
  }
}

// Merges the next rows in order into requests.
void Extractor::PlanWindow() {
  const FeatureGeometry& geometry = table_->geometry();
  window_begin_ = planned_keys_;
  planned_keys_ = std::min(keys_.size(), window_begin_ + kWindowRows);
  ranges_.clear();
  for (size_t i = window_begin_; i < planned_keys_; ++i) {
    ranges_.push_back({geometry.CellOffset(geometry.CellOfRow(keys_[i] >> 32)), geometry.cell_bytes()});
  }
  reads_.clear();
  next_read_ = 0;
  Coalesce(ranges_,
           {.block_bytes = table_->block_bytes(),
            .gap_bytes_max = options_.device.GapBytesMax(),
            .request_bytes_max = kRequestBytesMax},
           reads_);
}

Status Extractor::SubmitWhileRoom(LoadStats& stats) {
  submits_.clear();
  while (!idle_flights_.empty()) {
    if (next_read_ == reads_.size()) {
      if (planned_keys_ == keys_.size()) break;
      PlanWindow();
    }
    const MergedRead& read = reads_[next_read_];
    // At page boundaries: direct reads of 256 KiB lose a quarter of the bandwidth in memory that is only
    // aligned to 512 bytes (2.4 against 3.2 GB/s on virtio NVMe).
    const std::optional<StagingRing::Piece> piece = staging_ring_.Allocate(RoundUp(read.bytes, kPageBytes));
    if (!piece) break;
    ++next_read_;
    const uint32_t id = idle_flights_.back();
    idle_flights_.pop_back();
    flights_[id] = {.offset = read.offset,
                    .bytes = read.bytes,
                    .first = static_cast<uint32_t>(window_begin_ + read.first),
                    .count = read.count,
                    .piece = *piece};
    submits_.push_back({.file = &table_->file(),
                        .offset = read.offset,
                        .bytes = read.bytes,
                        .buffer = staging_.data() + piece->offset,
                        .user_data = id});
    ++stats.requests;
    stats.bytes += read.bytes;
  }
  return submits_.empty() ? Status::Ok() : ring_->Submit(submits_);
}

// Verifies before it copies, so a slot never holds a row that did not verify. Keys ascend, so the rows of one
// cell come one after another and the cell is verified once.
Status Extractor::CopyRows(const Flight& flight, const RowTarget& target) {
  const FeatureGeometry& geometry = table_->geometry();
  const std::byte* const bytes = staging_.data() + flight.piece.offset;
  uint64_t verified_cell = ~uint64_t{0};
  for (uint32_t i = flight.first; i < flight.first + flight.count; ++i) {
    const uint64_t node = keys_[i] >> 32;
    const uint32_t slot = static_cast<uint32_t>(keys_[i]);
    const uint64_t cell = geometry.CellOfRow(node);
    if (cell != verified_cell) {  // several small rows share one
      const uint64_t begin = geometry.CellOffset(cell) - flight.offset;
      assert(begin + geometry.cell_bytes() <= flight.bytes);
      QUARRY_RETURN_IF_ERROR(table_->VerifyCell(cell, {bytes + begin, geometry.cell_bytes()}));
      verified_cell = cell;
    }
    QUARRY_TRY(std::byte* const place, Place(slot, target));
    PutRow(node, bytes + (geometry.RowOffset(node) - flight.offset), place);
  }
  return Status::Ok();
}

}  // namespace quarry
