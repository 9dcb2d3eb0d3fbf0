#include "undirected_graph.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace quarry {
namespace {

// A loop joins a node to no other.
template <typename Take>
Status ForEachJoin(EdgeSource& edges, const Take& take) {
  return ForEachEdge(edges, [&](const NodePair& edge) {
    if (edge.source != edge.destination) take(edge);
  });
}

// Lists are ascending; equal neighbors become one with a weight. In place.
void MergeParallel(UndirectedGraph& graph) {
  graph.weights.resize(graph.neighbors.size());
  uint64_t kept = 0, begin = 0;
  for (uint64_t v = 0; v < graph.node_count(); ++v) {
    const uint64_t end = graph.indptr[v + 1];
    const uint64_t first = kept;
    for (uint64_t i = begin; i < end; ++i) {
      if (kept > first && graph.neighbors[kept - 1] == graph.neighbors[i]) {
        ++graph.weights[kept - 1];
      } else {
        graph.weights[kept] = 1;
        graph.neighbors[kept++] = graph.neighbors[i];
      }
    }
    graph.indptr[v + 1] = kept;
    begin = end;
  }
  graph.neighbors.resize(kept);
  graph.weights.resize(kept);
}

// The weight of a node's edges into each part, for the parts that it touches.
class PartTally {
 public:
  explicit PartTally(size_t parts) : weights_(parts) {}
  void Count(const UndirectedGraph& graph, uint64_t node, std::span<const uint32_t> part_of) {
    for (const uint32_t part : touched_) weights_[part] = 0;
    touched_.clear();
    const std::span<const NodeId> list = graph.Of(node);
    for (size_t i = 0; i < list.size(); ++i) {
      const uint32_t part = part_of[list[i]];
      if (weights_[part] == 0) touched_.push_back(part);
      weights_[part] += graph.weights.empty() ? 1 : graph.WeightsOf(node)[i];
    }
  }
  std::span<const uint32_t> touched() const { return touched_; }
  int64_t operator[](uint32_t part) const { return weights_[part]; }

 private:
  std::vector<int64_t> weights_;
  std::vector<uint32_t> touched_;
};

}  // namespace

Result<UndirectedGraph> MakeUndirectedGraph(EdgeSource& edges, bool merged) {
  UndirectedGraph graph;
  graph.indptr.assign(edges.node_count() + 1, 0);
  QUARRY_RETURN_IF_ERROR(ForEachJoin(edges, [&](const NodePair& edge) {
    ++graph.indptr[edge.source];
    ++graph.indptr[edge.destination];
  }));
  // Each entry becomes the start of its list, which grows to its end as the list is filled.
  uint64_t start = 0;
  for (uint64_t& entry : graph.indptr) start += std::exchange(entry, start);
  graph.neighbors.resize(start);
  QUARRY_RETURN_IF_ERROR(ForEachJoin(edges, [&](const NodePair& edge) {
    graph.neighbors[graph.indptr[edge.source]++] = edge.destination;
    graph.neighbors[graph.indptr[edge.destination]++] = edge.source;
  }));
  std::copy_backward(graph.indptr.begin(), graph.indptr.end() - 1, graph.indptr.end());
  graph.indptr[0] = 0;
  for (uint64_t v = 0; v < graph.node_count(); ++v) {
    std::sort(graph.neighbors.begin() + static_cast<std::ptrdiff_t>(graph.indptr[v]),
              graph.neighbors.begin() + static_cast<std::ptrdiff_t>(graph.indptr[v + 1]));
  }
  if (merged) MergeParallel(graph);
  return graph;
}

void MoveExcess(const UndirectedGraph& graph, std::span<const uint64_t> capacities,
                std::span<uint32_t> part_of) {
  std::vector<uint64_t> sizes(capacities.size());
  for (const uint32_t part : part_of) ++sizes[part];
  const auto overfull = [&](uint32_t part) { return sizes[part] > capacities[part]; };
  const auto has_room = [&](uint32_t part) { return sizes[part] < capacities[part]; };
  struct Candidate {
    int64_t loss;
    NodeId node;
  };
  std::vector<Candidate> candidates;
  PartTally tally(capacities.size());
  for (uint64_t v = 0; v < part_of.size(); ++v) {
    if (!overfull(part_of[v])) continue;
    tally.Count(graph, v, part_of);
    int64_t best = 0;
    for (const uint32_t part : tally.touched()) {
      if (part != part_of[v] && has_room(part)) best = std::max(best, tally[part]);
    }
    candidates.push_back({.loss = tally[part_of[v]] - best, .node = static_cast<NodeId>(v)});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.loss != b.loss ? a.loss < b.loss : a.node < b.node;
  });
  uint32_t with_room = 0;  // parts before it are full
  for (const Candidate& candidate : candidates) {
    uint32_t& part = part_of[candidate.node];
    if (!overfull(part)) continue;
    tally.Count(graph, candidate.node, part_of);
    while (!has_room(with_room)) ++with_room;
    uint32_t to = with_room;
    for (const uint32_t other : tally.touched()) {
      const bool better = tally[other] > tally[to] || (tally[other] == tally[to] && other < to);
      if (has_room(other) && better) to = other;
    }
    --sizes[part];
    ++sizes[to];
    part = to;
  }
}

void FillByBreadthFirst(const UndirectedGraph& graph, std::span<const uint64_t> capacities,
                        std::span<uint32_t> part_of) {
  const uint64_t node_count = graph.node_count();
  std::vector<NodeId> queue;
  queue.reserve(node_count);
  std::vector<bool> seen(node_count);
  const auto visit = [&](NodeId node) {
    if (!seen[node]) queue.push_back(node);
    seen[node] = true;
  };
  uint64_t next_root = 0;
  for (size_t at = 0; at < node_count; ++at) {
    while (at == queue.size()) visit(static_cast<NodeId>(next_root++));
    for (const NodeId neighbor : graph.Of(queue[at])) visit(neighbor);
  }
  // Part i takes nodes up to its share of all: (capacities 0 to i) / (all capacities).
  const auto all = static_cast<uint128_t>(std::accumulate(capacities.begin(), capacities.end(), uint64_t{0}));
  uint64_t at = 0, capacity = 0;
  for (uint32_t part = 0; part < capacities.size(); ++part) {
    capacity += capacities[part];
    const auto end = static_cast<uint64_t>(static_cast<uint128_t>(node_count) * capacity / all);
    for (; at < end; ++at) part_of[queue[at]] = part;
  }
}

}  // namespace quarry
