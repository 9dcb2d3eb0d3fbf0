#include <algorithm>

#include "draw.h"
#include "hop_draw.h"
#include "quarry/base/random.h"
#include "quarry/sampling/typed_lists.h"

namespace quarry {
namespace {

// Draws for each type of edges into a node by itself, uniformly: as many as that type's fanout of the hop. A type's draws
// are of the block's seed, the node and the type alone, so that other types' fanouts change nothing about them.
class TypedDraw final : public HopDraw {
 public:
  TypedDraw(const NeighborSource& source, const RoadSpec& spec, const Resolver& resolver)
      : types_(*source.types),
        indptr_(source.topology->indptr(Adjacency::kCsc).data()),
        fanouts_(spec.relation_fanouts),
        replace_(spec.replace),
        tile_max_(resolver.tile_positions_max()) {}

  void Begin(const DrawSeed& seed) override { seed_ = seed.own; }
  Result<uint32_t> Draw(std::span<const NodeId> nodes, uint32_t hop, uint32_t fanout,
                        std::vector<uint32_t>& indptr, Drawn& drawn, SamplerStats& stats) override;
  uint64_t memory_bytes() const override { return drawer_.memory_bytes(); }

 private:
  const TypedLists& types_;
  const uint64_t* const indptr_;
  const std::vector<uint32_t> fanouts_;  // [hops x relations]
  const bool replace_;
  const uint64_t tile_max_;
  SubsetDrawer drawer_;
  uint64_t seed_ = 0;  // of the block
};

Result<uint32_t> TypedDraw::Draw(std::span<const NodeId> nodes, uint32_t hop, uint32_t fanout,
                                 std::vector<uint32_t>& indptr, Drawn& drawn, SamplerStats& /*stats*/) {
  const uint32_t* const of_hop = fanouts_.data() + size_t{hop} * types_.relation_count();
  uint32_t edge_end = indptr.back();
  size_t count = 0;
  uint32_t i = 0;
  for (; i < nodes.size(); ++i) {
    if (i + kNodesAhead < nodes.size()) __builtin_prefetch(&indptr_[nodes[i + kNodesAhead]]);
    const NodeId node = nodes[i];
    const uint64_t base = indptr_[node];
    const uint64_t degree = indptr_[node + 1] - base;
    const uint64_t draws = DrawsOf(degree, fanout, replace_);
    if (count > 0 && count + draws > tile_max_) break;
    drawn.Grow(count + draws, tile_max_);
    drawn.relations.reserve(drawn.positions.size());
    drawn.relations.resize(drawn.positions.size());
    const NodeTypes::Range& in = types_.nodes().RangeOf(node);
    const std::span<const uint32_t> into = types_.RelationsInto(in.type);
    const size_t before = count;
    uint64_t begin = 0;
    for (size_t k = 0; k < into.size() && begin < degree; ++k) {
      const uint64_t end = types_.EndOf(in, node, k, degree);
      const uint32_t wanted = of_hop[into[k]];
      if (wanted > 0 && end > begin) {
        Rng rng(MixSeed(seed_, node, into[k]));
        const uint32_t taken = DrawPositions(rng, drawer_, replace_, base + begin, end - begin, wanted,
                                             drawn.positions.data() + count);
        std::fill_n(drawn.relations.data() + count, taken, static_cast<uint16_t>(into[k]));
        count += taken;
      }
      begin = end;
    }
    edge_end += static_cast<uint32_t>(count - before);
    indptr.push_back(edge_end);
  }
  drawn.count = count;
  return i;
}

}  // namespace

std::unique_ptr<HopDraw> MakeTypedDraw(const NeighborSource& source, const RoadSpec& spec,
                                       const Resolver& resolver) {
  return std::make_unique<TypedDraw>(source, spec, resolver);
}

Status CheckTypedFanouts(const NeighborSource& source, const RoadSpec& spec) {
  if (spec.relation_fanouts.empty()) return Status::Ok();
  if (source.types == nullptr) {
    return Status(Code::kUnsupported,
                  "fanouts by type of edges are drawn of a graph that has types, whole and on the "
                  "processor: take one number for each hop here");
  }
  if (source.direction != Direction::kIn || spec.sampler != SamplerKind::kNeighbor || spec.weighted) {
    return Status(
        Code::kUnsupported,
        "fanouts by type of edges are drawn uniformly along 'in', of each node by itself: leave out other "
        "directions, weights and the sampler 'labor'");
  }
  const uint32_t relations = source.types->relation_count();
  if (spec.relation_fanouts.size() != spec.fanouts.size() * relations) {
    return MakeStatus(Code::kUsage, "{} fanouts by type of edges: {} hops of {} types take {}",
                      spec.relation_fanouts.size(), spec.fanouts.size(), relations,
                      spec.fanouts.size() * relations);
  }
  for (size_t hop = 0; hop < spec.fanouts.size(); ++hop) {
    const std::span of_hop = std::span(spec.relation_fanouts).subspan(hop * relations, relations);
    const uint32_t largest = *std::ranges::max_element(of_hop);
    const uint32_t most = source.takes_all ? NeighborSampler::kDegreeMax : NeighborSampler::kFanoutMax;
    if (largest > most) {
      return MakeStatus(Code::kUsage, "fanout {} of hop {} for a type of edges: give 0 to {}", largest,
                        hop + 1, most);
    }
    for (uint32_t type = 0; type < source.types->type_count(); ++type) {
      uint64_t sum = 0;
      for (const uint32_t relation : source.types->RelationsInto(type)) sum += of_hop[relation];
      if (sum <= spec.fanouts[hop]) continue;
      return MakeStatus(
          Code::kUsage,
          "hop {}: fanouts by type of edges give nodes of type '{}' up to {}, and the hop's fanout is {}",
          hop + 1, source.types->NameOf(type), sum, spec.fanouts[hop]);
    }
  }
  return Status::Ok();
}

}  // namespace quarry
