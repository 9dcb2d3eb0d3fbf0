#include "quarry/pipeline/held_lists.h"

#include <algorithm>

namespace quarry {

uint64_t HeldLists::Bytes(uint32_t buffer, Direction direction) {
  return uint64_t{buffer} * buffer * SidesOf(direction).size() * sizeof(BucketLists) +
         (uint64_t{buffer} + 1) * sizeof(uint64_t);
}

void HeldLists::TakeStep(const PartitionBuffer& buffer) {
  const std::vector<uint32_t>& parts = buffer.step().parts;
  starts_.assign(1, 0);
  for (const uint32_t part : parts) {
    starts_.push_back(starts_.back() + buffer.directory().part_nodes(part));
  }
  const std::span<const Adjacency> sides = SidesOf(direction_);
  for (size_t side = 0; side < sides.size(); ++side) {
    lists_[side].clear();
    lists_[side].reserve(parts.size() * parts.size());
    for (const uint32_t part : parts) {
      for (const uint32_t other : parts) {
        lists_[side].push_back(sides[side] == Adjacency::kCsc ? buffer.Bucket(other, part).in
                                                              : buffer.Bucket(part, other).out);
      }
    }
  }
}

HeldLists::Place HeldLists::At(NodeId place) const {
  const auto after = std::ranges::upper_bound(starts_, place);
  const auto held = static_cast<uint32_t>(after - starts_.begin() - 1);
  return {held, static_cast<uint32_t>(place - starts_[held])};
}

uint64_t HeldLists::Degree(size_t side, NodeId node) const {
  const Place place = At(node);
  uint64_t degree = 0;
  for (const BucketLists& lists : ListsOf(side, place.held)) degree += lists.Neighbors(place.node).size();
  return degree;
}

// Positions are few, and need not ascend: each piece is held against all of them.
void HeldLists::Take(NodeId node, std::span<const uint64_t> positions, NodeId* neighbors) const {
  const Place place = At(node);
  uint64_t begin = 0;
  for (size_t side = 0; side < SidesOf(direction_).size(); ++side) {
    const std::span<const BucketLists> pieces = ListsOf(side, place.held);
    for (size_t other = 0; other < pieces.size(); ++other) {
      const std::span<const uint32_t> piece = pieces[other].Neighbors(place.node);
      if (piece.empty()) continue;
      for (size_t i = 0; i < positions.size(); ++i) {
        const uint64_t at = positions[i] - begin;  // wraps below the piece
        if (at < piece.size()) neighbors[i] = static_cast<NodeId>(starts_[other] + piece[at]);
      }
      begin += piece.size();
    }
  }
}

}  // namespace quarry
