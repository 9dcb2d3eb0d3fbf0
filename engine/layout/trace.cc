#include "quarry/layout/trace.h"

#include "bits.h"
#include "record_file.h"

namespace quarry {

Trace::Trace(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}
Trace::~Trace() = default;

Result<std::unique_ptr<Trace>> Trace::Open(IoBackend& backend, const std::string& path,
                                           std::span<const std::byte, 16> database_id, uint64_t generation,
                                           uint64_t file_bytes) {
  DatabaseId id;
  std::copy(database_id.begin(), database_id.end(), id.begin());
  QUARRY_TRY(std::unique_ptr<RecordFile> file, RecordFile::Open(backend, path, id, generation, file_bytes));
  return std::unique_ptr<Trace>(new Trace(std::move(file)));
}

uint64_t Trace::batch_count() const { return file_->size(); }
uint64_t Trace::resident_bytes() const { return file_->resident_bytes(); }

Result<const TraceBatch*> TraceCursor::Read(uint64_t batch) {
  QUARRY_TRY(const std::span<const std::byte> bytes, trace_.file_->Read(batch, buffer_));
  ByteReader reader(bytes);
  const auto malformed = [batch] {
    return MakeStatus(Code::kCorruption, "batch {} of the trace is malformed: build the layout again", batch);
  };
  const uint32_t groups = reader.U32();
  if (!reader.ok() || groups == 0 || groups > NeighborSampler::kHopsMax + 1) return malformed();
  batch_.hop_offsets.resize(groups);
  uint32_t begin = 0;
  for (uint32_t& end : batch_.hop_offsets) {
    end = reader.U32();
    if (end < begin || end - begin > bytes.size()) return malformed();  // a node takes a byte at least
    begin = end;
  }
  batch_.nodes.resize(batch_.hop_offsets.back());
  begin = 0;
  for (const uint32_t end : batch_.hop_offsets) {
    reader.Ascending(std::span(batch_.nodes).subspan(begin, end - begin));
    begin = end;
  }
  if (!reader.ok()) return malformed();
  return &batch_;
}

}  // namespace quarry
