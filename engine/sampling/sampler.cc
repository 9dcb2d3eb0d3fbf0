#include "quarry/sampling/sampler.h"

#include <algorithm>
#include <cassert>

#include "hop_draw.h"
#include "node_table.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/fanouts.h"
#include "quarry/storage/growth_cost.h"
#include "resolver.h"

namespace quarry {
namespace {

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
  DenseSampler(const NeighborSource& source, const RoadSpec& spec, std::unique_ptr<Resolver> resolver,
               std::unique_ptr<HopDraw> draw)
      : lists_(source.lists),
        meter_(source.lists == nullptr ? source.topology->meter() : nullptr),
        places_(source.lists == nullptr ? source.topology->node_count() : 0),
        times_(source.times),
        fanouts_(spec.fanouts),
        edge_ids_(spec.edge_ids),
        typed_(!spec.relation_fanouts.empty()),
        entries_max_(source.block_entries_max),
        resolver_(std::move(resolver)),
        draw_(std::move(draw)),
        fresh_(kRenumberMax + 1) {}

  Status Sample(std::span<const NodeId> seeds, const DrawSeed& seed, Block& block) override;
  const SamplerStats& stats() const override { return stats_; }
  uint64_t scratch_bytes() const override {
    return drawn_.memory_bytes() + fresh_.capacity() * sizeof(NodeId) + draw_->memory_bytes() +
           table_.memory_bytes() + resolver_->memory_bytes() + frontier_.capacity() * sizeof(NodeId);
  }

 private:
  Status AddSeeds(std::span<const NodeId> seeds, Block& block);
  Status SampleHop(uint32_t hop, uint32_t begin, uint32_t end, Block& block);
  uint64_t node_count() const { return lists_ != nullptr ? lists_->node_count() : places_ * times_; }
  std::span<const NodeId> PlacesOf(std::span<const NodeId> nodes);
  Status Renumber(std::span<uint32_t> ids, Block& block);

