#include "quarry/storage/topology.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/topology_run.h"

namespace quarry {

Result<std::unique_ptr<Topology>> Topology::Open(IoBackend& backend, const std::string& database_path,
                                                 const TopologyRecord& record,
                                                 std::span<const std::byte, 16> database_id) {
  const double start = MonotonicSeconds();
  std::unique_ptr<Topology> topology(new Topology());
  topology->node_count_ = record.node_count;
  topology->edge_count_ = record.edge_count;
  topology->base_edge_count_ = record.base_edge_count();
  topology->weighted_ = record.weighted;
  topology->relation_count_ = record.relation_count;
  QUARRY_TRY(topology->data_, OpenDataFile(backend, database_path + "/" + record.file,
                                           {.kind = FileKind::kTopology,
                                            .database_id = database_id,
                                            .generation = record.generation,
                                            .file_bytes = record.file_bytes}));
  const Superblock& superblock = topology->data_.superblock;
  topology->file_nodes_ = record.file_nodes();
  if (superblock.row_count != record.file_nodes() || superblock.edge_count != record.base_edge_count()) {
    return MakeStatus(Code::kCorruption, "{}: page 0: {} nodes and {} edges where the catalog says {} and {}",
                      topology->file().path(), superblock.row_count, superblock.edge_count,
                      record.file_nodes(), record.base_edge_count());
  }
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    if (side == Adjacency::kCsr && !record.has_csr) continue;
    QUARRY_RETURN_IF_ERROR(topology->OpenSide(backend, side));
    if (record.runs.empty()) continue;
    const double runs = MonotonicSeconds();
    QUARRY_RETURN_IF_ERROR(topology->OpenRuns(backend, database_path, record, database_id, side));
    topology->open_run_seconds_ += MonotonicSeconds() - runs;
  }
  topology->open_seconds_ = MonotonicSeconds() - start;
  return topology;
}

// Positions of a run are positions in what the runs before it make, so edits that fit the base have the edges that the
// record says.
Status Topology::OpenRuns(IoBackend& backend, const std::string& database_path, const TopologyRecord& record,
                          std::span<const std::byte, 16> database_id, Adjacency adjacency) {
  QUARRY_TRY(ListEdits edits, LoadRuns(backend, database_path, record, record.runs, database_id, adjacency));
  Side& side = sides_[static_cast<int>(adjacency)];
  if (EdgeEdits::Fit(edits, side.indptr)) {
    side.edits = EdgeEdits(std::move(edits), side.indptr);
    if (side.indptr.back() == edge_count_) return Status::Ok();
  }
  return MakeStatus(Code::kCorruption, "{}: the {} runs over it change {} at places that it does not have",
                    file().path(), record.runs.size(), SectionsOf(adjacency).indices);
}

Result<std::unique_ptr<Topology>> Topology::FromMemory(std::vector<uint64_t> csc_indptr,
                                                       std::span<const NodeId> csc_indices,
                                                       std::vector<uint64_t> csr_indptr,
                                                       std::span<const NodeId> csr_indices) {
  std::unique_ptr<Topology> topology(new Topology());
  topology->node_count_ = csc_indptr.size() - 1;
  topology->edge_count_ = topology->base_edge_count_ = csc_indices.size();
  const auto fill = [](Side& side, std::vector<uint64_t> indptr, std::span<const NodeId> indices) -> Status {
    assert(indptr.front() == 0 && indptr.back() == indices.size());
    side.indptr = std::move(indptr);
    if (indices.empty()) return Status::Ok();
    QUARRY_TRY(side.indices, IoBuffer::Allocate(indices.size_bytes()));
    std::memcpy(side.indices.data(), indices.data(), indices.size_bytes());
    return Status::Ok();
  };
  QUARRY_RETURN_IF_ERROR(fill(topology->sides_[0], std::move(csc_indptr), csc_indices));
  if (!csr_indptr.empty()) {
    QUARRY_RETURN_IF_ERROR(fill(topology->sides_[1], std::move(csr_indptr), csr_indices));
  }
  return topology;
}

