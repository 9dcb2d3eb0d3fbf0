#include "quarry/storage/edges.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/units.h"
#include "quarry/format/topology.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/edge_columns.h"

namespace quarry {
namespace {

constexpr uint64_t kRelationPieceBytes = 256 * kKiB;

}  // namespace

uint64_t EdgeList::Bytes(const TopologyRecord& record) {
  constexpr uint64_t kReadBuffers = 8 * kMiB;  // a file scanner's, and slack of whole huge pages
  const uint64_t sides = record.has_csr ? 2 : 1;
  const uint64_t relation_bytes =
      record.relation_count > 1 ? record.edge_count * RelationIdBytes(record.relation_count) : 0;
  const uint64_t indptr_pages = CeilDiv((record.node_count + 1) * sizeof(uint64_t), kPageBytes);
  const uint64_t indptr_checksum_bytes = sides * indptr_pages * sizeof(uint32_t);  // while it is verified
  return Topology::ResidentBytes(record) + indptr_checksum_bytes +
         IoBuffer::MappedBytes(record.edge_count * sizeof(NodeId)) + relation_bytes + kReadBuffers;
}

Result<std::unique_ptr<EdgeList>> EdgeList::Open(Store& store, MemoryBudget& budget,
                                                 std::string_view topology) {
  std::unique_ptr<EdgeList> list(new EdgeList);
  QUARRY_RETURN_IF_ERROR(list->OpenNewest(store, budget, topology));
  QUARRY_RETURN_IF_ERROR(list->topology_->LoadIndices(store.backend(), Adjacency::kCsc));
  QUARRY_RETURN_IF_ERROR(list->LoadRelations(store));
  return list;
}

// Opened anew where edges came between the reading of the record and that of the lists: number and budget are the record's.
Status EdgeList::OpenNewest(Store& store, MemoryBudget& budget, std::string_view topology) {
  place_ = fmt::format("{}: topology \"{}\"", store.path(), topology);
  while (true) {
    const std::shared_ptr<const Manifest> manifest = store.manifest();
    const TopologyRecord* const record = manifest->FindTopology(topology);
    if (record == nullptr) return store.OpenTopology(topology).status();  // which says what there is
    topology_.reset();
    reservation_.Release();
    QUARRY_TRY(reservation_, budget.Reserve(Bytes(*record), "reading a topology"));
    QUARRY_TRY(topology_, store.OpenTopology(topology));
    number_ = NumberOf(*record);
    const std::shared_ptr<const Manifest> newest = store.manifest();
    const TopologyRecord* const now = newest->FindTopology(topology);
    if (now != nullptr && NumberOf(*now) == number_) return Status::Ok();
  }
}

Status EdgeList::CheckIs(uint64_t number) const {
  if (number == 0 || number == number_) return Status::Ok();
  return MakeStatus(Code::kBusy,
                    "{}: edges came or went, so these are of another list than the one that was begun: begin "
                    "again",
                    place_);
}

Status EdgeList::LoadRelations(Store& store) {
  if (topology_->relation_count() <= 1) return Status::Ok();
  RelationNarrower narrower(topology_->relation_count());
  relation_bytes_ = narrower.width();
  relations_.reserve(topology_->edge_count() * relation_bytes_);
  QUARRY_TRY(const auto scanner, EdgeColumnScanner::Make(store.backend(), *topology_, Adjacency::kCsc,
                                                         EdgeColumn::kRelations, kRelationPieceBytes));
  while (true) {
    QUARRY_TRY(const std::span<const uint32_t> values, scanner->Next());
    if (values.empty()) return Status::Ok();
    const std::span<const std::byte> bytes = narrower.Narrow(values);
    relations_.insert(relations_.end(), bytes.begin(), bytes.end());
  }
}

uint32_t EdgeList::relation(uint64_t edge) const {
  uint32_t relation = 0;
  if (relation_bytes_ > 0)
    std::memcpy(&relation, relations_.data() + edge * relation_bytes_, relation_bytes_);
  return relation;
}

void EdgeList::Read(uint64_t first, std::span<Triple> out) const {
  const std::span<const uint64_t> indptr = topology_->indptr(Adjacency::kCsc);
  const std::span<const NodeId> sources = topology_->indices(Adjacency::kCsc);
  // The last one whose edges begin at `first` or before.
  auto next = std::ranges::upper_bound(indptr, first);
  for (uint64_t i = 0; i < out.size(); i++) {
    const uint64_t edge = first + i;
    while (*next <= edge) ++next;
    const auto destination = static_cast<NodeId>(next - indptr.begin() - 1);
    out[i] = {sources[edge], relation(edge), destination};
  }
}

}  // namespace quarry
