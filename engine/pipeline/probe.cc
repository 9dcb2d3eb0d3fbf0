#include "probe.h"

#include <algorithm>
#include <cassert>

#include "quarry/base/random.h"

namespace quarry {
namespace {

// `count` distinct elements of `nodes` (or all), by the first steps of a Fisher-Yates shuffle of it.
std::vector<NodeId> Draw(std::vector<NodeId>& nodes, uint32_t count, Rng& rng) {
  const size_t taken = std::min<size_t>(count, nodes.size());
  for (size_t i = 0; i < taken; ++i) std::swap(nodes[i], nodes[i + rng.Below(nodes.size() - i)]);
  return {nodes.begin(), nodes.begin() + static_cast<ptrdiff_t>(taken)};
}

// A batch of seeds at a random time and those after it. Half a batch of each of two times has more neighbors than a whole
// one of either, so the first gives half, unless the others have too few.
std::vector<NodeId> DrawByTime(std::span<const NodeId> nodes, uint32_t count, uint64_t places, Rng& rng) {
  const size_t wanted = std::min<size_t>(count, nodes.size());
  size_t at = rng.Below(nodes.size());
  while (at > 0 && nodes[at - 1] / places == nodes[at] / places) --at;
  size_t passed = 0;
  const auto take_time = [&] {  // in random order
    std::vector<NodeId> taken;
    const uint64_t time = nodes[at] / places;
    for (; passed < nodes.size() && nodes[at] / places == time; ++passed) {
      taken.push_back(nodes[at]);
      at = at + 1 == nodes.size() ? 0 : at + 1;
    }
    return Draw(taken, static_cast<uint32_t>(taken.size()), rng);
  };
  const std::vector<NodeId> first = take_time();
  const auto half = first.begin() + static_cast<ptrdiff_t>(std::min(first.size(), (wanted + 1) / 2));
  std::vector<NodeId> drawn(first.begin(), half);
  while (drawn.size() < wanted && passed < nodes.size()) {
    const std::vector<NodeId> time = take_time();
    drawn.insert(drawn.end(), time.begin(), time.end());
  }
  if (drawn.size() < wanted) drawn.insert(drawn.end(), half, first.end());
  drawn.resize(wanted);
  return drawn;
}

}  // namespace

uint64_t ProbeScratchBytes(uint64_t node_count, uint64_t candidates) {
  return node_count / 8 + candidates * sizeof(NodeId);
}

uint64_t BlockEntriesMax(const RoadSpec& spec, uint64_t node_count, uint64_t edge_count) {
  const uint64_t edges = spec.EdgesMax(edge_count);
  uint64_t frontier = std::min<uint64_t>(spec.batch_size, node_count);
  uint64_t entries = frontier;
  for (const uint64_t fanout : spec.fanouts) {
    const uint64_t found = std::min(frontier * fanout, edges);
    entries += found;
    frontier = std::min(found, node_count);
  }
  return std::min(entries, node_count + edges);
}

Result<BatchProbe> ProbeBatches(NeighborSampler& sampler, uint64_t node_count, uint32_t batch_size,
                                uint32_t batches, std::span<const std::span<const NodeId>> candidates,
                                uint64_t seed, const std::stop_token& stop, uint64_t places) {
  BatchProbe probe;
  std::vector<bool> seen(node_count);
  uint64_t seen_count = 0;
  uint64_t nodes_max = 0;
  Block block;
  for (size_t list = 0; list < candidates.size(); ++list) {
    if (candidates[list].empty()) continue;
    std::vector<NodeId> nodes(candidates[list].begin(), candidates[list].end());
    Rng rng(MixSeed(seed, list));
    const bool first_list = probe.distinct_nodes.empty();
    for (uint32_t b = 0; b < (first_list ? batches : 1); ++b) {
      if (stop.stop_requested()) return Status(Code::kCancelled, "the batches are not wanted any more");
      const std::vector<NodeId> seeds =
          places > 0 ? DrawByTime(nodes, batch_size, places, rng) : Draw(nodes, batch_size, rng);
      QUARRY_RETURN_IF_ERROR(sampler.Sample(seeds, MixSeed(seed, list, b), block));
      nodes_max = std::max<uint64_t>(nodes_max, block.nodes.size());
      probe.edges_max = std::max<uint64_t>(probe.edges_max, block.indices.size());
      probe.targets_max = std::max<uint64_t>(probe.targets_max, block.indptr.size());
      if (!first_list) continue;
      for (const NodeId node : block.nodes) {
        seen_count += seen[node] ? 0 : 1;
        seen[node] = true;
      }
      probe.distinct_nodes.push_back(seen_count);
    }
  }
  assert(!probe.distinct_nodes.empty());
  for (uint64_t& distinct : probe.distinct_nodes) distinct = std::max(distinct, nodes_max);
  return probe;
}

}  // namespace quarry
