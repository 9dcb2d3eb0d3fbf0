#include "edge_scan.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kStepEdges = 256 * kKiB;  // of the file, at a time

}  // namespace

Result<EdgeFile> EdgeFile::Open(Store& store, MemoryBudget& budget, const Snapshot& snapshot,
                                std::string_view name) {
  EdgeFile file;
  const TopologyRecord* const record = snapshot.FindTopology(name);
  if (record == nullptr) {
    return MakeStatus(Code::kNotFound, "{}: there are no edges \"{}\"", store.path(), name);
  }
  file.record = *record;
  QUARRY_TRY(file.reservation, budget.Reserve(Topology::ResidentBytes(*record), "the topology's indptr"));
  QUARRY_TRY(file.topology, store.OpenTopology(snapshot, name));
  return file;
}

Result<std::unique_ptr<EdgeScan>> EdgeScan::Open(Store& store, MemoryBudget& budget, const EdgeFile& file,
                                                 bool with_heads) {
  std::unique_ptr<EdgeScan> scan(new EdgeScan(file));
  const Topology& topology = *file.topology;
  uint64_t checksum_bytes = 0;
  if (topology.relation_count() > 1) {
    checksum_bytes += BaseColumn::ChecksumBytes(topology, EdgeColumn::kRelations);
  }
  if (with_heads && file.record.weighted) {
    checksum_bytes += BaseColumn::ChecksumBytes(topology, EdgeColumn::kWeights);
  }
  QUARRY_TRY(scan->reservation_, budget.Reserve(kMemoryBytes + checksum_bytes, "reading edges"));
  if (topology.edge_count() == 0) return scan;
  const auto open = [&](EdgeColumn column) {
    return EdgeColumnScanner::Make(store.backend(), topology, Adjacency::kCsc, column,
                                   kStepEdges * sizeof(uint32_t));
  };
  if (with_heads) {
    QUARRY_TRY(scan->heads_, open(EdgeColumn::kNeighbors));
  }
  if (topology.relation_count() > 1) {
    QUARRY_TRY(scan->relations_, open(EdgeColumn::kRelations));
  }
  if (with_heads && file.record.weighted) {
    QUARRY_TRY(scan->weights_, open(EdgeColumn::kWeights));
  }
  return scan;
}

Result<std::span<const Triple>> EdgeScan::Next() {
  edges_.clear();
  if (next_ == file_.topology->edge_count()) return std::span<const Triple>();
  if (heads_ != nullptr) QUARRY_RETURN_IF_ERROR(ReadHeads());
  if (relations_ != nullptr) QUARRY_RETURN_IF_ERROR(ReadRelations());
  if (weights_ != nullptr) QUARRY_RETURN_IF_ERROR(ReadWeights());
  if (edges_.empty()) edges_.resize(std::min(kStepEdges, file_.topology->edge_count() - next_));
  SetTails(edges_);
  next_ += edges_.size();
  return std::span<const Triple>(edges_);
}

Status EdgeScan::ReadHeads() {
  QUARRY_TRY(const std::span<const NodeId> heads, heads_->Next());
  edges_.resize(heads.size());
  for (size_t i = 0; i < heads.size(); ++i) edges_[i].head = heads[i];
  return Status::Ok();
}

// Columns come in equal pieces.
Status EdgeScan::ReadRelations() {
  QUARRY_TRY(const std::span<const uint32_t> relations, relations_->Next());
  edges_.resize(relations.size());
  for (size_t i = 0; i < relations.size(); ++i) edges_[i].relation = relations[i];
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
