#include "edge_scan.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"

namespace quarry {
namespace {

// Edges at a time: whole pages of indices, and of relation ids of every width.
constexpr uint64_t kStepEdges = 256 * kKiB;

// `values` by large reads; null where there are none.
Result<std::unique_ptr<FileScanner>> ScannerOf(Store& store, const EdgeValues* values) {
  if (values == nullptr || values->bytes() == 0) return std::unique_ptr<FileScanner>();
  return FileScanner::Make(store.backend(), values->file(), values->offset(), values->bytes(),
                           kStepEdges * values->value_bytes());
}

}  // namespace

Result<EdgeFile> EdgeFile::Open(Store& store, MemoryBudget& budget, std::string_view name) {
  EdgeFile file;
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const TopologyRecord* const record = manifest->FindTopology(name);
  if (record == nullptr) {
    return MakeStatus(Code::kNotFound, "{}: there are no edges \"{}\"", store.path(), name);
  }
  file.record = *record;
  QUARRY_TRY(file.reservation, budget.Reserve(Topology::ResidentBytes(*record), "the topology's indptr"));
  QUARRY_TRY(file.topology, store.OpenTopology(name));
  QUARRY_TRY(file.relations, EdgeValues::OpenRelations(store, budget, *record, Adjacency::kCsc));
  return file;
}

Result<std::unique_ptr<EdgeScan>> EdgeScan::Open(Store& store, MemoryBudget& budget, const EdgeFile& file,
                                                 bool with_heads) {
  std::unique_ptr<EdgeScan> scan(new EdgeScan(file));
  QUARRY_TRY(scan->reservation_, budget.Reserve(kMemoryBytes, "reading edges"));
  const Topology& topology = *file.topology;
  if (with_heads && topology.edge_count() > 0) {
    QUARRY_TRY(scan->heads_, EdgeColumnScanner::Make(store.backend(), topology, Adjacency::kCsc,
                                                     EdgeColumn::kNeighbors, kStepEdges * sizeof(NodeId)));
  }
  QUARRY_TRY(scan->relations_, ScannerOf(store, file.relations.get()));
  if (with_heads && file.record.weighted && topology.edge_count() > 0) {
    QUARRY_TRY(scan->weights_, EdgeColumnScanner::Make(store.backend(), topology, Adjacency::kCsc,
                                                       EdgeColumn::kWeights, kStepEdges * sizeof(float)));
  }
  return scan;
}

// Heads and weights come in equal pieces, of as many edges of the file and what runs make of them; relations in pieces of
// the file, since a graph that has them has no runs.
Result<std::span<const Triple>> EdgeScan::Next() {
  uint64_t count = std::min(kStepEdges, file_.topology->edge_count() - next_);
  if (count > 0 && heads_ != nullptr) {
    QUARRY_TRY(count, ReadHeads());
  }
  edges_.resize(count);
  const std::span<Triple> edges = edges_;
  if (count == 0) return std::span<const Triple>();
  if (relations_ != nullptr) QUARRY_RETURN_IF_ERROR(ReadRelations(edges));
  if (weights_ != nullptr) QUARRY_RETURN_IF_ERROR(ReadWeights());
  SetTails(edges);
  next_ += count;
  return std::span<const Triple>(edges);
}

Result<uint64_t> EdgeScan::ReadHeads() {
  QUARRY_TRY(const std::span<const NodeId> heads, heads_->Next());
  edges_.resize(heads.size());
  for (size_t i = 0; i < heads.size(); ++i) edges_[i].head = heads[i];
  return heads.size();
}

Status EdgeScan::ReadRelations(std::span<Triple> edges) {
  QUARRY_TRY(const std::span<const std::byte> bytes, relations_->Next());
  const uint64_t id_bytes = file_.relations->value_bytes();
  QUARRY_RETURN_IF_ERROR(file_.relations->VerifyPages(next_ * id_bytes / kPageBytes, bytes));
  for (size_t i = 0; i < edges.size(); ++i) {
    uint32_t relation = 0;  // its upper bytes
    std::memcpy(&relation, bytes.data() + i * id_bytes, id_bytes);
    if (relation >= file_.record.relation_count) {
      return MakeStatus(Code::kCorruption, "{}: {}[{}] = {}, and there are {} relations",
                        file_.relations->file().path(), file_.relations->name(), next_ + i, relation,
                        file_.record.relation_count);
    }
    edges[i].relation = relation;
  }
  return Status::Ok();
}

Status EdgeScan::ReadWeights() {
  QUARRY_TRY(const std::span<const uint32_t> bits, weights_->Next());
  weight_values_.resize(bits.size());
  std::memcpy(weight_values_.data(), bits.data(), bits.size_bytes());
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
