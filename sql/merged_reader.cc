#include "merged_reader.h"

#include "quarry/base/units.h"
#include "quarry/storage/merged_read.h"

namespace quarry::sql {
namespace {

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
    QUARRY_TRY(ring_, IoRing::Make(backend_, kMergedReadDepth));
  }
  const size_t bytes = MergedReadBytes(reads);
  if (staging_.size() < bytes) QUARRY_RETURN_IF_ERROR(Grow(bytes));
  const Status status = ReadMerged(*ring_, file, ranges, reads, staging_.span(), visit);
  if (!status.ok()) {
    ring_->Drain();
    ring_.reset();  // poisoned
  }
  return status;
}

}  // namespace quarry::sql
