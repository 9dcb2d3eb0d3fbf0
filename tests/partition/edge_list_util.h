// Edges in memory, and what partitioners are run with, for tests of partitioners.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/io/backend.h"
#include "quarry/partition/edge_source.h"
#include "support/temporary_folder.h"

namespace quarry {

// Uniform random edges, loops and parallel ones among them.
inline std::vector<NodePair> RandomPairs(uint64_t node_count, uint64_t edge_count, uint64_t seed) {
  Rng rng(seed);
  std::vector<NodePair> edges(edge_count);
  for (NodePair& edge : edges) {
    edge.source = static_cast<NodeId>(rng.Below(node_count));
    edge.destination = static_cast<NodeId>(rng.Below(node_count));
  }
  return edges;
}

// Communities of equal size (node modulo their number): an edge leaves its own with this probability.
inline std::vector<NodePair> CommunityPairs(uint64_t node_count, uint64_t edge_count, uint64_t communities,
                                            double leave, uint64_t seed) {
  Rng rng(seed);
  std::vector<NodePair> edges(edge_count);
  for (NodePair& edge : edges) {
    const uint64_t source = rng.Below(node_count);
    uint64_t destination = rng.Below(node_count);
    if (rng.Unit() >= leave) {
      destination = rng.Below(node_count / communities) * communities + source % communities;
    }
    edge = {static_cast<NodeId>(source), static_cast<NodeId>(destination)};
  }
  return edges;
}

class PartitionRig {
 public:
  explicit PartitionRig(uint64_t budget_bytes = kGiB)
      : folder_("partition"), backend_(MakeDefaultBackend()), budget_(budget_bytes) {}
  PartitionContext context() { return {*backend_, budget_, folder_.path()}; }
  MemoryBudget& budget() { return budget_; }
  IoBackend& backend() { return *backend_; }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<IoBackend> backend_;
  MemoryBudget budget_;
};

}  // namespace quarry
