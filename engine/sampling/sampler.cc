#include "quarry/sampling/sampler.h"

#include <algorithm>
#include <cassert>

#include "draw.h"
#include "node_table.h"
#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "resolver.h"

namespace quarry {
namespace {

// Nodes ahead of the one drawn for whose indptr is fetched.
constexpr size_t kNodesAhead = 16;

// Ids that are renumbered between two looks at the table's load.
constexpr size_t kRenumberMax = 4096;

bool InMemory(const NeighborSource& source) {
  if (source.lists != nullptr) return true;
  return std::ranges::all_of(SidesOf(source.direction), [&](Adjacency side) {
    return source.topology->indices(side).size() == source.topology->edge_count();
  });
}

class DenseSampler final : public NeighborSampler {
 public:
  DenseSampler(const NeighborSource& source, const RoadSpec& spec, std::unique_ptr<Resolver> resolver)
      : lists_(source.lists),
        topology_nodes_(source.lists == nullptr ? source.topology->node_count() : 0),
        fanouts_(spec.fanouts),
        replace_(spec.replace),
        edge_ids_(spec.edge_ids),
        entries_max_(source.block_entries_max),
        drawer_(*std::ranges::max_element(spec.fanouts)),
        resolver_(std::move(resolver)),
        fresh_(kRenumberMax + 1),
        list_sides_(SidesOf(source.direction).size()),
        sides_apart_(source.sides_apart) {
    if (lists_ != nullptr) return;
    const std::span<const Adjacency> sides = SidesOf(source.direction);
    for (size_t i = 0; i < sides.size(); ++i) indptr_[i] = source.topology->indptr(sides[i]).data();
  }

  Status Sample(std::span<const NodeId> seeds, uint64_t stream_seed, Block& block) override;
  const SamplerStats& stats() const override { return stats_; }
  uint64_t scratch_bytes() const override {
    return positions_.capacity() * sizeof(uint64_t) + fresh_.capacity() * sizeof(NodeId) +
           drawer_.memory_bytes() + table_.memory_bytes() + resolver_->memory_bytes();
  }

 private:
  Status AddSeeds(std::span<const NodeId> seeds, Block& block);
  Status SampleHop(uint32_t fanout, uint32_t begin, uint32_t end, Rng& rng, Block& block);
  template <bool kTwoSides>
  uint32_t DrawTile(uint32_t fanout, uint32_t begin, uint32_t end, Rng& rng, Block& block);
  uint32_t DrawOfLists(uint32_t fanout, uint32_t begin, uint32_t end, Rng& rng, Block& block);
  uint32_t DrawOfList(uint64_t base, uint64_t degree, uint32_t fanout, Rng& rng, uint64_t* out);
  void GrowPositions(size_t more);
  uint64_t node_count() const { return lists_ != nullptr ? lists_->node_count() : topology_nodes_; }
  Status Renumber(std::span<uint32_t> ids, Block& block);

