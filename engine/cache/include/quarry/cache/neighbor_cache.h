// NeighborCache: Ginex's static neighbor cache (§3.2, Fig. 10): whole adjacency lists of the most important nodes in one
// array, found by direct addressing.
//
// Importance is out-degree / in-degree of a node (AliGraph's metric as Ginex uses it): how often its list is asked for
// against what the list costs. `address_table[v]` (4 bytes a node, in units of 4-byte entries / kAddressUnit) leads to the list;
// its length comes from indptr, which is resident anyway.
//
// Immutable once built: thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "quarry/base/status.h"
#include "quarry/storage/topology.h"

namespace quarry {

class NeighborCache {
 public:
  // Picks nodes by importance until `memory_bytes` (address table included) are used and reads their lists from disk in
  // one pass over the indices section. An empty cache when not even the address table fits.
  static Result<std::unique_ptr<NeighborCache>> Build(IoBackend& backend, const Topology& topology, Adjacency side,
                                                      uint64_t memory_bytes);
  virtual ~NeighborCache() = default;
  // The cached list of v (empty span with null data when v is not cached).
  virtual std::span<const NodeId> Find(NodeId v) const = 0;
  virtual uint64_t cached_nodes() const = 0;
  virtual uint64_t cached_edges() const = 0;
  virtual uint64_t memory_bytes() const = 0;
};

}  // namespace quarry
