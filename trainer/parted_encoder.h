// EncodeParts: what an encoder makes of the vectors of all nodes, for ranking, where neither these nor the edges fit into
// memory: the work of ForwardGraph (graph_memory.h) from the buckets of a partitioning.
//
//   before    each node's neighbors are counted, into a file
//   a layer   a few parts at a time have states (graph_layer.h) in memory. The rows of one part after the other come in,
//             with the buckets of edges to and from these parts, and are added; what the states become is appended to a
//             file, from which the next layer, or the ranking, reads
//
// So what is held is some parts' states, one part's rows and a bucket. With states of g of p parts a layer reads all rows
// ceil(p / g) times, once more where a node's own row comes before its neighbors', and each bucket twice. A node's
// neighbors are added in the order of their parts, those that it has by edges to it before those by edges from it, and the
// rows that go through a layer together are of one part: the same bits for any g and any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "gnn_layers.h"
#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/partition/stored_partitioning.h"
#include "scratch_rows.h"

namespace quarry {

struct PartedEncoding {
  const StoredPartitioning& partitioning;
  IoBackend& backend;
  std::string scratch_folder;
  GnnLayers& layers;
  ModelSpec spec;    // theirs
  uint32_t dim = 0;  // of rows, before and behind each layer
};

// What EncodeParts holds, and what it leaves, with the states of `group` parts.
uint64_t EncodePartsBytes(const PartitionDirectory& directory, const ModelSpec& spec, uint32_t dim,
                          uint32_t layer_count, uint32_t group);

// The caller has reserved EncodePartsBytes for one part; for more, `budget` pays with what it has left, until the end.
// `read_nodes` fills `values` with the vectors of the nodes `ids`, ascending, in new ids; called by this thread, as is
// `progress`, before each part whose rows are read: an edge is added to the states of either end, layer after layer, and
// `done` of all `total` additions are behind it. What it returns other than OK stops the work.
Result<std::unique_ptr<ScratchRows>> EncodeParts(
    const PartedEncoding& encoding, MemoryBudget& budget,
    const std::function<Status(std::span<const RowId> ids, std::span<float> values)>& read_nodes,
    const std::function<Status(uint64_t done, uint64_t total)>& progress);

}  // namespace quarry
