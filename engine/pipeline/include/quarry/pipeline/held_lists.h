// HeldLists: the lists of neighbors between the parts that a partition buffer holds, for a sampler (Waleffe §5.2).
// A node's list is the union of the lists that its part's buckets have of it, the buckets in the order of parts, so
// a swap builds nothing anew, where the paper sorts all edges in memory.
//
// A node is named by its place: the nodes of the first held part, then those of the next. Const use is thread-safe;
// valid until the buffer goes to its next step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/format/road_spec.h"
#include "quarry/partition/partition_buffer.h"
#include "quarry/sampling/sampler.h"

namespace quarry {

class HeldLists final : public PiecedLists {
 public:
  explicit HeldLists(Direction direction) : direction_(direction) {}
  // What those of `buffer` parts take beside the buckets.
  static uint64_t Bytes(uint32_t buffer, Direction direction);

  // Takes those of the buffer's step. REQUIRES: it has one.
  void TakeStep(const PartitionBuffer& buffer);

  uint64_t node_count() const override { return starts_.back(); }
  uint64_t Degree(size_t side, NodeId node) const override;
  void Take(NodeId node, std::span<const uint64_t> positions, NodeId* neighbors) const override;

  // Which of the held parts a place is in, and its node's number within the part.
  struct Place {
    uint32_t held = 0;
    uint32_t node = 0;
  };
  Place At(NodeId place) const;

 private:
  // Those of a node of one held part with the nodes of all.
  std::span<const BucketLists> ListsOf(size_t side, uint32_t held) const {
    const size_t parts = starts_.size() - 1;
    return std::span(lists_[side]).subspan(held * parts, parts);
  }

  const Direction direction_;
  std::vector<uint64_t> starts_{0};    // places: of each held part's first node, and the end
  std::vector<BucketLists> lists_[2];  // by side: held part of the node * held parts + that of its neighbors
};

}  // namespace quarry
