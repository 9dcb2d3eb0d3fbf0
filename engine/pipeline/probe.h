// Probing: a few batches, sampled at open, tell how large batches are and how much consecutive ones share.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "quarry/format/road_spec.h"
#include "quarry/sampling/sampler.h"

namespace quarry {

struct BatchProbe {
  // distinct_nodes[k - 1]: distinct input nodes of k batches together, of the largest batch for k = 1.
  // Ascending.
  std::vector<uint64_t> distinct_nodes;
  uint64_t edges_max = 0;    // sampled, of one batch
  uint64_t targets_max = 0;  // nodes with sampled neighbors (entries of Block::indptr), of one batch
};

// Bytes that ProbeBatches needs beside sampler and one block.
uint64_t ProbeScratchBytes(uint64_t node_count, uint64_t candidates);

// What batches of a pass may have beyond the largest one probed. Where no fanout bounds lists they differ more, and by more
// the smaller they are: so few nodes and edges, which take next to nothing, they may have in any case.
inline constexpr uint64_t kMarginPercent = 15, kAllNeighborsMarginPercent = 100;
inline constexpr uint64_t kAllNeighborsNodes = 4 * kKiB, kAllNeighborsEdges = 64 * kKiB;
inline uint64_t WithMargin(uint64_t probed, uint64_t percent = kMarginPercent) {
  return probed + CeilDiv(probed * percent, 100);
}

// Seeds and neighbors of one batch, at most, as the fanouts and the edges have it.
uint64_t BlockEntriesMax(const RoadSpec& spec, uint64_t node_count, uint64_t edge_count);

// Samples `batches` batches of `batch_size` nodes drawn from the first of the `candidates` (lists of nodes;
// empty ones are passed over), whose union is taken, and one batch from each of the others. Deterministic by
// `seed`. kCancelled soon after `stop` is requested. With `places`, batches are of seeds at few times, as ShuffleSeeds makes
// them. REQUIRES: one list is not empty; with `places`, they ascend.
Result<BatchProbe> ProbeBatches(NeighborSampler& sampler, uint64_t node_count, uint32_t batch_size,
                                uint32_t batches, std::span<const std::span<const NodeId>> candidates,
                                uint64_t seed, const std::stop_token& stop, uint64_t places = 0);

}  // namespace quarry
