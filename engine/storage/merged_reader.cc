#include "quarry/storage/merged_reader.h"

#include <algorithm>

#include "merged_read.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint32_t kRequestBytesMax = 256 * kKiB;  // beyond this a request gains no bandwidth

}  // namespace

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
  reads_.clear();
  Coalesce(ranges,
           {.block_bytes = block_bytes,
            .gap_bytes_max = profile_.GapBytesMax(),
            .request_bytes_max = kRequestBytesMax},
           reads_);
  const uint64_t bytes = std::max<uint64_t>(staging_bytes_, MergedReadBytes(reads_));
  if (staging_.size() < bytes) QUARRY_RETURN_IF_ERROR(Grow(bytes));
  if (ring_ == nullptr) {
    QUARRY_TRY(ring_, IoRing::Make(backend_, kMergedReadDepth));
  }
  const Status status = ReadMerged(*ring_, file, ranges, reads_, staging_.span(), visit);
  if (!status.ok()) {
    ring_->Drain();
    ring_.reset();  // poisoned
  }
  return status;
}

}  // namespace quarry
