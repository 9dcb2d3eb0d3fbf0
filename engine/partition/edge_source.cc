#include "quarry/partition/edge_source.h"

#include <algorithm>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"

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
    const uint64_t bytes = IoBuffer::MappedBytes(FileScanner::kDepth * kTopologyPieceBytes);
    QUARRY_TRY(edges->reservation_, budget.Reserve(bytes, "reading the edges of a topology"));
  }
  return edges;
}

Status TopologyEdges::Rewind() {
  next_ = next_page_ = 0;
  destination_ = 0;
  scanner_ = nullptr;
  piece_ = topology_.indices(Adjacency::kCsc);
  if (!piece_.empty() || edge_count() == 0) return Status::Ok();
  QUARRY_TRY(scanner_,
             FileScanner::Make(backend_, topology_.file(), topology_.indices_offset(Adjacency::kCsc),
                               topology_.IndicesBytes(), kTopologyPieceBytes));
  return Status::Ok();
}

Status TopologyEdges::NextPiece() {
  QUARRY_TRY(const std::span<const std::byte> bytes, scanner_->Next());
  for (uint64_t at = 0; at < bytes.size(); at += kPageBytes) {
    QUARRY_RETURN_IF_ERROR(
        topology_.VerifyIndexPage(Adjacency::kCsc, next_page_++, bytes.subspan(at, kPageBytes)));
  }
  // The last page is padded.
  const uint64_t count = std::min(bytes.size() / sizeof(NodeId), edge_count() - next_);
  piece_ = {reinterpret_cast<const NodeId*>(bytes.data()), count};
  return Status::Ok();
}

Result<size_t> TopologyEdges::Read(std::span<NodePair> out) {
  const std::span<const uint64_t> indptr = topology_.indptr(Adjacency::kCsc);
  size_t filled = 0;
  while (filled < out.size() && next_ < edge_count()) {
    if (piece_.empty()) QUARRY_RETURN_IF_ERROR(NextPiece());
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
