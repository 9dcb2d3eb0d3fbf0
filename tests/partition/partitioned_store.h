// A small database and a stored partitioning of it, with what they must hold.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/partition/stored_partitioning.h"
#include "storage/small_store.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

inline Assignment RandomAssignment(uint64_t nodes, uint32_t parts, uint64_t seed) {
  Assignment assignment{.parts = parts, .part_of = {}};
  Rng rng(seed);
  // Uneven: the lower the part, the more nodes.
  for (uint64_t node = 0; node < nodes; ++node) {
    assignment.part_of.push_back(static_cast<uint32_t>(std::min(rng.Below(parts), rng.Below(parts))));
  }
  return assignment;
}

// An edge as a topology or the buckets of a partitioning have it.
using TypedEdge = std::tuple<NodeId, NodeId, uint32_t>;  // source, destination, relation

// The database of small_store.h: 600 nodes, 9000 edges of 3 relations.
class PartitionedStore {
 public:
  explicit PartitionedStore(IoBackend& backend) : world(backend, Medium::kMemory) {
    EXPECT_OK(world.Write());
    Reopen();
  }

  void Reopen() {
    store.reset();
    auto opened = Store::Open(world.backend, world.path());
    EXPECT_OK(opened);
    store = *std::move(opened);
  }

  // Edges of the topology, in new ids, ascending.
  std::vector<TypedEdge> EdgesIn(std::span<const NodeId> new_ids) const {
    std::vector<TypedEdge> edges;
    for (NodeId v = 0; v < SmallStore::kNodes; ++v) {
      for (uint64_t i = world.csc.indptr[v]; i < world.csc.indptr[v + 1]; ++i) {
        edges.emplace_back(new_ids[world.csc.indices[i]], new_ids[v], world.csc.relations[i]);
      }
    }
    std::ranges::sort(edges);
    return edges;
  }

  // What the assignment comes to: nodes of a part in the order of their old ids.
  static std::vector<NodeId> NewIds(const Assignment& assignment) {
    std::vector<NodeId> new_ids(assignment.part_of.size());
    NodeId next = 0;
    for (uint32_t part = 0; part < assignment.parts; ++part) {
      for (size_t node = 0; node < new_ids.size(); ++node) {
        if (assignment.part_of[node] == part) new_ids[node] = next++;
      }
    }
    return new_ids;
  }

  SmallStore world;
  std::unique_ptr<Store> store;
  MemoryBudget budget{64 * kMiB};
};

// Appends a bucket's edges in new ids, from its lists by destination, and expects those by source to be the
// same.
inline void AppendEdges(const PartitionDirectory& directory, uint32_t source, uint32_t destination,
                        const EdgeBucket& bucket, std::vector<TypedEdge>& edges) {
  const auto from = static_cast<NodeId>(directory.part_starts[source]);
  const auto to = static_cast<NodeId>(directory.part_starts[destination]);
  std::vector<std::pair<NodeId, NodeId>> in, out;
  bucket.in.ForEachList([&](uint32_t node, uint64_t first, std::span<const uint32_t> neighbors) {
    EXPECT_EQ(bucket.in.FirstEdge(node), first);
    for (size_t i = 0; i < neighbors.size(); ++i) {
      in.emplace_back(from + neighbors[i], to + node);
      const uint32_t relation = directory.relation_count > 1 ? bucket.in.Relation(first + i) : 0;
      edges.emplace_back(from + neighbors[i], to + node, relation);
    }
  });
  bucket.out.ForEachList([&](uint32_t node, uint64_t, std::span<const uint32_t> neighbors) {
    for (const uint32_t neighbor : neighbors) out.emplace_back(from + node, to + neighbor);
  });
  std::ranges::sort(in);
  std::ranges::sort(out);
  EXPECT_EQ(in, out);
  EXPECT_EQ(in.size(), directory.bucket(source, destination).edges);
}

}  // namespace quarry::testing_util
