// NeighborCache: Ginex's static neighbor cache (§3.2, Fig. 10): whole adjacency lists of the most important
// nodes in one array, found by direct addressing.
//
// Importance is out-degree / in-degree of a node (AliGraph's metric as Ginex uses it) for lists of
// in-neighbors, and the reverse for those of out-neighbors: how often its list is asked for against what the
// list costs. An address table (4 bytes a node) leads to the list; its length, which Ginex keeps before it,
// comes from indptr, which is resident anyway.
//
// Immutable once built: thread-safe. Must not outlive the topology.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "quarry/base/status.h"
#include "quarry/storage/topology.h"

namespace quarry {

class NeighborCache {
 public:
  // Memory that building takes for a while beside the cache: a few pieces of the file, and histograms.
  static constexpr uint64_t kBuildBytes = 8 << 20;

  // Picks nodes by importance (compared as float; equal ones by id) until the next list does not fit
  // `memory_bytes`, address table included, and reads their lists in one pass over the indices on disk; one
  // pass more counts the degrees when the topology lacks the other side. An empty cache when not even the
  // address table fits. kCorruption, kIoError and kOutOfBudget as reading and allocating give them.
  static Result<std::unique_ptr<NeighborCache>> Build(IoBackend& backend, const Topology& topology,
                                                      Adjacency side, uint64_t memory_bytes);
  virtual ~NeighborCache() = default;
  // The cached list of v (empty span with null data when v is not cached). Valid while the cache is.
  virtual std::span<const NodeId> Find(NodeId v) const = 0;
  virtual uint64_t cached_nodes() const = 0;
  virtual uint64_t cached_edges() const = 0;
  virtual uint64_t memory_bytes() const = 0;
};

}  // namespace quarry
