// The order in which an epoch uses its seed nodes: a shuffle, or BGL's proximity-aware ordering (§3.2.2),
// which lets neighboring seeds share a mini-batch so that batches close in time share input nodes.
//
// Proximity: several breadth-first sequences over the graph, each from random roots (restarted at random
// unvisited seeds until all are found), each circularly shifted by a random amount; batches take seeds
// from the sequences in round-robin, skipping those already taken. More sequences = more random. The number
// of sequences is the least whose shuffling error is within the bound sqrt(b M) / n (b batch size, M workers,
// n seeds; Meng et al.), the error being the mean total variation distance between the label distribution of
// a batch and that of all seeds, less that of a uniformly shuffled order with the same batches, so that what
// batches of finite size must show anyway is not held against it. At least 0: an order whose batches are more
// alike than shuffled ones has no error.
//
// Pure functions of their arguments: one seed gives one order (invariant 6).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/road_spec.h"
#include "quarry/format/types.h"
#include "quarry/storage/topology.h"

namespace quarry {

struct ProximityOptions {
  uint32_t batch_size = 1024;
  uint32_t workers = 1;         // M of the bound
  uint32_t sequences = 0;       // 0 = as few as the bound allows
  uint32_t sequences_max = 64;  // where the search ends, bound reached or not
  uint64_t seed = 0;            // names the order; another for each epoch
};

struct OrderedSeeds {
  std::vector<NodeId> seeds;   // a permutation of what was given
  uint32_t sequences = 0;      // that were used
  double shuffling_error = 0;  // this order's error
  double error_bound = 0;
};

// Shuffles `seeds` as every road shuffles a pass: by (seed, pass). With `places`, of nodes at several times
// (quarry/storage/times.h): times come in random order, and the seeds of each in random order after each other, so that a
// batch has seeds of few times, whose neighbors' rows lie in as few bands of the table. That takes ShuffleBytes beside them.
void ShuffleSeeds(std::span<NodeId> seeds, uint64_t seed, uint64_t pass, uint64_t places = 0);
// A copy of the seeds, and the place of each time in it.
constexpr uint64_t ShuffleBytes(uint64_t seeds, uint64_t times) {
  return times > 1 ? seeds * sizeof(NodeId) + std::min(seeds, times) * sizeof(std::span<NodeId>) : 0;
}

// `topology` must have a side loaded into memory (CSC is used where both are); kOutOfBudget says so
// otherwise. `labels` by node, -1 = none; empty = no labels: then `sequences` 0 means a fifth of the number
// of batches, at least 1 and at most sequences_max; the error stays 0. kInvalidArgument for seeds that are
// given twice or are no nodes, and for a batch size of 0. Holds 4 bytes a node and as much a seed and
// sequence; breadth-first searches share bitmaps and queue. A sequence takes about 15 ns an edge: 0.9 s where
// there are 60 M.
Result<OrderedSeeds> OrderByProximity(const Topology& topology, std::span<const NodeId> seeds,
                                      std::span<const int64_t> labels, const ProximityOptions& options);

}  // namespace quarry
