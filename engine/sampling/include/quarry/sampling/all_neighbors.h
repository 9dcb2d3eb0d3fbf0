// All neighbors of a node, in the place of a fanout (kAllNeighbors): one rule for blocks, roads and servers.
//
// They are drawn by a number, as many as the node that has most: a draw of no fewer than there are takes them all. A graph
// with a node of more than a tile of the disk's positions is refused, and not sampled in part.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "quarry/base/status.h"
#include "quarry/format/fanouts.h"
#include "quarry/format/graph_types.h"
#include "quarry/format/road_spec.h"
#include "quarry/sampling/typed_lists.h"
#include "quarry/storage/topology.h"

namespace quarry {

// Puts numbers in the place of kAllNeighbors in the spec's fanouts, of all edges or by type (`types` and `edge_types`; null
// and none where fanouts are not by type). A hop of kAllNeighbors by all types is what those by type come to. `known`: where
// the most neighbors of a node along the spec's direction are kept for the next call, 0 at first; null: counted each time.
//
// kUnsupported names how many a node has, where it is more than kDegreeMax; kUsage
// of all neighbors with replacement. The topology's indptr is read; any thread.
Status CountAllNeighbors(const Topology& topology, const TypedLists* types,
                         std::span<const EdgeTypeRecord> edge_types, RoadSpec& spec,
                         std::atomic<uint64_t>* known = nullptr);

}  // namespace quarry
