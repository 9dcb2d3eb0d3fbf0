// Holds a block against the graph that it was sampled from.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "quarry/sampling/sampler.h"
#include "sampling/graphs.h"

namespace quarry {

// A node's lists strung together, as the direction asks for them.
inline std::vector<NodeId> NeighborsOf(const Graph& graph, Direction direction, NodeId node) {
  std::vector<NodeId> neighbors;
  const auto add = [&](const NeighborLists& lists) {
    const auto list = lists.Of(node);
    neighbors.insert(neighbors.end(), list.begin(), list.end());
  };
  if (direction != Direction::kOut) add(graph.csc);
  if (direction != Direction::kIn) add(graph.csr);
  return neighbors;
}

// Every requirement on a block but its randomness.
inline void ExpectValidBlock(const Block& block, const Graph& graph, Direction direction,
                             std::span<const uint32_t> fanouts, std::span<const NodeId> seeds) {
  ASSERT_EQ(block.view().hops(), fanouts.size());
  ASSERT_EQ(block.seed_count(), seeds.size());
  ASSERT_TRUE(std::ranges::equal(block.view().seeds(), seeds));
  ASSERT_EQ(block.hop_offsets.back(), block.nodes.size());
  ASSERT_EQ(block.indptr.size(), block.hop_offsets[block.view().hops() - 1] + size_t{1});
  ASSERT_EQ(block.indptr.front(), 0);
  ASSERT_EQ(block.indptr.back(), block.indices.size());
  std::vector<NodeId> sorted = block.nodes;
  std::sort(sorted.begin(), sorted.end());
  ASSERT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end())
      << "a node stands twice in the block";

  uint32_t known = block.seed_count();  // nodes met so far, in the order of the block's edges
  uint32_t v = 0;
  for (uint32_t hop = 0; hop < block.view().hops(); ++hop) {
    ASSERT_EQ(block.hop_offsets[hop], known);
    for (; v < block.hop_offsets[hop]; ++v) {
      const std::vector<NodeId> list = NeighborsOf(graph, direction, block.nodes[v]);
      ASSERT_LE(block.indptr[v], block.indptr[v + 1]);
      ASSERT_EQ(block.indptr[v + 1] - block.indptr[v], std::min<size_t>(fanouts[hop], list.size()));
      std::vector<NodeId> sampled;
      for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; ++e) {
        ASSERT_LE(block.indices[e], known) << "nodes do not stand in the order of discovery";
        known = std::max(known, block.indices[e] + 1);
        ASSERT_LE(known, block.nodes.size());
        sampled.push_back(block.nodes[block.indices[e]]);
      }
      if (list.size() <= fanouts[hop]) {
        ASSERT_EQ(sampled, list);
        continue;
      }
      // Each position at most once: no neighbor more often than the list holds it.
      std::map<NodeId, int> left;
      for (const NodeId neighbor : list) ++left[neighbor];
      for (const NodeId neighbor : sampled) ASSERT_GE(--left[neighbor], 0) << "of node " << block.nodes[v];
    }
  }
  ASSERT_EQ(known, block.nodes.size());
}

// Every edge of a block along kIn has the id of an edge between its nodes; a list's are distinct, unless they
// were drawn with replacement.
inline void ExpectEdgeIds(const Block& block, const Graph& graph, bool replace) {
  ASSERT_EQ(block.edge_ids.size(), block.indices.size());
  for (uint32_t v = 0; v + 1 < block.indptr.size(); ++v) {
    const NodeId node = block.nodes[v];
    std::set<uint64_t> drawn;
    for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; ++e) {
      const uint64_t id = block.edge_ids[e];
      ASSERT_GE(id, graph.csc.indptr[node]);
      ASSERT_LT(id, graph.csc.indptr[node + 1]);
      ASSERT_EQ(graph.csc.indices[id], block.nodes[block.indices[e]]) << "edge " << id << " into " << node;
      drawn.insert(id);
    }
    if (replace) continue;
    ASSERT_EQ(drawn.size(), block.indptr[v + 1] - block.indptr[v]) << "of node " << node;
  }
}

inline bool SameBlock(const Block& a, const Block& b) {
  return a.nodes == b.nodes && a.hop_offsets == b.hop_offsets && a.indptr == b.indptr &&
         a.indices == b.indices && a.edge_ids == b.edge_ids;
}

}  // namespace quarry
