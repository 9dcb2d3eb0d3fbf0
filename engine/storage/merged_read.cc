#include "merged_read.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"

namespace quarry {

size_t MergedReadBytes(std::span<const MergedRead> reads) {
  uint64_t largest = 0;
  for (const MergedRead& read : reads) largest = std::max<uint64_t>(largest, read.bytes);
  return RoundUp(largest, kPageBytes);
}

Status ReadMerged(IoRing& ring, const File& file, std::span<const ByteRange> ranges,
                  std::span<const MergedRead> reads, std::span<std::byte> staging,
                  const std::function<Status(size_t, std::span<const std::byte>)>& visit) {
  if (reads.empty()) return Status::Ok();
  const size_t piece_bytes = MergedReadBytes(reads);
  assert(staging.size() >= piece_bytes);
  const size_t pieces = std::min<size_t>({kMergedReadDepth, staging.size() / piece_bytes, reads.size()});
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
  for (size_t next = 0; next < reads.size() || ring.pending() > 0;) {
    for (; next < reads.size() && !idle.empty(); ++next) {
      const size_t piece = idle.back();
      idle.pop_back();
      read_of[piece] = next;
      const ReadRequest request{.file = &file,
                                .offset = reads[next].offset,
                                .bytes = reads[next].bytes,
                                .buffer = staging.data() + piece * piece_bytes,
                                .user_data = piece};
      QUARRY_RETURN_IF_ERROR(ring.Submit({&request, 1}));
    }
    done.clear();
    QUARRY_RETURN_IF_ERROR(ring.Wait(done));
    for (const uint64_t piece : done) {
      QUARRY_RETURN_IF_ERROR(visit_ranges(reads[read_of[piece]], staging.data() + piece * piece_bytes));
      idle.push_back(piece);
    }
  }
  return Status::Ok();
}

}  // namespace quarry
