#include "resolver.h"

namespace quarry {
namespace {

// The loads of a tile are independent of each other, so the processor keeps as many misses in flight as it
// can without being told to prefetch.
class MemoryResolver final : public Resolver {
 public:
  explicit MemoryResolver(const NeighborSource& source) {
    const std::span<const Adjacency> sides = SidesOf(source.direction);
    for (size_t i = 0; i < sides.size(); ++i) indices_[i] = source.topology->indices(sides[i]).data();
    two_sides_ = sides.size() == 2;
  }

  Status Resolve(const PositionTile& tile, NodeId* neighbors, SamplerStats&) override {
    if (two_sides_) {
      for (const uint64_t position : tile.positions) {
        *neighbors++ = indices_[position >> 63][position & ~kSecondSide];
      }
    } else {
      const NodeId* const indices = indices_[0];
      for (const uint64_t position : tile.positions) *neighbors++ = indices[position];
    }
    return Status::Ok();
  }

  // A tile's cache lines stay in the second-level cache between the steps.
  uint64_t tile_positions_max() const override { return kMemoryTilePositions; }
  uint64_t memory_bytes() const override { return sizeof(*this); }

 private:
  const NodeId* indices_[2] = {nullptr, nullptr};
  bool two_sides_ = false;
};

class ListsResolver final : public Resolver {
 public:
  explicit ListsResolver(const PiecedLists& lists) : lists_(lists) {}

  Status Resolve(const PositionTile& tile, NodeId* neighbors, SamplerStats&) override {
    uint32_t begin = 0;
    for (size_t i = 0; i < tile.nodes.size(); ++i) {
      const uint32_t end = tile.ends[i] - tile.first_end;
      if (end > begin) {
        lists_.Take(tile.nodes[i], tile.positions.subspan(begin, end - begin), neighbors + begin);
      }
      begin = end;
    }
    return Status::Ok();
  }

  uint64_t tile_positions_max() const override { return kMemoryTilePositions; }
  uint64_t memory_bytes() const override { return sizeof(*this); }

 private:
  const PiecedLists& lists_;
};

}  // namespace

std::unique_ptr<Resolver> MakeListsResolver(const PiecedLists& lists) {
  return std::make_unique<ListsResolver>(lists);
}

std::unique_ptr<Resolver> MakeMemoryResolver(const NeighborSource& source) {
  return std::make_unique<MemoryResolver>(source);
}

}  // namespace quarry
