#include "range_edges.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"
#include "quarry/sampling/sampler.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/scanner.h"
#include "resize_void.h"

namespace quarry {
RangeEdges::RangeEdges(IoBackend& backend, const Topology& topology, Direction direction, uint64_t block_rows)
    : backend_(backend),
      topology_(topology),
      sides_(SidesOf(direction)),
      block_rows_(block_rows),
      block_count_(CeilDiv(topology.node_count(), block_rows)) {}

uint64_t RangeEdges::ListSize(NodeId node) const { return CountEdges(node, uint64_t{node} + 1); }

uint64_t RangeEdges::CountEdges(uint64_t first, uint64_t end) const {
  uint64_t count = 0;
  for (const Adjacency side : sides_) count += topology_.indptr(side)[end] - topology_.indptr(side)[first];
  return count;
}

std::vector<std::vector<RangeEdges::Piece>> RangeEdges::Sweeps(uint64_t first, uint64_t end,
                                                               uint64_t edges_max) const {
  std::vector<std::vector<Piece>> sweeps(1);
  uint64_t left = edges_max;
  for (const Adjacency side : sides_) {
    const std::span<const uint64_t> indptr = topology_.indptr(side);
    for (uint64_t edge = indptr[first]; edge < indptr[end];) {
      if (left == 0) {
        sweeps.emplace_back();
        left = edges_max;
      }
      const uint64_t count = std::min(left, indptr[end] - edge);
      sweeps.back().push_back({side, edge, edge + count});
      edge += count;
      left -= count;
    }
  }
  return sweeps;
}

Status RangeEdges::Read(Adjacency side, uint64_t begin, std::span<NodeId> out) {
  if (out.empty()) return Status::Ok();
  if (const std::span<const NodeId> held = topology_.indices(side); !held.empty()) {
    std::ranges::copy(held.subspan(begin, out.size()), out.begin());
    return Status::Ok();
  }
  if (!topology_.edits(side).empty()) return ReadEdited(side, begin, out);
  const uint64_t first_byte = begin * sizeof(NodeId), end_byte = (begin + out.size()) * sizeof(NodeId);
  const uint64_t start = RoundDown(first_byte, kPageBytes);
  QUARRY_TRY(const auto scanner, FileScanner::Make(backend_, topology_.file(),
                                                   topology_.indices_offset(side) + start, end_byte - start));
  auto* to = reinterpret_cast<std::byte*>(out.data());
  for (uint64_t at = start; at < end_byte;) {
    QUARRY_TRY(const std::span<const std::byte> piece, scanner->Next());
    for (uint64_t page = 0; page < piece.size(); page += kPageBytes) {
      QUARRY_RETURN_IF_ERROR(
          topology_.VerifyIndexPage(side, (at + page) / kPageBytes, piece.subspan(page, kPageBytes)));
    }
    read_bytes_ += piece.size();
    const uint64_t from = std::max(at, first_byte), until = std::min(at + piece.size(), end_byte);
    std::memcpy(to, piece.data() + (from - at), until - from);
    to += until - from;
    at += piece.size();
  }
  return Status::Ok();
}

// Edges that came or went since the file was written lie beside it.
Status RangeEdges::ReadEdited(Adjacency side, uint64_t begin, std::span<NodeId> out) {
  constexpr uint64_t kPieceEdges = kMiB / sizeof(NodeId);
  QUARRY_TRY(const auto reader, EdgeColumnReader::Make(backend_, topology_, side, EdgeColumn::kNeighbors));
  for (uint64_t at = 0; at < out.size();) {
    const uint64_t count = std::min<uint64_t>(kPieceEdges, out.size() - at);
    QUARRY_TRY(const std::span<const uint32_t> piece, reader->Read(begin + at, begin + at + count));
    std::ranges::copy(piece, out.begin() + static_cast<ptrdiff_t>(at));
    at += count;
  }
  read_bytes_ += RoundUp(out.size() * sizeof(NodeId), kPageBytes);
  return Status::Ok();
}

Status RangeEdges::Load(uint64_t first_node, std::span<const Piece> pieces) {
  uint64_t count = 0;
  for (const Piece& piece : pieces) count += piece.end - piece.begin;
  Release();
  read_.resize(count);
  uint64_t at = 0;
  for (const Piece& piece : pieces) {
    const uint64_t edges = piece.end - piece.begin;
    QUARRY_RETURN_IF_ERROR(Read(piece.side, piece.begin, std::span(read_).subspan(at, edges)));
    at += edges;
  }
  Sort(first_node, pieces);
  return Status::Ok();
}

// Counts, then puts each edge behind those of its block and side that came before.
void RangeEdges::Sort(uint64_t first_node, std::span<const Piece> pieces) {
  const size_t side_count = sides_.size();
  nodes_.resize(read_.size());
  sources_.resize(read_.size());
  offsets_.assign(block_count_ * side_count + 1, 0);
  const auto slot = [&](const Piece& piece, NodeId source) {
    const size_t side = piece.side == sides_.front() ? 0 : 1;
    return source / block_rows_ * side_count + side;
  };
  uint64_t at = 0;
  for (const Piece& piece : pieces) {
    for (uint64_t edge = piece.begin; edge < piece.end; edge++) offsets_[slot(piece, read_[at++]) + 1]++;
  }
  for (size_t i = 1; i < offsets_.size(); i++) offsets_[i] += offsets_[i - 1];
  // offsets_[slot] is where its next edge goes, and so its end in the end: it is moved back afterwards.
  at = 0;
  for (const Piece& piece : pieces) {
    const std::span<const uint64_t> indptr = topology_.indptr(piece.side);
    uint64_t node = first_node;
    for (uint64_t edge = piece.begin; edge < piece.end; edge++) {
      while (indptr[node + 1] <= edge) node++;
      const NodeId source = read_[at++];
      const uint64_t to = offsets_[slot(piece, source)]++;
      nodes_[to] = static_cast<uint32_t>(node - first_node);
      sources_[to] = static_cast<uint32_t>(source % block_rows_);
    }
  }
  for (size_t i = offsets_.size() - 1; i > 0; i--) offsets_[i] = offsets_[i - 1];
  offsets_[0] = 0;
}

void RangeEdges::Release() {
  GiveBack(read_);
  GiveBack(nodes_);
  GiveBack(sources_);
}

RangeEdges::Bucket RangeEdges::Of(uint64_t block, size_t side) const {
  const size_t slot = block * sides_.size() + side;
  const uint64_t first = offsets_[slot], count = offsets_[slot + 1] - first;
  return {std::span(nodes_).subspan(first, count), std::span(sources_).subspan(first, count)};
}

bool RangeEdges::Has(uint64_t block) const {
  return offsets_[(block + 1) * sides_.size()] > offsets_[block * sides_.size()];
}

}  // namespace quarry