  const PiecedLists* const lists_;  // null: those of a topology
  const uint64_t topology_nodes_;
  const std::vector<uint32_t> fanouts_;
  const bool replace_;
  const bool edge_ids_;
  const uint64_t entries_max_;
  const uint64_t* indptr_[2] = {nullptr, nullptr};
  SubsetDrawer drawer_;
  std::unique_ptr<Resolver> resolver_;
  NodeTable table_;
  std::vector<uint64_t> positions_;  // one tile's
  size_t position_count_ = 0;
  std::vector<NodeId> fresh_;
  const size_t list_sides_;
  const bool sides_apart_;
  SamplerStats stats_;
};

// Waleffe Alg. 1, with the arrays growing at their ends instead of their fronts: hop after hop, draw the
// positions of the neighbors of the nodes that the last hop found, resolve them, and append the nodes not met
// before.
Status DenseSampler::Sample(std::span<const NodeId> seeds, uint64_t stream_seed, Block& block) {
  const double start = MonotonicSeconds();
  block.nodes.clear();
  block.indices.clear();
  block.edge_ids.clear();
  block.hop_offsets.clear();
  block.indptr.assign(1, 0);
  QUARRY_RETURN_IF_ERROR(AddSeeds(seeds, block));
  block.hop_offsets.push_back(static_cast<uint32_t>(block.nodes.size()));
  Rng rng(stream_seed);
  uint32_t frontier = 0;
  for (const uint32_t fanout : fanouts_) {
    const uint32_t known = block.hop_offsets.back();
    QUARRY_RETURN_IF_ERROR(SampleHop(fanout, frontier, known, rng, block));
    frontier = known;
    block.hop_offsets.push_back(static_cast<uint32_t>(block.nodes.size()));
  }
  stats_.edges += block.indices.size();
  stats_.nodes += block.nodes.size();
  stats_.seconds += MonotonicSeconds() - start;
  return Status::Ok();
}

Status DenseSampler::AddSeeds(std::span<const NodeId> seeds, Block& block) {
  for (const NodeId seed : seeds) {
    if (seed >= node_count()) {
      return MakeStatus(Code::kInvalidArgument, "seed node {} is out of range: the graph has {} nodes", seed,
                        node_count());
    }
  }
  if (seeds.size() > entries_max_) {
    return MakeStatus(Code::kInvalidArgument, "{} seeds: a block takes at most {}", seeds.size(),
                      entries_max_);
  }
  table_.Clear();
  block.nodes.reserve(seeds.size());
  for (size_t begin = 0; begin < seeds.size(); begin += kRenumberMax) {
    const std::span<const NodeId> part = seeds.subspan(begin, std::min(kRenumberMax, seeds.size() - begin));
    std::vector<uint32_t> ids(part.begin(), part.end());
    QUARRY_RETURN_IF_ERROR(Renumber(ids, block));
    for (size_t i = 0; i < part.size(); ++i) {
      if (ids[i] == begin + i) continue;
      return MakeStatus(Code::kInvalidArgument, "seed node {} is given twice: at {} and at {}", part[i],
                        ids[i], begin + i);
    }
  }
  return Status::Ok();
}

Status DenseSampler::SampleHop(uint32_t fanout, uint32_t begin, uint32_t end, Rng& rng, Block& block) {
  while (begin < end) {
    const uint32_t first_end = block.indptr.back();
    const uint32_t tile_end = lists_ != nullptr       ? DrawOfLists(fanout, begin, end, rng, block)
                              : indptr_[1] == nullptr ? DrawTile<false>(fanout, begin, end, rng, block)
                                                      : DrawTile<true>(fanout, begin, end, rng, block);
    if (block.seed_count() + first_end + position_count_ > entries_max_) {
      return MakeStatus(
          Code::kInvalidArgument,
          "a block of {} seeds has more than {} sampled neighbors: take fewer seeds or smaller fanouts",
          block.seed_count(), entries_max_ - block.seed_count());
    }
    block.indices.resize(first_end + position_count_);
    // Along kIn a position is the edge's id. The resolver destroys it.
    if (edge_ids_) {
      block.edge_ids.insert(block.edge_ids.end(), positions_.data(), positions_.data() + position_count_);
    }
    const PositionTile tile{.nodes = std::span(block.nodes).subspan(begin, tile_end - begin),
                            .ends = std::span(block.indptr).subspan(begin + 1),
                            .first_end = first_end,
                            .positions = {positions_.data(), position_count_}};
    uint32_t* const neighbors = block.indices.data() + first_end;
    QUARRY_RETURN_IF_ERROR(resolver_->Resolve(tile, neighbors, stats_));
    for (size_t i = 0; i < position_count_; i += kRenumberMax) {
      QUARRY_RETURN_IF_ERROR(Renumber({neighbors + i, std::min(kRenumberMax, position_count_ - i)}, block));
    }
    begin = tile_end;
  }
  return Status::Ok();
}

// Draws positions for nodes[begin..], as many nodes as fit a tile; appends to indptr, and returns the first
// node not drawn for. It reads indptr alone: which neighbors stand at the positions is the resolver's
// business, so a block does not depend on where the indices lie. With two sides, a node's lists are drawn
// from as if they were strung together, and each drawn number is then mapped to its side.
template <bool kTwoSides>
uint32_t DenseSampler::DrawTile(uint32_t fanout, uint32_t begin, uint32_t end, Rng& rng, Block& block) {
  const NodeId* const nodes = block.nodes.data();
  const uint64_t tile_max = resolver_->tile_positions_max();
  uint32_t edge_end = block.indptr.back();
  size_t count = 0;
  uint32_t i = begin;
  for (; i < end; ++i) {
    if (count + fanout > tile_max) break;
    GrowPositions(count + fanout);
    if (i + kNodesAhead < end) {
      for (int side = 0; side <= kTwoSides; ++side)
        __builtin_prefetch(&indptr_[side][nodes[i + kNodesAhead]]);
    }
    const uint64_t* const list = &indptr_[0][nodes[i]];
    const uint64_t first_degree = list[1] - list[0];
    const uint64_t* const second = kTwoSides ? &indptr_[1][nodes[i]] : nullptr;
    const uint64_t degree = kTwoSides ? first_degree + second[1] - second[0] : first_degree;
    uint64_t* const out = positions_.data() + count;
    const uint32_t taken = DrawOfList(kTwoSides ? 0 : list[0], degree, fanout, rng, out);
    if constexpr (kTwoSides) {
      for (uint32_t k = 0; k < taken; ++k) {
        out[k] = out[k] < first_degree ? list[0] + out[k] : (second[0] + out[k] - first_degree) | kSecondSide;
      }
    }
    count += taken;
    edge_end += taken;
    block.indptr.push_back(edge_end);
  }
  position_count_ = count;
  return i;
}

// The same of lists. Positions are those of a node's lists strung together, and the resolver knows the sides.
uint32_t DenseSampler::DrawOfLists(uint32_t fanout, uint32_t begin, uint32_t end, Rng& rng, Block& block) {
  const bool apart = sides_apart_ && list_sides_ == 2;
  const size_t most = size_t{fanout} * (apart ? 2 : 1);
  uint32_t edge_end = block.indptr.back();
  size_t count = 0;
  uint32_t i = begin;
  for (; i < end && (count == 0 || count + most <= resolver_->tile_positions_max()); ++i) {
    GrowPositions(count + most);
    const uint64_t first = lists_->Degree(0, block.nodes[i]);
    const uint64_t second = list_sides_ == 2 ? lists_->Degree(1, block.nodes[i]) : 0;
    uint64_t* const out = positions_.data() + count;
    uint32_t taken = DrawOfList(0, apart ? first : first + second, fanout, rng, out);
    if (apart) taken += DrawOfList(first, second, fanout, rng, out + taken);
    count += taken;
    edge_end += taken;
    block.indptr.push_back(edge_end);
  }
  position_count_ = count;
  return i;
}

// Draws of the positions [base, base + degree); returns how many.
inline uint32_t DenseSampler::DrawOfList(uint64_t base, uint64_t degree, uint32_t fanout, Rng& rng,
                                         uint64_t* out) {
  const uint64_t most = replace_ && degree > 0 ? fanout : degree;
  const auto taken = static_cast<uint32_t>(std::min<uint64_t>(fanout, most));
  if (replace_) {
    for (uint32_t k = 0; k < taken; ++k) out[k] = base + rng.Below(degree);
  } else if (degree > fanout) {
    drawer_.Draw(rng, base, degree, taken, out);
  } else {
    for (uint32_t k = 0; k < taken; ++k) out[k] = base + k;
  }
  return taken;
}

// Makes room for this many of the tile's positions.
inline void DenseSampler::GrowPositions(size_t count) {
  if (count <= positions_.size()) return;
  const size_t doubled = std::max(2 * positions_.size(), size_t{kMemoryTilePositions});
  positions_.resize(std::max(count, std::min(size_t{resolver_->tile_positions_max()}, doubled)));
}

Status DenseSampler::Renumber(std::span<uint32_t> ids, Block& block) {
  QUARRY_RETURN_IF_ERROR(table_.Reserve(block.nodes, ids.size()));
  const uint32_t fresh = table_.Renumber(ids, static_cast<uint32_t>(block.nodes.size()), fresh_.data());
  block.nodes.insert(block.nodes.end(), fresh_.begin(), fresh_.begin() + fresh);
  return Status::Ok();
}

Status CheckFanouts(std::span<const uint32_t> fanouts) {
  if (fanouts.empty() || fanouts.size() > NeighborSampler::kHopsMax) {
    return MakeStatus(Code::kUsage, "{} fanouts: give 1 to {}, one for each hop", fanouts.size(),
                      NeighborSampler::kHopsMax);
  }
  for (size_t hop = 0; hop < fanouts.size(); ++hop) {
    if (fanouts[hop] >= 1 && fanouts[hop] <= NeighborSampler::kFanoutMax) continue;
    return MakeStatus(Code::kUsage, "fanout {} of hop {}: give 1 to {}", fanouts[hop], hop + 1,
                      NeighborSampler::kFanoutMax);
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<NeighborSampler>> NeighborSampler::Make(const NeighborSource& source,
                                                               const RoadSpec& spec) {
  assert((source.topology != nullptr) != (source.lists != nullptr));
  QUARRY_RETURN_IF_ERROR(CheckFanouts(spec.fanouts));
  if (source.lists != nullptr) {
    if (spec.edge_ids) return Status(Code::kUnsupported, "neighbors between parts have no edge ids");
    return std::make_unique<DenseSampler>(source, spec, MakeListsResolver(*source.lists));
  }
  if (spec.edge_ids && source.direction != Direction::kIn) {
    return MakeStatus(
        Code::kUnsupported,
        "direction '{}' has no edge ids, which are positions among in-neighbors: take direction "
        "'in'",
        NameOf(source.direction));
  }
  for (const Adjacency side : SidesOf(source.direction)) {
    if (source.topology->has(side)) continue;
    return MakeStatus(Code::kInvalidArgument,
                      "{}: there are no {} lists, which this direction needs: import with --both-directions",
                      source.topology->file().path(),
                      side == Adjacency::kCsc ? "in-neighbor" : "out-neighbor");
  }
  std::unique_ptr<Resolver> resolver;
  if (InMemory(source)) {
    resolver = MakeMemoryResolver(source);
  } else {
    QUARRY_TRY(resolver, MakeDiskResolver(source));
  }
  return std::make_unique<DenseSampler>(source, spec, std::move(resolver));
}

uint64_t NeighborSampler::ScratchBytesMax(const NeighborSource& source, uint64_t nodes_max,
                                          uint64_t edges_max, bool in_memory) {
  // A hop's positions double their vector, which is filled to the last fanout.
  const uint64_t tile = std::clamp(2 * (edges_max + kFanoutMax), kMemoryTilePositions,
                                   in_memory ? kMemoryTilePositions : kDiskTilePositions);
  return tile * sizeof(uint64_t) + (kRenumberMax + 1) * sizeof(NodeId) +
         SubsetDrawer(kFanoutMax).memory_bytes() + NodeTable::MemoryBytes(nodes_max + kRenumberMax) +
         (in_memory ? kKiB : DiskResolverBytesMax(source, tile));
}

}  // namespace quarry