  const PiecedLists* const lists_;  // null: those of a topology
  RunsMeter* const meter_;          // null: nobody asks
  const uint64_t places_;           // nodes of the topology
  const uint64_t times_;
  const std::vector<uint32_t> fanouts_;
  const bool edge_ids_;
  const bool typed_;
  const uint64_t entries_max_;
  std::unique_ptr<Resolver> resolver_;
  std::unique_ptr<HopDraw> draw_;  // dies before the resolver
  NodeTable table_;
  Drawn drawn_;  // one tile's
  std::vector<NodeId> fresh_;
  std::vector<NodeId> frontier_;  // the places of a hop's nodes, where there are several times
  SamplerStats stats_;
};

// Waleffe Alg. 1, with the arrays growing at their ends instead of their fronts: hop after hop, draw the
// positions of the neighbors of the nodes that the last hop found, resolve them, and append the nodes not met
// before.
Status DenseSampler::Sample(std::span<const NodeId> seeds, const DrawSeed& seed, Block& block) {
  const double start = MonotonicSeconds();
  const SamplerStats before = stats_;
  block.nodes.clear();
  block.indices.clear();
  block.edge_ids.clear();
  block.relations.clear();
  block.hop_offsets.clear();
  block.indptr.assign(1, 0);
  QUARRY_RETURN_IF_ERROR(AddSeeds(seeds, block));
  block.hop_offsets.push_back(static_cast<uint32_t>(block.nodes.size()));
  draw_->Begin(seed);
  uint32_t frontier = 0;
  for (uint32_t hop = 0; hop < fanouts_.size(); ++hop) {
    const uint32_t known = block.hop_offsets.back();
    QUARRY_RETURN_IF_ERROR(SampleHop(hop, frontier, known, block));
    frontier = known;
    block.hop_offsets.push_back(static_cast<uint32_t>(block.nodes.size()));
  }
  stats_.edges += block.indices.size();
  stats_.nodes += block.nodes.size();
  const double seconds = MonotonicSeconds() - start;
  stats_.seconds += seconds;
  if (meter_ != nullptr) {
    meter_->Add(block.indices.size(), seconds, stats_.searches - before.searches,
                stats_.search_seconds - before.search_seconds);
  }
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

// Whose lists the nodes of a hop have: their own, or, where there are several times, those of their places.
std::span<const NodeId> DenseSampler::PlacesOf(std::span<const NodeId> nodes) {
  if (times_ == 1) return {};
  frontier_.assign(nodes.begin(), nodes.end());
  for (NodeId& node : frontier_) node %= static_cast<NodeId>(places_);
  return frontier_;
}

// Makes neighbors of places those of nodes: a node's are at its own time.
void ShiftToTimes(std::span<const NodeId> nodes, std::span<const NodeId> places,
                  std::span<const uint32_t> ends, uint32_t first_end, NodeId* neighbors) {
  uint32_t at = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const NodeId shift = nodes[i] - places[i];
    for (; at < ends[i] - first_end; ++at) neighbors[at] += shift;
  }
}

Status DenseSampler::SampleHop(uint32_t hop, uint32_t begin, uint32_t end, Block& block) {
  std::span<const NodeId> places = PlacesOf(std::span(block.nodes).subspan(begin, end - begin));
  while (begin < end) {
    const uint32_t first_end = block.indptr.back();
    const std::span<const NodeId> nodes = std::span(block.nodes).subspan(begin, end - begin);
    drawn_.neighbors.clear();
    const std::span<const NodeId> lists = times_ == 1 ? nodes : places;
    QUARRY_TRY(const uint32_t drawn_for,
               draw_->Draw(lists, hop, fanouts_[hop], block.indptr, drawn_, stats_));
    const size_t count = drawn_.count;
    if (block.seed_count() + first_end + count > entries_max_) {
      return MakeStatus(
          Code::kInvalidArgument,
          "a block of {} seeds has more than {} sampled neighbors: take fewer seeds or smaller fanouts",
          block.seed_count(), entries_max_ - block.seed_count());
    }
    block.indices.resize(first_end + count);
    // Along kIn a position is the edge's id. The resolver destroys it.
    if (edge_ids_) {
      block.edge_ids.insert(block.edge_ids.end(), drawn_.positions.data(), drawn_.positions.data() + count);
    }
    if (typed_) {
      block.relations.insert(block.relations.end(), drawn_.relations.data(), drawn_.relations.data() + count);
    }
    uint32_t* const neighbors = block.indices.data() + first_end;
    if (!drawn_.neighbors.empty()) {
      std::ranges::copy(drawn_.neighbors, neighbors);
    } else {
      const PositionTile tile{.nodes = lists.first(drawn_for),
                              .ends = std::span(block.indptr).subspan(begin + 1),
                              .first_end = first_end,
                              .positions = {drawn_.positions.data(), count}};
      QUARRY_RETURN_IF_ERROR(resolver_->Resolve(tile, neighbors, stats_));
    }
    if (times_ > 1) {
      ShiftToTimes(nodes, lists, std::span(block.indptr).subspan(begin + 1, drawn_for), first_end, neighbors);
      places = places.subspan(drawn_for);
    }
    for (size_t i = 0; i < count; i += kRenumberMax) {
      QUARRY_RETURN_IF_ERROR(Renumber({neighbors + i, std::min(kRenumberMax, count - i)}, block));
    }
    begin += drawn_for;
  }
  return Status::Ok();
}

Status DenseSampler::Renumber(std::span<uint32_t> ids, Block& block) {
  QUARRY_RETURN_IF_ERROR(table_.Reserve(block.nodes, ids.size()));
  const uint32_t fresh = table_.Renumber(ids, static_cast<uint32_t>(block.nodes.size()), fresh_.data());
  block.nodes.insert(block.nodes.end(), fresh_.begin(), fresh_.begin() + fresh);
  return Status::Ok();
}

Status CheckDraws(const NeighborSource& source, const RoadSpec& spec) {
  if (spec.batch_dependency > 0 && spec.sampler != SamplerKind::kLabor) {
    return MakeStatus(
        Code::kUsage,
        "a batch dependency of {} needs the sampler 'labor': others draw of each node by itself",
        spec.batch_dependency);
  }
  if (spec.replace && spec.sampler == SamplerKind::kLabor) {
    return Status(Code::kUsage, "the sampler 'labor' draws distinct neighbors: leave out replacement");
  }
  if (source.lists == nullptr || spec.DrawsPlainly()) return Status::Ok();
  return MakeStatus(
      Code::kUnsupported,
      "neighbors between parts are drawn uniformly, of each node by itself: take {} from another road",
      spec.weighted ? "weighted samples" : "the sampler 'labor'");
}

std::unique_ptr<HopDraw> MakeDraw(const NeighborSource& source, const RoadSpec& spec, Resolver& resolver) {
  if (!spec.relation_fanouts.empty()) return MakeTypedDraw(source, spec, resolver);
  if (spec.sampler == SamplerKind::kLabor) return MakeLaborDraw(source, spec, resolver);
  if (spec.weighted) return MakeWeightedDraw(source, spec, resolver);
  return MakeUniformDraw(source, spec, resolver);
}

std::unique_ptr<NeighborSampler> MakeDense(const NeighborSource& source, const RoadSpec& spec,
                                           std::unique_ptr<Resolver> resolver) {
  auto draw = MakeDraw(source, spec, *resolver);
  return std::make_unique<DenseSampler>(source, spec, std::move(resolver), std::move(draw));
}

}  // namespace

