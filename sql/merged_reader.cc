#include "merged_reader.h"

#include <algorithm>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"

namespace quarry::sql {
namespace {

constexpr unsigned kDepth = 64;
constexpr uint64_t kStagingBytes = 4 * kMiB;
constexpr uint32_t kRequestBytesMax = 256 * kKiB;  // beyond this a request gains no bandwidth

}  // namespace

Result<std::unique_ptr<MergedReader>> MergedReader::Make(IoBackend& backend, MemoryBudget& budget,
                                                         const DeviceProfile& profile) {
  std::unique_ptr<MergedReader> reader(new MergedReader(backend, budget, profile));
  QUARRY_RETURN_IF_ERROR(reader->Grow(kStagingBytes));
  return reader;
}

Status MergedReader::Grow(uint64_t bytes) {
  staging_ = IoBuffer();
  reservation_.Release();
  QUARRY_TRY(reservation_, budget_.Reserve(IoBuffer::MappedBytes(bytes), "reading scattered rows"));
  QUARRY_TRY(staging_, IoBuffer::Allocate(bytes));
  return Status::Ok();
}

Status MergedReader::Read(const File& file, uint32_t block_bytes, std::span<const ByteRange> ranges,
                          const Visit& visit) {
  if (ranges.empty()) return Status::Ok();
  std::vector<MergedRead> reads;
  Coalesce(ranges,
           {.block_bytes = block_bytes,
            .gap_bytes_max = profile_.GapBytesMax(),
            .request_bytes_max = kRequestBytesMax},
           reads);
  if (ring_ == nullptr) {
    QUARRY_TRY(ring_, IoRing::Make(backend_, kDepth));
  }
  const Status status = Run(file, ranges, reads, visit);
  if (!status.ok()) {
    ring_->Drain();
    ring_.reset();  // poisoned
  }
  return status;
}

Status MergedReader::Run(const File& file, std::span<const ByteRange> ranges,
                         std::span<const MergedRead> reads, const Visit& visit) {
  uint64_t piece_bytes = 0;
  for (const MergedRead& read : reads) piece_bytes = std::max<uint64_t>(piece_bytes, read.bytes);
  piece_bytes = RoundUp(piece_bytes, kPageBytes);
  if (staging_.size() < piece_bytes) QUARRY_RETURN_IF_ERROR(Grow(piece_bytes));
  const size_t pieces = std::min<size_t>({kDepth, staging_.size() / piece_bytes, reads.size()});
  std::vector<size_t> read_of(pieces);
  std::vector<size_t> idle(pieces);
  for (size_t piece = 0; piece < pieces; ++piece) idle[piece] = piece;
  const auto visit_ranges = [&](const MergedRead& read, const std::byte* bytes) -> Status {
    for (size_t i = read.first; i < size_t{read.first} + read.count; ++i) {
      QUARRY_RETURN_IF_ERROR(visit(i, {bytes + (ranges[i].offset - read.offset), ranges[i].bytes}));
    }
    return Status::Ok();
  };
  std::vector<uint64_t> done;
  for (size_t next = 0; next < reads.size() || ring_->pending() > 0;) {
    for (; next < reads.size() && !idle.empty(); ++next) {
      const size_t piece = idle.back();
      idle.pop_back();
      read_of[piece] = next;
      const ReadRequest request{.file = &file,
                                .offset = reads[next].offset,
                                .bytes = reads[next].bytes,
                                .buffer = staging_.data() + piece * piece_bytes,
                                .user_data = piece};
      QUARRY_RETURN_IF_ERROR(ring_->Submit({&request, 1}));
    }
    done.clear();
    QUARRY_RETURN_IF_ERROR(ring_->Wait(done));
    for (const uint64_t piece : done) {
      QUARRY_RETURN_IF_ERROR(visit_ranges(reads[read_of[piece]], staging_.data() + piece * piece_bytes));
      idle.push_back(piece);
    }
  }
  return Status::Ok();
}

}  // namespace quarry::sql
