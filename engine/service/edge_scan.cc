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
  QUARRY_TRY(file.weights, EdgeValues::OpenWeights(store, budget, *record, Adjacency::kCsc));
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
  QUARRY_TRY(scan->relations_, ScannerOf(store, file.relations.get()));
  if (with_heads) {
    QUARRY_TRY(scan->weights_, ScannerOf(store, file.weights.get()));
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
  if (weights_ != nullptr) QUARRY_RETURN_IF_ERROR(ReadWeights(count));
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

Status EdgeScan::ReadWeights(size_t count) {
  QUARRY_TRY(const std::span<const std::byte> bytes, weights_->Next());
  QUARRY_RETURN_IF_ERROR(file_.weights->VerifyPages(next_ * sizeof(float) / kPageBytes, bytes));
  weight_values_.resize(count);
  std::memcpy(weight_values_.data(), bytes.data(), count * sizeof(float));
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