Status CheckFanouts(std::span<const uint32_t> fanouts, uint32_t fanout_max) {
  if (fanouts.empty() || fanouts.size() > NeighborSampler::kHopsMax) {
    return MakeStatus(Code::kUsage, "{} fanouts: give 1 to {}, one for each hop", fanouts.size(),
                      NeighborSampler::kHopsMax);
  }
  for (size_t hop = 0; hop < fanouts.size(); ++hop) {
    if (fanouts[hop] >= 1 && fanouts[hop] <= fanout_max) continue;
    if (fanouts[hop] == kAllNeighbors) {
      return MakeStatus(
          Code::kUnsupported,
          "all neighbors of hop {}: blocks and batches that are sampled as they come take them; "
          "give 1 to {} here",
          hop + 1, fanout_max);
    }
    return MakeStatus(Code::kUsage, "fanout {} of hop {}: give 1 to {}", fanouts[hop], hop + 1, fanout_max);
  }
  return Status::Ok();
}

Result<std::unique_ptr<NeighborSampler>> NeighborSampler::Make(const NeighborSource& source,
                                                               const RoadSpec& spec) {
  assert((source.topology != nullptr) != (source.lists != nullptr));
  const uint32_t given_max = spec.relation_fanouts.empty() ? kFanoutMax : kTypedFanoutMax;
  QUARRY_RETURN_IF_ERROR(CheckFanouts(spec.fanouts, source.takes_all ? kDegreeMax : given_max));
  QUARRY_RETURN_IF_ERROR(CheckTypedFanouts(source, spec));
  QUARRY_RETURN_IF_ERROR(CheckDraws(source, spec));
  if (source.lists != nullptr) {
    if (spec.edge_ids) return Status(Code::kUnsupported, "neighbors between parts have no edge ids");
    return MakeDense(source, spec, MakeListsResolver(*source.lists));
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
  for (const Adjacency side : SidesOf(source.direction)) {
    if (!spec.weighted || source.topology->weights(side).size() == source.topology->edge_count()) continue;
    return MakeStatus(Code::kInvalidArgument, "{}: weighted samples of edges whose weights are not loaded",
                      source.topology->file().path());
  }
  std::unique_ptr<Resolver> resolver;
  if (InMemory(source)) {
    resolver = MakeMemoryResolver(source);
  } else {
    QUARRY_TRY(resolver, MakeDiskResolver(source));
  }
  return MakeDense(source, spec, std::move(resolver));
}

uint64_t NeighborSampler::ScratchBytesMax(const NeighborSource& source, uint64_t nodes_max,
                                          uint64_t edges_max, bool in_memory, const RoadSpec& spec) {
  // A hop's positions double their vector, which is filled to the last fanout.
  const bool typed = !spec.relation_fanouts.empty();
  const uint64_t fanout_max = std::max(typed ? kTypedFanoutMax : kFanoutMax, LargestFanout(spec));
  const uint64_t tile_max = in_memory ? std::max(kMemoryTilePositions, fanout_max) : kDiskTilePositions;
  const uint64_t drawn = std::clamp(2 * (edges_max + fanout_max), kMemoryTilePositions, tile_max);
  const uint64_t tile = HopDrawTile(spec, drawn, tile_max);
  return tile * (sizeof(uint64_t) + (typed ? sizeof(uint16_t) : 0)) + (kRenumberMax + 1) * sizeof(NodeId) +
         HopDrawBytesMax(spec, tile) + NodeTable::MemoryBytes(nodes_max + kRenumberMax) +
         (source.times > 1 ? 2 * nodes_max * sizeof(NodeId) : 0) +
         (in_memory ? kKiB : DiskResolverBytesMax(source, tile));
}

uint64_t NeighborSampler::ResidentBytes(const TopologyRecord& record, const RoadSpec& spec) {
  const uint64_t sides = spec.weighted ? SidesOf(spec.direction).size() : 0;
  return Topology::ResidentBytes(record) + sides * Topology::WeightsBytes(record);
}

Status NeighborSampler::LoadWeights(IoBackend& backend, const RoadSpec& spec, Topology& topology) {
  if (!spec.weighted) return Status::Ok();
  for (const Adjacency side : SidesOf(spec.direction)) {
    if (!topology.has(side)) continue;  // Make says what is missing
    QUARRY_RETURN_IF_ERROR(topology.LoadWeights(backend, side));
  }
  return Status::Ok();
}

}  // namespace quarry
