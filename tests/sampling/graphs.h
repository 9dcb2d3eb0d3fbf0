// Small random graphs, as both sides of a topology.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "sampling/topology_file.h"

namespace quarry {

struct Graph {
  NeighborLists csc;
  NeighborLists csr;
  uint64_t node_count() const { return csc.indptr.size() - 1; }
};

// The lists of `to` (edge.second), each ascending; multi-edges stay.
inline NeighborLists ListsOf(std::vector<std::pair<NodeId, NodeId>> edges, uint64_t node_count) {
  std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second, a.first) < std::pair(b.second, b.first);
  });
  NeighborLists lists;
  lists.indptr.assign(node_count + 1, 0);
  for (const auto& [from, to] : edges) {
    ++lists.indptr[to + 1];
    lists.indices.push_back(from);
  }
  for (uint64_t v = 0; v < node_count; ++v) lists.indptr[v + 1] += lists.indptr[v];
  return lists;
}

// Both ends of an edge are skewed towards a few hubs, more so the larger `skew` (0 = uniform), so that lists
// are empty, short and long, and hold some neighbors several times.
inline Graph RandomGraph(Rng& rng, uint64_t node_count, uint64_t edge_count, int skew) {
  const auto draw = [&] {
    double x = 1;
    for (int i = 0; i <= skew; ++i) x *= rng.Unit();
    return static_cast<NodeId>(Mix64(static_cast<uint64_t>(x * static_cast<double>(node_count))) %
                               node_count);
  };
  std::vector<std::pair<NodeId, NodeId>> edges(edge_count);
  for (auto& [from, to] : edges) {
    from = draw();
    to = draw();
  }
  Graph graph;
  graph.csc = ListsOf(edges, node_count);
  for (auto& [from, to] : edges) std::swap(from, to);
  graph.csr = ListsOf(std::move(edges), node_count);
  return graph;
}

// Weights of many sizes, of which a fifth are 0. Edges have other weights in the other direction: no test asks.
inline void AddWeights(Rng& rng, Graph& graph) {
  for (NeighborLists* const lists : {&graph.csc, &graph.csr}) {
    lists->weights.resize(lists->indices.size());
    for (float& weight : lists->weights) {
      weight = rng.Below(5) == 0 ? 0.0F : static_cast<float>(std::exp(6 * rng.Unit() - 3));
    }
  }
}

inline std::unique_ptr<Topology> InMemory(const Graph& graph) {
  auto topology =
      Topology::FromMemory(graph.csc.indptr, graph.csc.indices, graph.csr.indptr, graph.csr.indices);
  if (!topology.ok()) return nullptr;
  if (graph.csc.weights.empty()) return std::move(topology).value();
  if (!(*topology)->SetWeights(Adjacency::kCsc, graph.csc.weights).ok()) return nullptr;
  if (graph.csr.indptr.size() > 1 && !(*topology)->SetWeights(Adjacency::kCsr, graph.csr.weights).ok())
    return nullptr;
  return std::move(topology).value();
}

// `count` distinct nodes; all of them when there are no more.
inline std::vector<NodeId> RandomSeeds(Rng& rng, uint64_t node_count, size_t count) {
  std::vector<NodeId> nodes(node_count);
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = static_cast<NodeId>(i);
  count = std::min<size_t>(count, node_count);
  for (size_t i = 0; i < count; ++i) std::swap(nodes[i], nodes[i + rng.Below(nodes.size() - i)]);
  nodes.resize(count);
  return nodes;
}

}  // namespace quarry
