// NeighborSampler: multi-hop neighbor sampling. Neighbors are drawn uniformly or by the weights of their edges,
// without replacement or with it; of each node by itself, or by numbers that the nodes of a hop share (LABOR).
//
// A sampler belongs to one thread and keeps its scratch memory between calls (a hash table of the block's
// nodes, the frontier's positions). Several samplers share one NeighborSource. The block depends on (seeds,
// spec, DrawSeed) and the topology alone: not on the thread, the source (memory or disk) or what was
// sampled before (invariant 6).
//
// Positions are drawn from indptr and weights, then resolved to neighbors by the source: in memory by
// prefetched loads, on disk by the neighbor cache and merged page reads. LABOR reads whole lists instead.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/cache/neighbor_cache.h"
#include "quarry/format/road_spec.h"
#include "quarry/io/coalesce.h"
#include "quarry/sampling/block.h"
#include "quarry/storage/topology.h"

namespace quarry {

class TypedLists;

// The sides that a direction draws from, in the order in which a node's lists are strung together.
inline std::span<const Adjacency> SidesOf(Direction direction) {
  static constexpr Adjacency kSides[] = {Adjacency::kCsc, Adjacency::kCsr};
  switch (direction) {
    case Direction::kIn:
      return {kSides, 1};
    case Direction::kOut:
      return {kSides + 1, 1};
    case Direction::kBoth:
      return {kSides, 2};
  }
  return {};
}

// Lists of neighbors that are no topology's: a node's list is put together of pieces, say of the buckets of the parts
// that are in memory. They may change between two blocks; one block sees the same lists throughout, and const use is
// thread-safe.
class PiecedLists {
 public:
  virtual ~PiecedLists() = default;
  virtual uint64_t node_count() const = 0;
  // Neighbors of a node on a side of SidesOf(direction).
  virtual uint64_t Degree(size_t side, NodeId node) const = 0;
  // Writes the neighbors at these positions of the node's lists, which are strung together side after side. REQUIRES:
  // positions are below the sum of the degrees.
  virtual void Take(NodeId node, std::span<const uint64_t> positions, NodeId* neighbors) const = 0;
};

// Where sampled positions become neighbors. Shared by samplers; immutable, thread-safe. Must not outlive
// topology and cache.
struct NeighborSource {
  const Topology* topology = nullptr;
  const PiecedLists* lists = nullptr;  // in place of a topology; of the direction's sides
  const TypedLists* types = nullptr;   // of the topology's lists, which fanouts by type of edges need
  // The topology's nodes are places, and a block's are places at so many times (quarry/storage/times.h): a node's
  // neighbors are its place's, at its time. Nodes of one place draw the same neighbors of it in a block.
  uint64_t times = 1;
  // Along kBoth, of lists: each side is drawn from by itself, as many as the fanout of each (Waleffe §5.2), and not of
  // both together.
  bool sides_apart = false;
  // Fanouts may be as large as "all neighbors" made them (quarry/sampling/all_neighbors.h).
  bool takes_all = false;
  Direction direction = Direction::kIn;
  // On disk when the indices are not loaded: needs a backend; the caches (by Adjacency) may be null.
  IoBackend* backend = nullptr;
  const NeighborCache* caches[2] = {nullptr, nullptr};
  unsigned io_depth = 64;
  DeviceProfile device;  // which pages are worth reading in one request
  // The most seeds and sampled neighbors that a block may have: for callers who do not know yet how large
  // blocks are. Local ids are 32 bits wide.
  uint64_t block_entries_max = uint64_t{1} << 31;
};

struct SamplerStats {
  uint64_t edges = 0;
  uint64_t nodes = 0;
  uint64_t neighbor_cache_hits = 0;  // lists served by the neighbor cache (disk source only)
  uint64_t bytes_read = 0;           // disk source only, gaps included
  uint64_t read_requests = 0;
  uint64_t searches = 0;      // neighbors that were looked up among the edits of runs (disk source only)
  double search_seconds = 0;  // which that took, estimated from some of them
  double seconds = 0;
};

class NeighborSampler {
 public:
  static constexpr uint32_t kFanoutMax = 1024;
  static constexpr uint32_t kHopsMax = 8;
  // Fanouts by type: the most that a node is given in a hop by all types of edges together.
  static constexpr uint32_t kTypedFanoutMax = 4096;
  // The most neighbors of a node where all are taken: what is read from disk at a time.
  static constexpr uint32_t kDegreeMax = 1U << 20;

  // Takes fanouts (each 1..kFanoutMax, kDegreeMax where the source takes all) and everything about draws from the spec. kUsage names a bad fanout, or options
  // that contradict each other; kInvalidArgument when the direction needs a side that the topology lacks;
  // kUnsupported when it, or the lists, have no edge ids, or lists are to be drawn from other than uniformly.
  // REQUIRES: of a spec that is weighted, LoadWeights.
  static Result<std::unique_ptr<NeighborSampler>> Make(const NeighborSource& source, const RoadSpec& spec);
  virtual ~NeighborSampler() = default;

  // An upper bound of the scratch_bytes() of a sampler whose blocks have at most this many nodes and edges,
  // if the source's indices are in memory, or if they are on disk: for planning where to put them.
  static uint64_t ScratchBytesMax(const NeighborSource& source, uint64_t nodes_max, uint64_t edges_max,
                                  bool in_memory, const RoadSpec& spec = {});

  // What sampling by the spec keeps in memory of a topology besides lists: indptr, checksums and weights.
  static uint64_t ResidentBytes(const TopologyRecord& record, const RoadSpec& spec);
  // Loads the weights that sampling by the spec needs; ResidentBytes has them. kInvalidArgument when edges have none,
  // or one has a negative one; kIoError, kCorruption.
  static Status LoadWeights(IoBackend& backend, const RoadSpec& spec, Topology& topology);

  // Samples the block of `seeds` (unique, in range) into `block`, reusing its memory. kInvalidArgument names
  // a bad seed, or says that the block exceeds the source's block_entries_max; from disk also kIoError and
  // kCorruption. After an error the block means nothing, but the sampler remains usable.
  virtual Status Sample(std::span<const NodeId> seeds, const DrawSeed& seed, Block& block) = 0;
  virtual const SamplerStats& stats() const = 0;
  virtual uint64_t scratch_bytes() const = 0;
};

}  // namespace quarry
