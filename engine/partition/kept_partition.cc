#include "kept_partition.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint32_t kNoPart = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kReportEvery = 1 << 20;  // edges

// A new node and one of its neighbors.
uint64_t PairOf(NodeId node, NodeId neighbor) { return uint64_t{node} << 32 | neighbor; }

// Calls take(pair) for every end of an edge that is a new node; loops have none.
template <typename Take>
Status ForEachNewEnd(EdgeSource& edges, uint64_t first_new, const PartitionContext& context,
                     const Take& take) {
  uint64_t done = 0;
  Status told;
  QUARRY_RETURN_IF_ERROR(ForEachEdge(edges, [&](const NodePair& edge) {
    if (++done % kReportEvery == 0 && told.ok()) {
      told = context.Report("placing new nodes", done, edges.edge_count());
    }
    if (edge.source == edge.destination) return;
    if (edge.source >= first_new) take(PairOf(edge.source, edge.destination));
    if (edge.destination >= first_new) take(PairOf(edge.destination, edge.source));
  }));
  return told;
}

// Where nodes go, one after the other.
class Places {
 public:
  Places(Assignment& assignment, uint64_t capacity)
      : assignment_(assignment), sizes_(assignment.parts), seen_(assignment.parts), capacity_(capacity) {
    for (const uint32_t part : assignment.part_of) {
      if (part != kNoPart) ++sizes_[part];
    }
  }

  void Place(NodeId node, std::span<const uint64_t> pairs) {
    std::ranges::fill(seen_, 0);
    for (const uint64_t pair : pairs) {
      const uint32_t part = assignment_.part_of[static_cast<NodeId>(pair)];
      if (part != kNoPart) ++seen_[part];
    }
    uint32_t best = kNoPart;
    for (uint32_t part = 0; part < assignment_.parts; ++part) {
      if (sizes_[part] >= capacity_) continue;
      if (best == kNoPart || seen_[part] > seen_[best] ||
          (seen_[part] == seen_[best] && sizes_[part] < sizes_[best])) {
        best = part;
      }
    }
    ++sizes_[best];
    assignment_.part_of[node] = best;
  }

 private:
  Assignment& assignment_;
  std::vector<uint64_t> sizes_;
  std::vector<uint64_t> seen_;  // neighbors of the node, by part
  const uint64_t capacity_;
};

}  // namespace

Result<Assignment> PartitionByKeeping(EdgeSource& edges, std::span<const uint32_t> kept, uint32_t parts,
                                      const PartitionContext& context) {
  const uint64_t nodes = edges.node_count(), first_new = kept.size();
  if (first_new > nodes) {
    return MakeStatus(Code::kInvalidArgument, "{} nodes keep their parts, and the graph has {}", first_new,
                      nodes);
  }
  const auto outside = std::ranges::find_if(kept, [&](uint32_t part) { return part >= parts; });
  if (outside != kept.end()) {
    return MakeStatus(Code::kInvalidArgument, "node {} keeps part {} of {}", outside - kept.begin(), *outside,
                      parts);
  }
  QUARRY_TRY(const auto reservation,
             context.budget.Reserve(nodes * sizeof(uint32_t), "the part of each node"));
  Assignment assignment{.parts = parts, .part_of = {}};
  assignment.part_of.reserve(nodes);
  assignment.part_of.assign(kept.begin(), kept.end());
  assignment.part_of.resize(nodes, kNoPart);
  if (first_new == nodes) return assignment;

  uint64_t count = 0;
  QUARRY_RETURN_IF_ERROR(ForEachNewEnd(edges, first_new, context, [&](uint64_t) { ++count; }));
  QUARRY_TRY(const auto pairs_reservation,
             context.budget.Reserve(count * sizeof(uint64_t), "the neighbors of new nodes"));
  std::vector<uint64_t> pairs;
  pairs.reserve(count);
  QUARRY_RETURN_IF_ERROR(
      ForEachNewEnd(edges, first_new, context, [&](uint64_t pair) { pairs.push_back(pair); }));
  std::ranges::sort(pairs);
  Places places(assignment, CeilDiv(nodes, uint64_t{parts}));
  auto begin = pairs.begin();
  for (uint64_t node = first_new; node < nodes; ++node) {
    const auto end = std::find_if(begin, pairs.end(), [&](uint64_t pair) { return pair >> 32 != node; });
    places.Place(static_cast<NodeId>(node), std::span(begin, end));
    begin = end;
  }
  return assignment;
}

}  // namespace quarry