Status Topology::OpenSide(IoBackend& backend, Adjacency adjacency) {
  const TopologySections names = SectionsOf(adjacency);
  Side& side = sides_[static_cast<int>(adjacency)];
  QUARRY_TRY(const Section indptr_section, data_.Find(names.indptr, (file_nodes_ + 1) * sizeof(uint64_t)));
  QUARRY_TRY(const Section indices_section, data_.Find(names.indices, BaseIndicesBytes()));
  QUARRY_TRY(const std::vector<uint32_t> indptr_checksums, LoadChecksums(backend, data_, indptr_section));
  std::vector<uint64_t> indptr;
  indptr.reserve(node_count_ + 1);
  indptr.resize(file_nodes_ + 1);
  QUARRY_RETURN_IF_ERROR(
      LoadPages(backend, data_, indptr_section, indptr_checksums, std::as_writable_bytes(std::span(indptr))));
  // The samplers index with these without further checks.
  if (indptr.front() != 0 || indptr.back() != base_edge_count_) {
    return MakeStatus(Code::kCorruption, "{}: {} runs from {} to {} instead of 0 to {}", file().path(),
                      names.indptr, indptr.front(), indptr.back(), base_edge_count_);
  }
  if (const auto drop = std::is_sorted_until(indptr.begin(), indptr.end()); drop != indptr.end()) {
    return MakeStatus(Code::kCorruption, "{}: {}[{}] = {} is less than the value before it, {}",
                      file().path(), names.indptr, drop - indptr.begin(), *drop, *(drop - 1));
  }
  QUARRY_TRY(side.page_checksums, LoadChecksums(backend, data_, indices_section));
  if (side.page_checksums.size() != CeilDiv(BaseIndicesBytes(), kPageBytes)) {
    return MakeStatus(Code::kCorruption, "{}: footer: {} checksums for {} bytes of {}", file().path(),
                      side.page_checksums.size(), BaseIndicesBytes(), names.indices);
  }
  side.indices_offset = indices_section.offset;
  indptr.resize(node_count_ + 1, base_edge_count_);  // added nodes have empty lists there
  side.indptr = std::move(indptr);
  return Status::Ok();
}

uint64_t Topology::ResidentBytes(const TopologyRecord& record) {
  const uint64_t index_pages = CeilDiv(record.base_edge_count() * sizeof(NodeId), kPageBytes);
  return (record.has_csr ? 2 : 1) *
             ((record.node_count + 1) * sizeof(uint64_t) + index_pages * sizeof(uint32_t)) +
         RunsResidentBytes(record);
}

uint64_t Topology::resident_bytes() const {
  uint64_t bytes = 0;
  for (const Side& side : sides_) {
    bytes += side.indptr.size() * sizeof(uint64_t) + side.page_checksums.size() * sizeof(uint32_t) +
             side.indices.mapped_bytes() + side.weights.mapped_bytes() + side.edits.memory_bytes();
  }
  return bytes;
}

Status Topology::LoadIndices(IoBackend& backend, Adjacency adjacency) {
  assert(has(adjacency));
  Side& side = sides_[static_cast<int>(adjacency)];
  if (edge_count_ == 0 || side.indices.size() != 0) return Status::Ok();
  if (!side.edits.empty()) {
    QUARRY_TRY(side.indices, LoadEdited(backend, adjacency, EdgeColumn::kNeighbors));
    return Status::Ok();
  }
  QUARRY_TRY(const Section section, data_.Find(SectionsOf(adjacency).indices, IndicesBytes()));
  QUARRY_TRY(IoBuffer indices, IoBuffer::Allocate(IndicesBytes()));
  QUARRY_RETURN_IF_ERROR(LoadPages(backend, data_, section, side.page_checksums, indices.span()));
  QUARRY_RETURN_IF_ERROR(CheckRange(adjacency, 0, indices.span()));
  side.indices = std::move(indices);
  return Status::Ok();
}

Result<IoBuffer> Topology::LoadEdited(IoBackend& backend, Adjacency side, EdgeColumn column) const {
  QUARRY_TRY(IoBuffer values, IoBuffer::Allocate(edge_count_ * sizeof(uint32_t)));
  QUARRY_TRY(const std::unique_ptr<EdgeColumnScanner> scanner,
             EdgeColumnScanner::Make(backend, *this, side, column));
  for (uint64_t done = 0; done < edge_count_;) {
    QUARRY_TRY(const std::span<const uint32_t> piece, scanner->Next());
    std::memcpy(values.data() + done * sizeof(uint32_t), piece.data(), piece.size_bytes());
    done += piece.size();
  }
  return values;
}

uint64_t Topology::WeightsBytes(const TopologyRecord& record) {
  return record.weighted ? IoBuffer::MappedBytes(record.edge_count * sizeof(float)) : 0;
}

