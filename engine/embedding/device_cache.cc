#include "quarry/embedding/device_cache.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {
namespace {

// Cells of the table for each slot. Until it is filled anew, at two cells in three, it takes as many rows as there are
// slots, at least; and a probe then reads five cells where there is nothing to be found.
constexpr uint64_t kCellsPerSlot = 3;
constexpr uint64_t kUsedCellsPerSlot = 2;
// A chunk's; a driver aligns what it allocates better than that.
constexpr uint64_t kArrayAlignment = 16;

// Offsets of the arrays in one allocation.
struct DeviceCacheLayout {
  uint64_t rows = 0, table_rows = 0, table_timestamps = 0, table_slots = 0, ids = 0, found = 0, bytes = 0;

  DeviceCacheLayout(const EmbeddingSpec& spec, const DeviceValidationCache::Capacity& capacity) {
    const uint64_t slots = capacity.batches * capacity.rows_max;
    const uint64_t cells = kCellsPerSlot * slots;
    rows = Take(slots * DeviceRowStride(spec) * sizeof(float));
    table_rows = Take(cells * sizeof(RowId));
    table_timestamps = Take(cells * sizeof(int64_t));
    table_slots = Take(cells * sizeof(uint32_t));
    ids = Take(slots * sizeof(RowId));
    found = Take(capacity.rows_max * sizeof(uint32_t));
  }

 private:
  uint64_t Take(uint64_t array_bytes) {
    return std::exchange(bytes, bytes + RoundUp(std::max<uint64_t>(array_bytes, 1), kArrayAlignment));
  }
};

}  // namespace

uint64_t DeviceValidationCache::MemoryBytes(const EmbeddingSpec& spec, const Capacity& capacity) {
  return DeviceCacheLayout(spec, capacity).bytes;
}

Result<std::unique_ptr<DeviceValidationCache>> DeviceValidationCache::Make(gpu::Device& device,
                                                                           const EmbeddingSpec& spec,
                                                                           const Capacity& capacity,
                                                                           gpu::StreamHandle stream) {
  constexpr uint64_t kSlotsMax = UINT32_MAX / kCellsPerSlot;
  if (capacity.rows_max > kSlotsMax / std::max<uint64_t>(capacity.batches, 1)) {
    return MakeStatus(Code::kUnsupported,
                      "a validation cache on a device has up to {} rows: {} batches of {} rows are more",
                      kSlotsMax, capacity.batches, capacity.rows_max);
  }
  QUARRY_TRY(gpu::Memory memory, gpu::AllocateMemory(device, MemoryBytes(spec, capacity)));
  std::unique_ptr<DeviceValidationCache> cache(
      new DeviceValidationCache(device, spec, capacity, stream, std::move(memory)));
  QUARRY_RETURN_IF_ERROR(cache->EmptyTable());
  return cache;
}

DeviceValidationCache::DeviceValidationCache(gpu::Device& device, const EmbeddingSpec& spec,
                                             const Capacity& capacity, gpu::StreamHandle stream,
                                             gpu::Memory memory)
    : device_(device),
      stream_(stream),
      row_bytes_(DeviceRowStride(spec) * sizeof(float)),
      capacity_(capacity),
      slot_count_(capacity.batches * capacity.rows_max),
      memory_(std::move(memory)) {
  const DeviceCacheLayout layout(spec, capacity);
  std::byte* const base = memory_.get().data();
  table_ = {.rows = reinterpret_cast<uint64_t*>(base + layout.table_rows),
            .timestamps = reinterpret_cast<int64_t*>(base + layout.table_timestamps),
            .slots = reinterpret_cast<uint32_t*>(base + layout.table_slots),
            .cells = kCellsPerSlot * slot_count_};
  ids_ = reinterpret_cast<RowId*>(base + layout.ids);
  rows_ = base + layout.rows;
  found_ = reinterpret_cast<uint32_t*>(base + layout.found);
}

