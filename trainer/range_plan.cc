#include "range_plan.h"

#include <algorithm>
#include <cmath>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"
#include "quarry/sampling/sampler.h"

namespace quarry {
namespace {

constexpr uint64_t kSamplePlaces = 64;  // of each side, a page of edges each
constexpr uint64_t kEdgesMin =
    65536;  // fewer in memory at a time would make more sweeps than edges are worth

// What a node of a range holds.
uint64_t NodeBytes(const GraphForm& form, bool keeps_own) {
  return (uint64_t{form.state} + (keeps_own ? form.message : 0)) * sizeof(float) + sizeof(uint64_t);
}

// Rows that sweeps over the range read, beside its own where these come first: blocks in which one of its edges ends, by
// the distances of a few edges, and as if each edge of a distance went to any place at that distance.
double ExpectedRows(const NodeRange& range, const EdgeSample::Distances& distances, uint64_t node_count,
                    uint64_t block_rows, bool has_own) {
  const auto begin = static_cast<int64_t>(range.first / block_rows);
  const auto end = static_cast<int64_t>(CeilDiv(range.end, block_rows));
  const auto blocks = static_cast<int64_t>(CeilDiv(node_count, block_rows));
  const double edges_of_block =
      static_cast<double>(range.edges) / static_cast<double>(range.sweeps) / static_cast<double>(end - begin);
  double rows = 0;
  for (int64_t block = 0; block < blocks; block++) {
    const bool own = block >= begin && block < end;
    if (own && has_own) continue;
    const double edges = edges_of_block * (distances.UpTo(block - begin) - distances.UpTo(block - end));
    const uint64_t first = static_cast<uint64_t>(block) * block_rows;
    const auto in_block = static_cast<double>(std::min(block_rows, node_count - first));
    rows += in_block * (own ? 1.0 : 1.0 - std::exp(-edges));
  }
  return rows * static_cast<double>(range.sweeps);
}

}  // namespace

Result<EdgeSample> EdgeSample::Draw(const Topology& topology, RangeEdges& edges) {
  constexpr uint64_t kPlaceEdges = kPageBytes / sizeof(NodeId);
  EdgeSample sample;
  std::vector<NodeId> others(kPlaceEdges);
  const uint64_t pages = CeilDiv(topology.edge_count(), kPlaceEdges);
  const uint64_t places = std::min(kSamplePlaces, pages);
  for (const Adjacency side : edges.sides()) {
    const std::span<const uint64_t> indptr = topology.indptr(side);
    for (uint64_t place = 0; place < places; place++) {
      const uint64_t begin = pages * place / places * kPlaceEdges;
      const uint64_t count = std::min(kPlaceEdges, topology.edge_count() - begin);
      QUARRY_RETURN_IF_ERROR(edges.Read(side, begin, std::span(others).first(count)));
      uint64_t node = static_cast<uint64_t>(std::ranges::upper_bound(indptr, begin) - indptr.begin()) - 1;
      for (uint64_t i = 0; i < count; i++) {
        while (indptr[node + 1] <= begin + i) node++;
        sample.edges_.emplace_back(static_cast<NodeId>(node), others[i]);
      }
    }
  }
  return sample;
}

EdgeSample::Distances::Distances(const EdgeSample& sample, uint64_t block_rows, uint64_t block_count)
    : block_count_(static_cast<int64_t>(block_count)), shares_(2 * block_count + 1) {
  if (sample.edges_.empty()) return;
  const double share = 1 / static_cast<double>(sample.edges_.size());
  for (const auto& [node, other] : sample.edges_) {
    shares_[other / block_rows + block_count - node / block_rows] += share;
  }
  for (size_t i = 1; i < shares_.size(); i++) shares_[i] += shares_[i - 1];
}

double EdgeSample::Distances::UpTo(int64_t blocks) const {
  return shares_[static_cast<size_t>(std::clamp(blocks + block_count_, int64_t{0}, 2 * block_count_))];
}

Result<RangePlan> RangePlan::Make(const GraphForm& form, const RangeEdges& edges, uint64_t node_count,
                                  uint64_t block_rows, const EdgeSample& sample, uint64_t memory_bytes) {
  const uint64_t block_count = CeilDiv(node_count, block_rows);
  const uint64_t of_blocks = block_count * RangeEdges::kBlockBytes;
  const EdgeSample::Distances distances(sample, block_rows, block_count);
  const auto cut = [&](bool keeps_own) {
    RangePlan plan{.keeps_own = keeps_own};
    const uint64_t node_bytes = NodeBytes(form, keeps_own);
    for (uint64_t first = 0; first < node_count;) {
      NodeRange range{.first = first, .end = first};
      while (range.end < node_count) {
        const uint64_t end = std::min(node_count, range.end + block_rows);
        const uint64_t with = range.edges + edges.CountEdges(range.end, end);
        const uint64_t bytes = of_blocks + (end - first) * node_bytes + with * RangeEdges::kEdgeBytes;
        if (range.end > first && bytes > memory_bytes) break;
        range.end = end;
        range.edges = with;
      }
      // A block's edges may be more than have room.
      const uint64_t own = of_blocks + (range.end - first) * node_bytes;
      const uint64_t room = memory_bytes > own ? (memory_bytes - own) / RangeEdges::kEdgeBytes : 0;
      range.sweeps = std::max<uint64_t>(1, CeilDiv(range.edges, std::max(room, kEdgesMin)));
      plan.bytes = std::max(plan.bytes, own + range.edges_max() * RangeEdges::kEdgeBytes);
      plan.nodes_max = std::max(plan.nodes_max, range.end - first);
      plan.rows_read += ExpectedRows(range, distances, node_count, block_rows, keeps_own);
      plan.ranges.push_back(range);
      first = range.end;
    }
    if (form.own_first) plan.rows_read += static_cast<double>(node_count);
    return plan;
  };
  RangePlan best = cut(false);
  if (form.own_first) {
    RangePlan keeping = cut(true);
    if (keeping.rows_read < best.rows_read && keeping.bytes <= memory_bytes) best = std::move(keeping);
  }
  if (best.bytes <= memory_bytes) return best;
  return MakeStatus(
      Code::kOutOfBudget,
      "a layer of the whole graph takes {} for {} nodes and their edges at a time, and {} is left",
      FormatBytes(best.bytes), best.nodes_max, FormatBytes(memory_bytes));
}

}  // namespace quarry
