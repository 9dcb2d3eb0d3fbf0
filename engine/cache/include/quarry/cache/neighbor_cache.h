// NeighborCache: Ginex's static neighbor cache (§3.2, Fig. 10): whole adjacency lists of the most important
// nodes in one array, found by direct addressing.
//
// Importance is out-degree / in-degree of a node (AliGraph's metric as Ginex uses it) for lists of
// in-neighbors, and the reverse for those of out-neighbors: how often its list is asked for against what the
// list costs. An address table (4 bytes a node) leads to the list; its length, which Ginex keeps before it,
// comes from indptr, which is resident anyway.
//
// Built at every opening, and not kept as derived data, although reading it would be cheaper: of 20 M edges (76 MiB), a
// cache of 22 MiB takes two scans of all lists and .17 s of the processor to build, and .01 s to read (`./dev bench
// sample`). That is what three batches read from the disk there, once a run; and how large the cache is follows from each
// run's memory and split, so that what one run had kept would seldom be what the next one wants.
//
// Immutable once built: thread-safe. Must not outlive the topology.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
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
  // The cached list of v (empty span with null data when v is not cached). Valid while the cache is.
  std::span<const NodeId> Find(NodeId v) const {
    if (table_.size() == 0) return {};
    const uint32_t address = table()[v];
    if (address == kNotCached) return {};
    return {lists() + (uint64_t{address} << unit_shift_), Degree(v)};
  }
  uint64_t cached_nodes() const { return cached_nodes_; }
  uint64_t cached_edges() const { return cached_edges_; }
  uint64_t memory_bytes() const { return table_.mapped_bytes() + lists_.mapped_bytes(); }

 private:
  static constexpr uint32_t kNotCached = 0xffffffff;
  struct Cut;

  NeighborCache(const Topology& topology, Adjacency side)
      : topology_(topology), side_(side), indptr_(topology.indptr(side)) {}
  Status Fill(IoBackend& backend, uint64_t memory_bytes);
  uint64_t Degree(NodeId node) const { return indptr_[node + 1] - indptr_[node]; }
  uint64_t Entries(NodeId node) const { return RoundUp(Degree(node), uint64_t{1} << unit_shift_); }
  uint32_t* table() const { return reinterpret_cast<uint32_t*>(table_.data()); }
  NodeId* lists() const { return reinterpret_cast<NodeId*>(lists_.data()); }

  uint32_t Importance(NodeId node) const;
  Status CountOppositeDegrees(IoBackend& backend);
  Cut Choose(uint64_t entries_max) const;
  uint64_t AssignAddresses(const Cut& cut);
  Status ReadLists(IoBackend& backend);
  template <typename Visit>
  Status Scan(IoBackend& backend, const Visit& visit);

  const Topology& topology_;
  const Adjacency side_;
  const std::span<const uint64_t> indptr_;
  // By node: how often other lists name it, while choosing; then its list's address, in units of 1 <<
  // unit_shift_ entries of lists_.
  IoBuffer table_;
  IoBuffer lists_;
  unsigned unit_shift_ = 0;
  uint64_t cached_nodes_ = 0;
  uint64_t cached_edges_ = 0;
};

}  // namespace quarry