Status DeviceValidationCache::Validate(const CommitTracker::Ticket& ticket, const DeviceRowBlock& rows,
                                       uint64_t* replaced) {
  assert(rows.count <= capacity_.rows_max);
  Evict(ticket.safe_to_evict);
  const int64_t newer_than = std::max(ticket.mfct, evicted_);
  if (newest_ <= newer_than) return Status::Ok();
  const gpu::FindNewerRows find = {.table = table_,
                                   .rows = rows.ids,
                                   .timestamps = rows.timestamps,
                                   .row_count = rows.count,
                                   .newer_than = newer_than,
                                   .found = found_,
                                   .found_count = replaced};
  QUARRY_RETURN_IF_ERROR(gpu::Run(device_, find, stream_));
  const gpu::CopyFoundRows copy = {.found = found_,
                                   .slots = rows_,
                                   .rows = reinterpret_cast<std::byte*>(rows.rows),
                                   .row_count = rows.count,
                                   .chunks = static_cast<uint32_t>(row_bytes_ / sizeof(gpu::Chunk))};
  return gpu::Run(device_, copy, stream_);
}

Status DeviceValidationCache::Insert(const DeviceRowBlock& rows, int64_t timestamp) {
  assert(timestamp > newest_ && "timestamps ascend");
  newest_ = timestamp;
  if (rows.count == 0) return Status::Ok();
  QUARRY_TRY(const uint64_t first_slot, TakeSlots(rows.count));
  QUARRY_RETURN_IF_ERROR(device_.CopyWithin(reinterpret_cast<std::byte*>(ids_ + first_slot),
                                            reinterpret_cast<const std::byte*>(rows.ids),
                                            rows.count * sizeof(RowId), stream_));
  QUARRY_RETURN_IF_ERROR(device_.CopyWithin(rows_ + first_slot * row_bytes_,
                                            reinterpret_cast<const std::byte*>(rows.rows),
                                            rows.count * row_bytes_, stream_));
  ring_.push_back({timestamp, first_slot, rows.count});
  row_count_ += rows.count;
  if (used_cells_ + rows.count > kUsedCellsPerSlot * slot_count_) return FillTable();
  return PutIn(ring_.back());
}

void DeviceValidationCache::Evict(int64_t safe_to_evict) {
  evicted_ = std::max(evicted_, safe_to_evict);
  while (!ring_.empty() && ring_.front().timestamp <= evicted_) {
    row_count_ -= ring_.front().count;
    ring_.pop_front();
  }
}

// Slots after the last batch, or, where the ring ends before, its first ones: a batch is in one piece. What is so left
// out at the end is less than a batch, for which the capacity, of one batch more than there are, has room.
Result<uint64_t> DeviceValidationCache::TakeSlots(uint64_t count) {
  uint64_t first = 0, end = slot_count_;
  if (!ring_.empty()) {
    const uint64_t tail = ring_.front().first_slot;
    const bool wrapped = head_ <= tail;
    const bool fits = wrapped || head_ + count <= slot_count_;
    first = fits ? head_ : 0;
    end = fits && !wrapped ? slot_count_ : tail;
  }
  if (first + count > end) {
    return MakeStatus(
        Code::kOutOfBudget,
        "the validation cache on the device has {} slots, of which {} rows are in use, and {} more "
        "rows come in: make it for more than {} batches, or larger ones than of {} rows",
        slot_count_, row_count_, count, capacity_.batches, capacity_.rows_max);
  }
  head_ = first + count;
  return first;
}

// All ones is a table without rows. The timestamps and slots of empty cells are never read.
Status DeviceValidationCache::EmptyTable() {
  used_cells_ = 0;
  if (table_.cells == 0) return Status::Ok();
  return device_.Fill(reinterpret_cast<std::byte*>(table_.rows), 0xff, table_.cells * sizeof(RowId), stream_);
}

// In the order of timestamps, so that the newest version of a row comes last.
Status DeviceValidationCache::FillTable() {
  QUARRY_RETURN_IF_ERROR(EmptyTable());
  for (const Versions& versions : ring_) QUARRY_RETURN_IF_ERROR(PutIn(versions));
  return Status::Ok();
}

Status DeviceValidationCache::PutIn(const Versions& versions) {
  used_cells_ += versions.count;
  return gpu::Run(device_,
                  gpu::InsertRows{.table = table_,
                                  .rows = ids_ + versions.first_slot,
                                  .row_count = versions.count,
                                  .timestamp = versions.timestamp,
                                  .first_slot = static_cast<uint32_t>(versions.first_slot)},
                  stream_);
}

}  // namespace quarry
