// EdgeList: the edges of a topology with their relations, one after the other: by destination, then by
// source, as file and runs have them. An edge's number is its place there, the same until edges come or go.
//
// Holds indptr, indices and relation ids in memory, reserved from the budget. Immutable once open: any thread
// may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/storage/store.h"

namespace quarry {

class EdgeList {
 public:
  // kNotFound lists what there is; kOutOfBudget; kCorruption. Store and budget outlive the list.
  static Result<std::unique_ptr<EdgeList>> Open(Store& store, MemoryBudget& budget,
                                                std::string_view topology);
  // Memory that opening the list takes, which is more than an open list holds.
  static uint64_t Bytes(const TopologyRecord& record);
  // Names the list of the record's edges: another number whenever edges came or went, and never 0. What keeps the edges,
  // as a compaction does, keeps the number.
  static uint64_t NumberOf(const TopologyRecord& record) { return record.timestamp() + 1; }

  uint64_t number() const { return number_; }
  // kBusy: the list is not the one of that number (0: any), so that edges of the two must not be mixed.
  Status CheckIs(uint64_t number) const;
  uint64_t size() const { return topology_->edge_count(); }
  // Reads edges [first, first + out.size()). REQUIRES: they exist.
  void Read(uint64_t first, std::span<Triple> out) const;

 private:
  EdgeList() = default;
  Status OpenNewest(Store& store, MemoryBudget& budget, std::string_view topology);
  Status LoadRelations(Store& store);
  uint32_t relation(uint64_t edge) const;

  MemoryBudget::Reservation reservation_;
  std::unique_ptr<Topology> topology_;
  std::string place_;  // the topology's, for messages
  uint64_t number_ = 0;
  uint64_t relation_bytes_ = 0;       // size of an id; 0: there is one relation
  std::vector<std::byte> relations_;  // as a file has them
};

}  // namespace quarry
