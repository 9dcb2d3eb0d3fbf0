// Block: the sampled message-flow graph of a mini-batch in DENSE form (Waleffe §3.3, Algorithm 1).
//
// Each node's neighbors are sampled once, at the hop that first finds it, and reused in every later layer.
// Nodes are unique and stand in the order of discovery: seeds, then the new nodes of hop 1, of hop 2, ... So
// the nodes that layer l of k computes are a prefix: nodes[0, hop_offsets[k - l]), and its inputs are
// nodes[0, hop_offsets[k - l + 1]).
//
// A value, which owns its arrays; who only reads one takes its view. Local ids index `nodes`.
#pragma once

#include <cstdint>
#include <vector>

#include "quarry/format/batch_view.h"
#include "quarry/format/types.h"

namespace quarry {

struct Block {
  std::vector<NodeId> nodes;          // input nodes, unique; the seeds first
  std::vector<uint32_t> hop_offsets;  // [hops + 1]: nodes known after hop h; hop_offsets[0] = seeds
  std::vector<uint32_t> indptr;       // [hop_offsets[hops - 1] + 1]: sampled neighbors of nodes[v]
  std::vector<uint32_t> indices;      // [edges]: local ids of the neighbors
  std::vector<uint64_t> edge_ids;     // [edges], or none: each neighbor's position in the topology's CSC
  std::vector<uint16_t>
      relations;  // [edges], where fanouts are by type of edges: each one's type, ascending in a list

  uint32_t seed_count() const { return hop_offsets.front(); }
  // Without labels and features. Valid as long as the block, and until it changes.
  BatchView view() const {
    return {.seed_count = seed_count(),
            .nodes = nodes,
            .hop_offsets = hop_offsets,
            .indptr = indptr,
            .indices = indices,
            .edge_ids = edge_ids,
            .relations = relations};
  }
  uint64_t memory_bytes() const {
    return nodes.capacity() * sizeof(NodeId) +
           (hop_offsets.capacity() + indptr.capacity() + indices.capacity()) * 4 +
           edge_ids.capacity() * sizeof(uint64_t) + relations.capacity() * sizeof(uint16_t);
  }
};

}  // namespace quarry
