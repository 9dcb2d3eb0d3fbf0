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

}  // namespace

std::unique_ptr<Resolver> MakeMemoryResolver(const NeighborSource& source) {
  return std::make_unique<MemoryResolver>(source);
}

}  // namespace quarry