Status Topology::LoadWeights(IoBackend& backend, Adjacency adjacency) {
  assert(has(adjacency));
  if (!weighted_) {
    return MakeStatus(
        Code::kInvalidArgument,
        "{}: the edges have no weights to draw by: import them with edge_weights.npy beside edges.npy",
        file().path());
  }
  Side& side = sides_[static_cast<int>(adjacency)];
  const uint64_t bytes = edge_count_ * sizeof(float);
  if (bytes == 0 || side.weights.size() != 0) return Status::Ok();
  if (!side.edits.empty()) {
    QUARRY_TRY(IoBuffer edited, LoadEdited(backend, adjacency, EdgeColumn::kWeights));
    QUARRY_RETURN_IF_ERROR(
        CheckWeights(adjacency, {reinterpret_cast<const float*>(edited.data()), edge_count_}));
    side.weights = std::move(edited);
    return Status::Ok();
  }
  QUARRY_TRY(const Section section, data_.Find(SectionsOf(adjacency).weights, bytes));
  QUARRY_TRY(const std::vector<uint32_t> checksums, LoadChecksums(backend, data_, section));
  QUARRY_TRY(IoBuffer weights, IoBuffer::Allocate(bytes));
  QUARRY_RETURN_IF_ERROR(LoadPages(backend, data_, section, checksums, weights.span()));
  QUARRY_RETURN_IF_ERROR(
      CheckWeights(adjacency, {reinterpret_cast<const float*>(weights.data()), edge_count_}));
  side.weights = std::move(weights);
  return Status::Ok();
}

Status Topology::SetWeights(Adjacency adjacency, std::span<const float> weights) {
  assert(has(adjacency) && weights.size() == edge_count_);
  QUARRY_RETURN_IF_ERROR(CheckWeights(adjacency, weights));
  weighted_ = true;
  if (weights.empty()) return Status::Ok();
  Side& side = sides_[static_cast<int>(adjacency)];
  QUARRY_TRY(side.weights, IoBuffer::Allocate(weights.size_bytes()));
  std::memcpy(side.weights.data(), weights.data(), weights.size_bytes());
  return Status::Ok();
}

// Weights may have any sign as what models multiply by, so imports take them; as chances they may not.
Status Topology::CheckWeights(Adjacency adjacency, std::span<const float> weights) const {
  const auto bad =
      std::ranges::find_if(weights, [](float weight) { return !(weight >= 0) || std::isinf(weight); });
  if (bad == weights.end()) return Status::Ok();
  const auto edge = static_cast<uint64_t>(bad - weights.begin());
  const std::span<const uint64_t> indptr = this->indptr(adjacency);
  const auto node = std::ranges::upper_bound(indptr, edge) - indptr.begin() - 1;
  return MakeStatus(Code::kInvalidArgument,
                    "{}: {}[{}], of an edge of node {}, is {}: draws need weights of 0 and more",
                    file().path(), SectionsOf(adjacency).weights, edge, node, *bad);
}

Status Topology::VerifyIndexPage(Adjacency adjacency, uint64_t page, std::span<const std::byte> bytes) const {
  const Side& side = sides_[static_cast<int>(adjacency)];
  assert(page < side.page_checksums.size() && bytes.size() == kPageBytes);
  constexpr uint64_t kIndicesPerPage = kPageBytes / sizeof(NodeId);
  const uint64_t first = page * kIndicesPerPage;
  const uint64_t end = std::min(first + kIndicesPerPage, base_edge_count_);
  const uint32_t computed = CellChecksum(bytes, page);
  if (computed == side.page_checksums[page]) [[likely]] {
    return CheckRange(adjacency, first, bytes.first((end - first) * sizeof(NodeId)));
  }
  return ChecksumFault(data_, side.indices_offset + page * kPageBytes,
                       fmt::format("{} {} to {}", SectionsOf(adjacency).indices, first, end - 1),
                       side.page_checksums[page], computed);
}

// All indices lie below node_count: they address feature rows and labels without further checks.
Status Topology::CheckRange(Adjacency adjacency, uint64_t first_edge,
                            std::span<const std::byte> indices) const {
  const std::span<const NodeId> ids(reinterpret_cast<const NodeId*>(indices.data()),
                                    indices.size() / sizeof(NodeId));
  NodeId max = 0;
  for (const NodeId id : ids) max = std::max(max, id);
  if (ids.empty() || max < node_count_) [[likely]] {
    return Status::Ok();
  }
  const auto found = std::find_if(ids.begin(), ids.end(), [&](NodeId id) { return id >= node_count_; });
  return MakeStatus(Code::kCorruption, "{}: {}[{}] = {}, and there are {} nodes", file().path(),
                    SectionsOf(adjacency).indices, first_edge + static_cast<uint64_t>(found - ids.begin()),
                    *found, node_count_);
}

}  // namespace quarry
