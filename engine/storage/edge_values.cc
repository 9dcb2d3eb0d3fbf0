#include "quarry/storage/edge_values.h"

#include "quarry/base/units.h"
#include "quarry/format/checksum.h"

namespace quarry {

Result<std::unique_ptr<EdgeValues>> EdgeValues::Open(Store& store, MemoryBudget& budget,
                                                     const TopologyRecord& record, std::string_view name,
                                                     uint64_t value_bytes) {
  std::unique_ptr<EdgeValues> values(new EdgeValues);
  values->value_bytes_ = value_bytes;
  const uint64_t bytes = record.edge_count * value_bytes;
  const uint64_t pages = CeilDiv(bytes, kPageBytes);
  QUARRY_TRY(values->reservation_,
             budget.Reserve(pages * sizeof(uint32_t), "checksums of what edges have beside their ends"));
  QUARRY_TRY(values->data_, OpenDataFile(store.backend(), store.path() + "/" + record.file,
                                         {.kind = FileKind::kTopology,
                                          .database_id = store.manifest()->database_id,
                                          .generation = record.generation,
                                          .file_bytes = record.file_bytes}));
  QUARRY_TRY(values->section_, values->data_.Find(name, bytes));
  QUARRY_TRY(values->checksums_, LoadChecksums(store.backend(), values->data_, values->section_));
  if (values->checksums_.size() == pages) return values;
  return MakeStatus(Code::kCorruption, "{}: footer: {} checksums for {} bytes of {}", values->file().path(),
                    values->checksums_.size(), bytes, name);
}

Status EdgeValues::VerifyPages(uint64_t first_page, std::span<const std::byte> bytes) const {
  for (uint64_t page = first_page; !bytes.empty(); ++page, bytes = bytes.subspan(kPageBytes)) {
    const uint32_t computed = CellChecksum(bytes.first(kPageBytes), page);
    if (computed == checksums_[page]) continue;
    return ChecksumFault(data_, section_.offset + page * kPageBytes,
                         fmt::format("page {} of {}", page, section_.name), checksums_[page], computed);
  }
  return Status::Ok();
}

}  // namespace quarry
