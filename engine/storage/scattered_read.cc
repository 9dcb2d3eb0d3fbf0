#include "scattered_read.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "quarry/io/coalesce.h"
#include "quarry/io/ring.h"

namespace quarry {
namespace {

constexpr unsigned kDepth = 64;

std::vector<MergedRead> PlanReads(const FeatureTable& table, std::span<const uint64_t> rows) {
  const FeatureGeometry& geometry = table.geometry();
  std::vector<ByteRange> ranges;
  ranges.reserve(rows.size());
  for (const uint64_t row : rows) {
    ranges.push_back({geometry.CellOffset(geometry.CellOfRow(row)), geometry.cell_bytes()});
  }
  std::vector<MergedRead> reads;
  Coalesce(ranges, {.block_bytes = table.block_bytes()}, reads);
  return reads;
}

}  // namespace

Status ReadScattered(IoBackend& backend, const FeatureTable& table, std::span<const uint64_t> rows,
                     const std::function<void(size_t, std::span<const std::byte>)>& put) {
  if (rows.empty()) return Status::Ok();
  const FeatureGeometry& geometry = table.geometry();
  const std::vector<MergedRead> reads = PlanReads(table, rows);
  uint64_t largest = 0;
  for (const MergedRead& read : reads) largest = std::max<uint64_t>(largest, read.bytes);
  largest = RoundUp(largest, kPageBytes);
  const size_t pieces = std::min<size_t>(kDepth, reads.size());
  QUARRY_TRY(const IoBuffer staging, IoBuffer::Allocate(pieces * largest));
  QUARRY_TRY(const std::unique_ptr<IoRing> ring, IoRing::Make(backend, kDepth));
  std::vector<size_t> read_of(pieces);
  std::vector<uint32_t> idle;
  for (uint32_t piece = 0; piece < pieces; ++piece) idle.push_back(piece);
  const auto copy_rows = [&](const MergedRead& read, const std::byte* bytes) -> Status {
    for (uint32_t i = read.first; i < read.first + read.count; ++i) {
      const uint64_t cell = geometry.CellOfRow(rows[i]);
      QUARRY_RETURN_IF_ERROR(
          table.VerifyCell(cell, {bytes + (geometry.CellOffset(cell) - read.offset), geometry.cell_bytes()}));
      put(i, {bytes + (geometry.RowOffset(rows[i]) - read.offset), geometry.row_bytes});
    }
    return Status::Ok();
  };
  const auto run = [&]() -> Status {
    std::vector<uint64_t> done;
    for (size_t next = 0; next < reads.size() || ring->pending() > 0;) {
      for (; next < reads.size() && !idle.empty(); ++next) {
        const uint32_t piece = idle.back();
        idle.pop_back();
        read_of[piece] = next;
        const ReadRequest request{.file = &table.file(),
                                  .offset = reads[next].offset,
                                  .bytes = reads[next].bytes,
                                  .buffer = staging.data() + piece * largest,
                                  .user_data = piece};
        QUARRY_RETURN_IF_ERROR(ring->Submit({&request, 1}));
      }
      done.clear();
      QUARRY_RETURN_IF_ERROR(ring->Wait(done));
      for (const uint64_t piece : done) {
        QUARRY_RETURN_IF_ERROR(copy_rows(reads[read_of[piece]], staging.data() + piece * largest));
        idle.push_back(static_cast<uint32_t>(piece));
      }
    }
    return Status::Ok();
  };
  const Status status = run();
  ring->Drain();
  return status;
}

}  // namespace quarry
