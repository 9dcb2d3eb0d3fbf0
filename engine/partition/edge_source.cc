#include "quarry/partition/edge_source.h"

#include <algorithm>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kTopologyPieceBytes = 256 * kKiB;

}  // namespace

Result<size_t> ArrayEdges::Read(std::span<NodePair> out) {
  const size_t count = std::min<size_t>(out.size(), edges_.size() - next_);
  std::copy_n(edges_.begin() + static_cast<std::ptrdiff_t>(next_), count, out.begin());
  next_ += count;
  return count;
}

Result<std::unique_ptr<TopologyEdges>> TopologyEdges::Make(IoBackend& backend, const Topology& topology,
                                                           MemoryBudget& budget) {
  std::unique_ptr<TopologyEdges> edges(new TopologyEdges(backend, topology));
  if (topology.indices(Adjacency::kCsc).empty()) {
    const uint64_t bytes = IoBuffer::MappedBytes(EdgeColumnScanner::MemoryBytes(kTopologyPieceBytes));
    QUARRY_TRY(edges->reservation_, budget.Reserve(bytes, "reading the edges of a topology"));
  }
  return edges;
}

Status TopologyEdges::Rewind() {
  next_ = 0;
  destination_ = 0;
  scanner_ = nullptr;
  piece_ = topology_.indices(Adjacency::kCsc);
  if (!piece_.empty() || edge_count() == 0) return Status::Ok();
  QUARRY_TRY(scanner_, EdgeColumnScanner::Make(backend_, topology_, Adjacency::kCsc, EdgeColumn::kNeighbors,
                                               kTopologyPieceBytes));
  return Status::Ok();
}

Result<size_t> TopologyEdges::Read(std::span<NodePair> out) {
  const std::span<const uint64_t> indptr = topology_.indptr(Adjacency::kCsc);
  size_t filled = 0;
  while (filled < out.size() && next_ < edge_count()) {
    if (piece_.empty()) {
      QUARRY_TRY(piece_, scanner_->Next());
    }
    const size_t count = std::min(piece_.size(), out.size() - filled);
    for (const NodeId source : piece_.first(count)) {
      while (indptr[destination_ + 1] <= next_) ++destination_;
      out[filled++] = {.source = source, .destination = destination_};
      ++next_;
    }
    piece_ = piece_.subspan(count);
  }
  return filled;
}

}  // namespace quarry
