// What a trace is sampled from: the topology, and the seeds of every epoch in the order of their use. Private
// to this room.
#pragma once

#include <memory>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/topology.h"

namespace quarry {

// By node: how many neighbor lists hold it (PaGraph's out-degree). From indices in memory where they are,
// else by a scan of them.
Result<std::vector<uint32_t>> CountUses(IoBackend& backend, const Topology& topology, Direction direction);

class TraceSource {
 public:
  // Indices stay in memory where the budget has room for them, else they are sampled from disk. A proximity
  // order needs them in memory (kOutOfBudget). kInvalidArgument without training nodes.
  static Result<std::unique_ptr<TraceSource>> Make(Store& store, MemoryBudget& budget,
                                                   const LayoutSpec& spec);

  const NeighborSource& neighbors() const { return neighbors_; }
  const TraceSpec& spec() const { return spec_; }
  uint64_t seed_hash() const { return seed_hash_; }  // HashSeeds of an epoch's seeds
  uint32_t sequences() const { return sequences_; }  // sequences of a proximity order
  Result<std::vector<uint32_t>> CountUses() const {
    return quarry::CountUses(store_.backend(), *topology_, neighbors_.direction);
  }

 private:
  explicit TraceSource(Store& store) : store_(store) {}
  Status OrderSeeds(const LayoutSpec& spec, const std::vector<NodeId>& seeds,
                    const std::vector<int64_t>& labels);

  Store& store_;
  std::unique_ptr<Topology> topology_;
  MemoryBudget::Reservation reservation_;
  NeighborSource neighbors_;
  TraceSpec spec_;
  uint64_t seed_hash_ = 0;
  uint32_t sequences_ = 0;
};

}  // namespace quarry
