#include "edge_scan.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/topology.h"

namespace quarry {
namespace {

// Edges at a time: whole pages of indices, and of relation ids of every width.
constexpr uint64_t kStepEdges = 256 * kKiB;

uint64_t Pages(uint64_t bytes) { return CeilDiv(bytes, kPageBytes); }

Status LoadRelations(Store& store, EdgeFile& file) {
  const TopologyRecord& record = file.record;
  const uint64_t bytes = record.edge_count * RelationIdBytes(record.relation_count);
  QUARRY_TRY(file.relations, OpenDataFile(store.backend(), store.path() + "/" + record.file,
                                          {.kind = FileKind::kTopology,
                                           .database_id = store.manifest().database_id,
                                           .generation = record.generation,
                                           .file_bytes = record.file_bytes}));
  QUARRY_TRY(file.relation_section, file.relations.Find(SectionsOf(Adjacency::kCsc).relations, bytes));
  QUARRY_TRY(file.relation_checksums, LoadChecksums(store.backend(), file.relations, file.relation_section));
  if (file.relation_checksums.size() == Pages(bytes)) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: footer: {} checksums for {} bytes of {}",
                    file.relations.file.path(), file.relation_checksums.size(), bytes,
                    file.relation_section.name);
}

}  // namespace

Result<EdgeFile> EdgeFile::Open(Store& store, MemoryBudget& budget, std::string_view name) {
  EdgeFile file;
  const TopologyRecord* const record = store.manifest().FindTopology(name);
  if (record == nullptr) {
    return MakeStatus(Code::kNotFound, "{}: there are no edges \"{}\"", store.path(), name);
  }
  file.record = *record;
  const uint64_t index_pages = Pages(record->edge_count * sizeof(NodeId));
  const uint64_t side_bytes = (record->node_count + 1) * sizeof(uint64_t) + index_pages * sizeof(uint32_t);
  // Relation ids are no wider than indices.
  QUARRY_TRY(file.reservation,
             budget.Reserve((record->has_csr ? 2 : 1) * side_bytes + index_pages * sizeof(uint32_t),
                            "the topology's indptr"));
  QUARRY_TRY(file.topology, store.OpenTopology(name));
  if (record->relation_count > 1) QUARRY_RETURN_IF_ERROR(LoadRelations(store, file));
  return file;
}

Result<std::unique_ptr<EdgeScan>> EdgeScan::Open(Store& store, MemoryBudget& budget, const EdgeFile& file,
                                                 bool with_heads) {
  std::unique_ptr<EdgeScan> scan(new EdgeScan(file));
  QUARRY_TRY(scan->reservation_, budget.Reserve(kMemoryBytes, "reading edges"));
  const Topology& topology = *file.topology;
  if (with_heads && topology.edge_count() > 0) {
    QUARRY_TRY(scan->heads_,
               FileScanner::Make(store.backend(), topology.file(), topology.indices_offset(Adjacency::kCsc),
                                 topology.IndicesBytes(), kStepEdges * sizeof(NodeId)));
  }
  if (file.record.relation_count > 1 && topology.edge_count() > 0) {
    QUARRY_TRY(scan->relations_, FileScanner::Make(store.backend(), file.relations.file,
                                                   file.relation_section.offset, file.relation_section.bytes,
                                                   kStepEdges * RelationIdBytes(file.record.relation_count)));
  }
  scan->edges_.resize(std::min(kStepEdges, topology.edge_count()));
  return scan;
}

Result<std::span<const Triple>> EdgeScan::Next() {
  const uint64_t count = std::min<uint64_t>(edges_.size(), file_.topology->edge_count() - next_);
  const std::span<Triple> edges = std::span(edges_).first(count);
  if (count == 0) return std::span<const Triple>();
  if (heads_ != nullptr) QUARRY_RETURN_IF_ERROR(ReadHeads(edges));
  if (relations_ != nullptr) QUARRY_RETURN_IF_ERROR(ReadRelations(edges));
  SetTails(edges);
  next_ += count;
  return std::span<const Triple>(edges);
}

Status EdgeScan::ReadHeads(std::span<Triple> edges) {
  QUARRY_TRY(const std::span<const std::byte> bytes, heads_->Next());
  const uint64_t first_page = next_ * sizeof(NodeId) / kPageBytes;
  for (uint64_t at = 0; at < bytes.size(); at += kPageBytes) {
    QUARRY_RETURN_IF_ERROR(file_.topology->VerifyIndexPage(Adjacency::kCsc, first_page + at / kPageBytes,
                                                           bytes.subspan(at, kPageBytes)));
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    std::memcpy(&edges[i].head, bytes.data() + i * sizeof(NodeId), sizeof(NodeId));
  }
  return Status::Ok();
}

Status EdgeScan::ReadRelations(std::span<Triple> edges) {
  QUARRY_TRY(const std::span<const std::byte> bytes, relations_->Next());
  const uint64_t id_bytes = RelationIdBytes(file_.record.relation_count);
  const uint64_t first_page = next_ * id_bytes / kPageBytes;
  for (uint64_t at = 0; at < bytes.size(); at += kPageBytes) {
    const uint64_t page = first_page + at / kPageBytes;
    const uint32_t computed = CellChecksum(bytes.subspan(at, kPageBytes), page);
    if (computed == file_.relation_checksums[page]) continue;
    return ChecksumFault(file_.relations, file_.relation_section.offset + page * kPageBytes,
                         fmt::format("page {} of {}", page, file_.relation_section.name),
                         file_.relation_checksums[page], computed);
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    uint32_t relation = 0;  // its upper bytes
    std::memcpy(&relation, bytes.data() + i * id_bytes, id_bytes);
    if (relation >= file_.record.relation_count) {
      return MakeStatus(Code::kCorruption, "{}: {}[{}] = {}, and there are {} relations",
                        file_.relations.file.path(), file_.relation_section.name, next_ + i, relation,
                        file_.record.relation_count);
    }
    edges[i].relation = relation;
  }
  return Status::Ok();
}

void EdgeScan::SetTails(std::span<Triple> edges) {
  const std::span<const uint64_t> indptr = file_.topology->indptr(Adjacency::kCsc);
  for (size_t i = 0; i < edges.size(); ++i) {
    while (next_ + i >= indptr[tail_ + uint64_t{1}]) ++tail_;
    edges[i].tail = tail_;
  }
}

}  // namespace quarry
