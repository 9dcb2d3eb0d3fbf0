// PartitionedNodeRoad: batches of node classification out of a stored partitioning (Waleffe §5.3, §5.5): rows, labels,
// splits and edges swap through memory part by part, and nothing of each node or edge is resident.
//
//   a pass   a swap plan of PartitionOrder::kNode (policy.h), a function of (seed, pass). In training, parts that
//            have all training nodes stay, where the buffer has room for one more, and others take turns beside them,
//            one set a pass; else every part is read once, in an order of its own each pass, and a training node is
//            used while a random one of the sets is there that have its part. Passes over validation and test nodes
//            read every part once, too.
//   a step   samplers make batches of the step's nodes, of the neighbors that are held alone; the next parts are read
//            meanwhile. The next step begins when the last batch is given back.
//
// Rows are used where the device put them. Node ids of batches are the database's, which parts have beside their rows;
// labels, splits and rows are those of the partitioning's build. A pass that follows another one keeps what its first step has of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/road_spec.h"
#include "quarry/partition/partition_buffer.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/pipeline/partitioned_road.h"
#include "quarry/storage/store.h"

namespace quarry {

struct PartitionedNodeRoadOptions {
  std::string partitioning = "default";
  // `logical` 0: as many as there are parts, so that one part is swapped at a time, which leaves the buffer more
  // room than the paper's two logical parts.
  PartitionedRoadOptions parts = {.order = PartitionOrder::kNode};
  RoadSpec spec;  // cache_bytes does not count
  unsigned sampler_threads =
      1;  // one step's batches are made by as many, or by fewer where memory has no room
  // What is kept of the budget, for the largest batch of nodes and edges, by whoever takes batches further. Null: nothing.
  // Called while the road is opened.
  std::function<uint64_t(uint64_t nodes_max, uint64_t edges_max)> beside_bytes = {};
};

// What was decided at Open.
struct PartitionedNodePlan {
  PartitionedRoadOptions parts;  // tuned
  uint32_t part_count = 0;
  uint32_t training_parts = 0;   // the training nodes lie in so many
  bool training_stays = false;   // and these stay
  unsigned samplers = 1;         // threads that make batches
  uint64_t batch_nodes_max = 0;  // which no batch exceeds, and so of edges
  uint64_t batch_edges_max = 0;
  uint64_t buffer_bytes = 0;  // of parts, with those that are being read
  uint64_t batch_bytes = 0;   // of batches and samplers
  uint64_t bytes() const { return buffer_bytes + batch_bytes; }
  std::string ToString() const;  // one line
};

class PartitionedNodeRoad : public Road {
 public:
  // A tuned buffer leaves room for so many, whatever the number of threads.
  static constexpr unsigned kTunedSamplers = 4;

  // Store and budget outlive the road. As StoredPartitioning::Open; kUnsupported for a partitioning without rows or
  // labels, or of another topology or table than the spec's; kUsage for what cannot be; kOutOfBudget with the least that would do.
  static Result<std::unique_ptr<PartitionedNodeRoad>> Open(Store& store, MemoryBudget& budget,
                                                           const PartitionedNodeRoadOptions& options);
  virtual const PartitionedNodePlan& plan() const = 0;
  virtual const StoredPartitioning& partitioning() const = 0;
};

}  // namespace quarry
