#include "draw.h"
#include "hop_draw.h"
#include "quarry/base/random.h"

namespace quarry {
namespace {

class UniformDraw final : public HopDraw {
 public:
  UniformDraw(const NeighborSource& source, const RoadSpec& spec, const Resolver& resolver)
      : lists_(source.lists),
        replace_(spec.replace),
        tile_max_(resolver.tile_positions_max()),
        list_sides_(SidesOf(source.direction).size()),
        sides_apart_(source.sides_apart) {
    if (lists_ != nullptr) return;
    const std::span<const Adjacency> sides = SidesOf(source.direction);
    for (size_t i = 0; i < sides.size(); ++i) indptr_[i] = source.topology->indptr(sides[i]).data();
  }

  void Begin(const DrawSeed& seed) override { seed_ = seed.own; }
  Result<uint32_t> Draw(std::span<const NodeId> nodes, uint32_t /*hop*/, uint32_t fanout,
                        std::vector<uint32_t>& indptr, Drawn& drawn, SamplerStats& /*stats*/) override {
    if (lists_ != nullptr) return DrawOfLists(nodes, fanout, indptr, drawn);
    return indptr_[1] == nullptr ? DrawTile<false>(nodes, fanout, indptr, drawn)
                                 : DrawTile<true>(nodes, fanout, indptr, drawn);
  }
  uint64_t memory_bytes() const override { return drawer_.memory_bytes(); }

 private:
  template <bool kTwoSides>
  uint32_t DrawTile(std::span<const NodeId> nodes, uint32_t fanout, std::vector<uint32_t>& indptr,
                    Drawn& drawn);
  uint32_t DrawOfLists(std::span<const NodeId> nodes, uint32_t fanout, std::vector<uint32_t>& indptr,
                       Drawn& drawn);
  uint32_t DrawOfList(Rng& rng, uint64_t base, uint64_t degree, uint32_t fanout, uint64_t* out);

  const PiecedLists* const lists_;  // null: those of a topology
  const uint64_t* indptr_[2] = {nullptr, nullptr};
  const bool replace_;
  const uint64_t tile_max_;
  SubsetDrawer drawer_;
  const size_t list_sides_;
  const bool sides_apart_;
  uint64_t seed_ = 0;  // of the block
};

// It reads indptr alone: which neighbors stand at the positions is the resolver's business, so a block does not
// depend on where the indices lie. With two sides, a node's lists are drawn from as if they were strung together,
// and each drawn number is then mapped to its side.
template <bool kTwoSides>
uint32_t UniformDraw::DrawTile(std::span<const NodeId> nodes, uint32_t fanout, std::vector<uint32_t>& indptr,
                               Drawn& drawn) {
  uint32_t edge_end = indptr.back();
  size_t count = 0;
  uint32_t i = 0;
  for (; i < nodes.size(); ++i) {
    if (i + kNodesAhead < nodes.size()) {
      for (int side = 0; side <= kTwoSides; ++side)
        __builtin_prefetch(&indptr_[side][nodes[i + kNodesAhead]]);
    }
    const uint64_t* const list = &indptr_[0][nodes[i]];
    const uint64_t first_degree = list[1] - list[0];
    const uint64_t* const second = kTwoSides ? &indptr_[1][nodes[i]] : nullptr;
    const uint64_t degree = kTwoSides ? first_degree + second[1] - second[0] : first_degree;
    const uint64_t draws = DrawsOf(degree, fanout, replace_);
    if (count > 0 && count + draws > tile_max_) break;
    drawn.Grow(count + draws, tile_max_);
    uint64_t* const out = drawn.positions.data() + count;
    Rng rng = RngOfNode(seed_, nodes[i]);
    const uint32_t taken = DrawOfList(rng, kTwoSides ? 0 : list[0], degree, fanout, out);
    if constexpr (kTwoSides) {
      for (uint32_t k = 0; k < taken; ++k) {
        out[k] = out[k] < first_degree ? list[0] + out[k] : (second[0] + out[k] - first_degree) | kSecondSide;
      }
    }
    count += taken;
    edge_end += taken;
    indptr.push_back(edge_end);
  }
  drawn.count = count;
  return i;
}

// The same of lists. Positions are those of a node's lists strung together, and the resolver knows the sides.
uint32_t UniformDraw::DrawOfLists(std::span<const NodeId> nodes, uint32_t fanout,
                                  std::vector<uint32_t>& indptr, Drawn& drawn) {
  const bool apart = sides_apart_ && list_sides_ == 2;
  uint32_t edge_end = indptr.back();
  size_t count = 0;
  uint32_t i = 0;
  for (; i < nodes.size(); ++i) {
    const uint64_t first = lists_->Degree(0, nodes[i]);
    const uint64_t second = list_sides_ == 2 ? lists_->Degree(1, nodes[i]) : 0;
    const uint64_t draws = apart ? DrawsOf(first, fanout, replace_) + DrawsOf(second, fanout, replace_)
                                 : DrawsOf(first + second, fanout, replace_);
    if (count > 0 && count + draws > tile_max_) break;
    drawn.Grow(count + draws, tile_max_);
    uint64_t* const out = drawn.positions.data() + count;
    Rng rng = RngOfNode(seed_, nodes[i]);
    uint32_t taken = DrawOfList(rng, 0, apart ? first : first + second, fanout, out);
    if (apart) taken += DrawOfList(rng, first, second, fanout, out + taken);
    count += taken;
    edge_end += taken;
    indptr.push_back(edge_end);
  }
  drawn.count = count;
  return i;
}

// Draws of the positions [base, base + degree); returns how many.
inline uint32_t UniformDraw::DrawOfList(Rng& rng, uint64_t base, uint64_t degree, uint32_t fanout,
                                        uint64_t* out) {
  return DrawPositions(rng, drawer_, replace_, base, degree, fanout, out);
}

}  // namespace

std::unique_ptr<HopDraw> MakeUniformDraw(const NeighborSource& source, const RoadSpec& spec,
                                         const Resolver& resolver) {
  return std::make_unique<UniformDraw>(source, spec, resolver);
}

}  // namespace quarry
