#include "row_fetcher.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/radix_sort.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr unsigned kDepth = 64;
constexpr uint64_t kStagingBytes = 2 * kMiB;
constexpr uint32_t kRequestBytesMax = 256 * kKiB;  // beyond this a request gains no bandwidth
constexpr size_t kPieceRows = 16384;

}  // namespace

Result<RowFetcher::Order> RowFetcher::Sort(const TableRecord& table, std::span<const NodeId> ids) {
  Order order;
  order.rows_.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= table.row_count) {
      return MakeStatus(Code::kInvalidArgument, "ids: number {} is {}, and table \"{}\" has {} rows", i,
                        ids[i], table.name, table.row_count);
    }
    order.rows_[i] = uint64_t{ids[i]} << 32 | i;
  }
  if (ids.size() < kPieceRows) {
    std::ranges::sort(order.rows_);
  } else {
    std::vector<uint64_t> scratch;
    RadixSortByKey(order.rows_, table.row_count - 1, scratch);
  }
  return order;
}

Result<bool> RowFetcher::ReadSome(const StoredTable& table, Order& order, std::span<std::byte> out) {
  const size_t begin = order.next_;
  size_t end = begin;
  std::vector<Wanted> rows;  // each once
  for (; end < order.rows_.size() && rows.size() < kPieceRows; ++end) {
    const auto row = static_cast<NodeId>(order.rows_[end] >> 32);
    if (rows.empty() || rows.back().row != row)
      rows.push_back({row, static_cast<uint32_t>(order.rows_[end])});
  }
  QUARRY_RETURN_IF_ERROR(ReadPiece(table, rows, out));
  const uint64_t row_bytes = table.file->geometry().row_bytes;
  const Wanted* read = rows.data();
  for (size_t i = begin; i < end; ++i) {  // the others are copies of the first
    if (read->row != order.rows_[i] >> 32) ++read;
    const auto place = static_cast<uint32_t>(order.rows_[i]);
    if (place == read->place) continue;
    std::memcpy(out.data() + place * row_bytes, out.data() + read->place * row_bytes, row_bytes);
  }
  order.next_ = end;
  return end < order.rows_.size();
}

Status RowFetcher::Read(const StoredTable& table, std::span<const NodeId> ids, std::span<std::byte> out,
                        const std::atomic<bool>& cancelled) {
  QUARRY_TRY(Order order, Sort(table.record, ids));
  for (bool more = true; more;) {
    if (cancelled.load(std::memory_order_relaxed)) return {Code::kCancelled, "the lookup was cancelled"};
    QUARRY_TRY(more, ReadSome(table, order, out));
  }
  return Status::Ok();
}

Status RowFetcher::ReadPiece(const StoredTable& table, std::span<const Wanted> rows,
                             std::span<std::byte> out) {
  if (table.overlay->empty()) return ReadFile(*table.file, rows, out);
  std::vector<Wanted> unchanged;
  QUARRY_RETURN_IF_ERROR(ReadChanged(table, rows, out, unchanged));
  return ReadFile(*table.file, unchanged, out);
}

Status RowFetcher::ReadChanged(const StoredTable& table, std::span<const Wanted> rows,
                               std::span<std::byte> out, std::vector<Wanted>& unchanged) {
  std::vector<uint64_t> touched;
  std::vector<size_t> numbers;
  std::vector<bool> found(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!table.overlay->Touched(rows[i].row)) continue;
    touched.push_back(rows[i].row);
    numbers.push_back(i);
  }
  if (!touched.empty()) {
    QUARRY_RETURN_IF_ERROR(table.overlay->Read(touched, [&](size_t i, std::span<const std::byte> value) {
      std::memcpy(out.data() + rows[numbers[i]].place * value.size(), value.data(), value.size());
      found[numbers[i]] = true;
    }));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!found[i]) unchanged.push_back(rows[i]);
  }
  return Status::Ok();
}

Status RowFetcher::Grow(uint64_t bytes) {
  staging_ = IoBuffer();
  reservation_.Release();
  QUARRY_TRY(reservation_, budget_.Reserve(IoBuffer::MappedBytes(bytes), "reading scattered rows"));
  QUARRY_TRY(staging_, IoBuffer::Allocate(bytes));
  return Status::Ok();
}

Status RowFetcher::ReadFile(const FeatureTable& file, std::span<const Wanted> rows,
                            std::span<std::byte> out) {
  if (rows.empty()) return Status::Ok();
  const FeatureGeometry& geometry = file.geometry();
  ranges_.clear();
  for (const Wanted& wanted : rows) {
    ranges_.push_back({geometry.CellOffset(geometry.CellOfRow(wanted.row)), geometry.cell_bytes()});
  }
  reads_.clear();
  Coalesce(ranges_,
           {.block_bytes = file.block_bytes(),
            .gap_bytes_max = profile_.GapBytesMax(),
            .request_bytes_max = kRequestBytesMax},
           reads_);
  if (ring_ == nullptr) {
    QUARRY_TRY(ring_, IoRing::Make(backend_, kDepth));
  }
  const Status status = Run(file, rows, out);
  if (!status.ok()) {
    ring_->Drain();
    ring_.reset();  // poisoned
  }
  return status;
}

Status RowFetcher::Run(const FeatureTable& file, std::span<const Wanted> rows, std::span<std::byte> out) {
  const FeatureGeometry& geometry = file.geometry();
  uint64_t slot_bytes = 0;
  for (const MergedRead& read : reads_) slot_bytes = std::max<uint64_t>(slot_bytes, read.bytes);
  slot_bytes = RoundUp(slot_bytes, kPageBytes);
  if (staging_.size() < slot_bytes) QUARRY_RETURN_IF_ERROR(Grow(std::max(slot_bytes, kStagingBytes)));
  const size_t slots = std::min<size_t>({kDepth, staging_.size() / slot_bytes, reads_.size()});
  std::vector<size_t> read_of(slots);
  std::vector<size_t> idle(slots);
  for (size_t slot = 0; slot < slots; ++slot) idle[slot] = slot;
  const auto copy_rows = [&](const MergedRead& read, const std::byte* bytes) -> Status {
    for (size_t i = read.first; i < size_t{read.first} + read.count; ++i) {
      const std::byte* const cell = bytes + (ranges_[i].offset - read.offset);
      QUARRY_RETURN_IF_ERROR(file.VerifyCell(geometry.CellOfRow(rows[i].row), {cell, ranges_[i].bytes}));
      std::memcpy(out.data() + rows[i].place * geometry.row_bytes,
                  bytes + (geometry.RowOffset(rows[i].row) - read.offset), geometry.row_bytes);
    }
    return Status::Ok();
  };
  std::vector<uint64_t> done;
  for (size_t next = 0; next < reads_.size() || ring_->pending() > 0;) {
    for (; next < reads_.size() && !idle.empty(); ++next) {
      const size_t slot = idle.back();
      idle.pop_back();
      read_of[slot] = next;
      const ReadRequest request{.file = &file.file(),
                                .offset = reads_[next].offset,
                                .bytes = reads_[next].bytes,
                                .buffer = staging_.data() + slot * slot_bytes,
                                .user_data = slot};
      QUARRY_RETURN_IF_ERROR(ring_->Submit({&request, 1}));
    }
    done.clear();
    QUARRY_RETURN_IF_ERROR(ring_->Wait(done));
    for (const uint64_t slot : done) {
      QUARRY_RETURN_IF_ERROR(copy_rows(reads_[read_of[slot]], staging_.data() + slot * slot_bytes));
      idle.push_back(slot);
    }
  }
  return Status::Ok();
}

}  // namespace quarry
