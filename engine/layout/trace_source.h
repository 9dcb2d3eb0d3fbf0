// What a trace is sampled from: the topology, and the seeds of every epoch in the order of their use. Private
// to this room.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/cache/neighbor_cache.h"
#include "quarry/layout/layout.h"
#include "quarry/layout/topology_place.h"
#include "quarry/sampling/typed_lists.h"
#include "quarry/storage/topology.h"

namespace quarry {

// By node: how many neighbor lists hold it (PaGraph's out-degree). From indices in memory where they are,
// else by a scan of them.
Result<std::vector<uint32_t>> CountUses(IoBackend& backend, const Topology& topology, Direction direction);

// The bytes of neighbor caches before lists on disk, for `batch_count` batches on `threads`:
// what is left of `available_bytes` beside their work, and no more than all lists and addresses take. 0 where
// none are made of that (MakesNeighborCaches).
uint64_t NeighborCacheBytes(const SampledBatch& batch, uint64_t batch_count, unsigned threads,
                            const ListsOnDisk& lists, uint64_t available_bytes);

// As SampleTrace, of the batches `only` (ascending): records are by their place there. Empty: of all.
Result<TraceSummary> SampleSome(const NeighborSource& source, const TraceSpec& spec,
                                std::span<const uint64_t> only, IoBackend& backend,
                                const std::string& trace_path, const std::string& blocks_path,
                                const std::array<std::byte, 16>& database_id, uint64_t generation,
                                const std::function<Status(uint64_t batches)>& progress);

class TraceSource {
 public:
  // Indices stay in memory where the budget has room for them and the caller has a use for all (`load_lists`), else they are
  // sampled from disk. A proximity order needs them in memory (kOutOfBudget). kInvalidArgument without training nodes.
  static Result<std::unique_ptr<TraceSource>> Make(Store& store, MemoryBudget& budget, const LayoutSpec& spec,
                                                   bool load_lists = true);

  // Puts a neighbor cache before indices on disk, of all that sampling leaves of `budget`, when that saves more
  // than filling it takes, which the first batch tells; does nothing for indices in memory. Nothing else needs the
  // memory meanwhile: planning comes when the source is gone (Ginex §3.1). The errors of NeighborCache::Build.
  Status CacheNeighbors(MemoryBudget& budget);

  const NeighborSource& neighbors() const { return neighbors_; }
  const TraceSpec& spec() const { return spec_; }
  // The batches that are a trainer's; all of them where it has no rank. kUsage for one that has none; kNotFound and the
  // other errors of opening the partitioning that it names.
  Result<TraceSpec> SpecOf(const RankShare& share);
  uint64_t seed_hash() const { return seed_hash_; }  // HashSeeds of an epoch's seeds
  uint32_t sequences() const { return sequences_; }  // sequences of a proximity order
  Result<std::vector<uint32_t>> CountUses() const;   // at every time the same

 private:
  TraceSource(Store& store, MemoryBudget& budget) : store_(store), budget_(budget) {}
  Status LoadParts(const std::string& partitioning);
  Result<SampledBatch> SampleFirst() const;
  Status OrderSeeds(const LayoutSpec& spec, const std::vector<NodeId>& seeds,
                    const std::vector<int64_t>& labels);
  Status KeepSuperbatch(const LayoutSpec& spec);

  Store& store_;
  MemoryBudget& budget_;
  std::unique_ptr<Topology> topology_;
  std::unique_ptr<TypedLists> types_;  // null: fanouts are not by type
  // By node, of the partitioning that ranks were divided by last.
  std::string parts_name_;
  std::vector<uint32_t> parts_;
  MemoryBudget::Reservation parts_reservation_;
  MemoryBudget::Reservation reservation_, cache_reservation_;
  std::unique_ptr<NeighborCache> neighbor_caches_[2];  // by Adjacency
  ListsOnDisk lists_;
  NeighborSource neighbors_;
  TraceSpec spec_;
  uint64_t seed_hash_ = 0;
  uint32_t sequences_ = 0;
};

}  // namespace quarry
