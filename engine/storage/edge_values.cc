#include "quarry/storage/edge_values.h"

#include "quarry/base/units.h"
#include "quarry/format/checksum.h"

namespace quarry {

Result<std::unique_ptr<EdgeValues>> EdgeValues::OpenRelations(Store& store, MemoryBudget& budget,
                                                              const TopologyRecord& record, Adjacency side) {
  if (record.relation_count <= 1) return std::unique_ptr<EdgeValues>();
  return Open(store, budget, record, SectionsOf(side).relations, RelationIdBytes(record.relation_count));
}

Result<std::unique_ptr<EdgeValues>> EdgeValues::OpenWeights(Store& store, MemoryBudget& budget,
                                                            const TopologyRecord& record, Adjacency side) {
  if (!record.weighted) return std::unique_ptr<EdgeValues>();
  return Open(store, budget, record, SectionsOf(side).weights, sizeof(float));
}

Result<std::unique_ptr<EdgeValues>> EdgeValues::Open(Store& store, MemoryBudget& budget,
                                                     const TopologyRecord& record, std::string_view section,
                                                     uint64_t value_bytes) {
  std::unique_ptr<EdgeValues> values(new EdgeValues);
  values->value_bytes_ = value_bytes;
  const uint64_t bytes = record.base_edge_count() * value_bytes;
  const uint64_t pages = CeilDiv(bytes, kPageBytes);
  QUARRY_TRY(values->reservation_,
             budget.Reserve(pages * sizeof(uint32_t), "checksums of what edges have beside their ends"));
  QUARRY_TRY(values->data_, OpenDataFile(store.backend(), store.path() + "/" + record.file,
                                         {.kind = FileKind::kTopology,
                                          .database_id = store.manifest()->database_id,
                                          .generation = record.generation,
                                          .file_bytes = record.file_bytes}));
  QUARRY_TRY(values->section_, values->data_.Find(section, bytes));
  QUARRY_TRY(values->checksums_, LoadChecksums(store.backend(), values->data_, values->section_));
  if (values->checksums_.size() == pages) return values;
  return MakeStatus(Code::kCorruption, "{}: footer: {} checksums for {} bytes of {}", values->file().path(),
                    values->checksums_.size(), bytes, section);
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
