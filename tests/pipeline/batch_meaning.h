// What batches are, whichever layout they come from: for tests that hold one against another.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/tiny_database.h"
#include "quarry/format/node_types.h"
#include "quarry/pipeline/batch_stream.h"

namespace quarry::testing_util {

// What a batch means, whatever its local ids: the nodes of each hop group, their rows and labels, and the
// edges.
struct Meaning {
  std::vector<std::map<NodeId, std::vector<std::byte>>> groups;
  std::map<NodeId, int64_t> labels;
  std::multiset<std::pair<NodeId, NodeId>> edges;
  std::multiset<std::tuple<NodeId, NodeId, uint64_t>> edge_ids;   // with their ids, where the batch has them
  std::multiset<std::tuple<NodeId, NodeId, uint16_t>> relations;  // with theirs
  bool operator==(const Meaning&) const = default;
};

// `types`: of the nodes, where rows are as long as their type says.
inline Meaning MeaningOf(const Batch& batch, const NodeTypes& types = {}) {
  Meaning meaning;
  const BatchView& block = batch.view();
  const FeatureView& features = block.features;
  const auto bytes_of = [&](NodeId node) {
    if (types.empty()) return RowBytes(features.element_type, features.dim);
    const TypeRows& rows = block.type_rows[types.TypeOf(node)];
    return rows.dim == 0 ? 0 : RowBytes(rows.element_type, rows.dim);
  };
  uint32_t v = 0;
  for (const uint32_t end : block.hop_offsets) {
    auto& group = meaning.groups.emplace_back();
    for (; v < end; ++v) {
      const std::byte* row = features.Row(v);
      group.emplace(block.nodes[v], std::vector<std::byte>(row, row + bytes_of(block.nodes[v])));
    }
  }
  for (uint32_t s = 0; s < block.seed_count; ++s) meaning.labels[block.nodes[s]] = block.labels[s];
  for (size_t t = 0; t + 1 < block.indptr.size(); ++t) {
    for (uint32_t e = block.indptr[t]; e < block.indptr[t + 1]; ++e) {
      meaning.edges.emplace(block.nodes[block.indices[e]], block.nodes[t]);
      if (!block.relations.empty())
        meaning.relations.emplace(block.nodes[block.indices[e]], block.nodes[t], block.relations[e]);
      if (block.edge_ids.empty()) continue;
      meaning.edge_ids.emplace(block.nodes[block.indices[e]], block.nodes[t], block.edge_ids[e]);
    }
  }
  return meaning;
}

inline Result<std::vector<Meaning>> RunEpoch(Road& road, const std::vector<NodeId>& seeds, uint64_t pass,
                                             StreamStats* stats = nullptr, const NodeTypes& types = {}) {
  QUARRY_TRY(const std::unique_ptr<BatchStream> stream,
             road.StartPass({.seeds = seeds, .pass = pass, .ordered = true}));
  std::vector<Meaning> meanings;
  for (;;) {
    QUARRY_TRY(const std::unique_ptr<Batch> batch, stream->Next());
    if (!batch) break;
    EXPECT_EQ(batch->index(), meanings.size());
    meanings.push_back(MeaningOf(*batch, types));
  }
  if (stats != nullptr) *stats = stream->stats();
  return meanings;
}

// What an epoch of training uses.
inline std::vector<NodeId> LabelledTrainNodes(const TinyGraph& graph) {
  std::vector<NodeId> nodes = graph.SplitNodes(Split::kTrain);
  std::erase_if(nodes, [&](NodeId node) { return graph.Label(node) < 0; });
  return nodes;
}

}  // namespace quarry::testing_util
