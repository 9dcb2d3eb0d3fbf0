#include "quarry/service/block_sampler.h"

#include <algorithm>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/record_names.h"

namespace quarry {
namespace {

constexpr uint64_t kEdgesMax = uint64_t{1} << 31;  // most edges of a block, as samplers have it

struct BlockBound {
  uint64_t nodes = 0;
  uint64_t edges = 0;
};

// The most that a block can have: every node finds as many new ones as its fanout, until there are no more.
BlockBound BoundOf(const Topology& topology, const wire::Sample& request, const RoadSpec& spec) {
  BlockBound bound{.nodes = request.seeds.size()};
  uint64_t frontier = bound.nodes;
  for (const uint32_t fanout : spec.fanouts) {
    const uint64_t edges = frontier * fanout;
    bound.edges += edges;
    frontier = std::min(edges, topology.node_count() - std::min(topology.node_count(), bound.nodes));
    bound.nodes += frontier;
  }
  bound.edges = std::min({bound.edges, spec.EdgesMax(topology.edge_count()), kEdgesMax});
  return bound;
}

// The most neighbors of a node: a pass over all of them, unless it is `known`.
uint64_t DegreeMax(const Topology& topology, Direction direction, std::atomic<uint64_t>& known) {
  if (const uint64_t found = known.load(std::memory_order_relaxed); found > 0) return found - 1;
  std::span<const uint64_t> sides[2];
  size_t count = 0;
  for (const Adjacency side : SidesOf(direction)) {
    if (topology.has(side)) sides[count++] = topology.indptr(side);
  }
  uint64_t most = 0;
  for (uint64_t node = 0; count > 0 && node < topology.node_count(); ++node) {
    uint64_t degree = sides[0][node + 1] - sides[0][node];
    if (count > 1) degree += sides[1][node + 1] - sides[1][node];
    most = std::max(most, degree);
  }
  known.store(most + 1, std::memory_order_relaxed);
  return most;
}

// As many as the node that has most, so that all are taken of each: a draw of no fewer than there are takes them all.
Status TakeAll(uint64_t degree_max, uint32_t fanout_max, std::string_view what, uint32_t& fanout) {
  if (degree_max > fanout_max) {
    return MakeStatus(Code::kUnsupported,
                      "all neighbors {}: that is up to {} of a node, and {} are the most that are drawn in a "
                      "hop: give a number",
                      what, degree_max, fanout_max);
  }
  fanout = static_cast<uint32_t>(degree_max);
  return Status();
}

// What the request draws by, with numbers in the place of "all". `degree_max` is of the topology in its direction.
Result<RoadSpec> SpecOf(const wire::Sample& request, const Topology& topology, const TypedLists* types,
                        const Manifest& manifest, std::atomic<uint64_t>& degree_max) {
  RoadSpec spec = {.direction = request.direction,
                   .fanouts = request.fanouts,
                   .replace = request.replace,
                   .edge_ids = request.edge_ids,
                   .relation_fanouts = request.relation_fanouts};
  const auto all = [](uint32_t fanout) { return fanout == wire::kAllNeighbors; };
  // By type, `fanouts` are but the sums of what is asked for.
  if (request.replace && std::ranges::any_of(types == nullptr ? spec.fanouts : spec.relation_fanouts, all)) {
    return Status(Code::kUsage, "all neighbors, with replacement: give numbers, or leave replacement out");
  }
  if (types == nullptr) {
    if (std::ranges::none_of(spec.fanouts, all)) return spec;
    const uint64_t most = DegreeMax(topology, request.direction, degree_max);
    for (uint32_t& fanout : spec.fanouts) {
      if (all(fanout)) QUARRY_RETURN_IF_ERROR(TakeAll(most, NeighborSampler::kFanoutMax, "of nodes", fanout));
      fanout = std::max(fanout, 1U);
    }
    return spec;
  }
  const uint32_t relations = types->relation_count();
  for (size_t i = 0; i < spec.relation_fanouts.size(); ++i) {
    if (!all(spec.relation_fanouts[i])) continue;
    const uint32_t relation = static_cast<uint32_t>(i % relations);
    QUARRY_RETURN_IF_ERROR(TakeAll(types->DegreeMax(relation), NeighborSampler::kFanoutMax,
                                   "by edges of type '" + manifest.edge_types[relation].name + "'",
                                   spec.relation_fanouts[i]));
  }
  for (size_t hop = 0; hop < spec.fanouts.size() && (hop + 1) * relations <= spec.relation_fanouts.size();
       ++hop) {
    if (!all(spec.fanouts[hop])) continue;
    uint64_t most = 1;
    for (uint32_t type = 0; type < types->node_types().size(); ++type) {
      uint64_t sum = 0;
      for (const uint32_t relation : types->RelationsInto(type))
        sum += spec.relation_fanouts[hop * relations + relation];
      most = std::max(most, sum);
    }
    QUARRY_RETURN_IF_ERROR(
        TakeAll(most, NeighborSampler::kTypedFanoutMax, "by edges of all types", spec.fanouts[hop]));
  }
  return spec;
}

}  // namespace

Result<std::shared_ptr<const BlockSampler::Open>> BlockSampler::OpenTopology(const Snapshot& snapshot,
                                                                             const TopologyRecord& record) {
  const uint64_t indices_bytes =
      IoBuffer::MappedBytes(record.edge_count * sizeof(NodeId)) * (record.has_csr ? 2 : 1);
  const uint64_t fixed_bytes = Topology::ResidentBytes(record);
  auto open = std::make_shared<Open>();
  open->timestamp = record.timestamp();
  // Half of it stays for the tables.
  open->in_memory = fixed_bytes + indices_bytes <= budget_.available_bytes() / 2;
  QUARRY_TRY(open->reservation, budget_.Reserve(fixed_bytes + (open->in_memory ? indices_bytes : 0),
                                                "topology \"" + record.name + "\""));
  QUARRY_TRY(open->topology, store_.OpenTopology(snapshot, record.name));
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    if (!open->in_memory || !open->topology->has(side)) continue;
    QUARRY_RETURN_IF_ERROR(open->topology->LoadIndices(store_.backend(), side));
  }
  return std::shared_ptr<const Open>(std::move(open));
}

// The newest graph: once nodes or edges were committed it is opened anew. A compaction changes none.
Result<std::shared_ptr<const BlockSampler::Open>> BlockSampler::Find(std::string_view name) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store_.TakeSnapshot());
  const TopologyRecord* const record = snapshot->FindTopology(name);
  if (record == nullptr) {
    return Status(Code::kNotFound, ThereIsNo("topology", name, "topologies", snapshot->topologies));
  }
  MutexLock lock(mutex_);
  if (const auto found = open_.find(name); found != open_.end()) {
    const Open& open = *found->second;
    if (open.timestamp >= record->timestamp() && open.topology->node_count() >= record->node_count) {
      return found->second;
    }
    open_.erase(found);  // before the next one takes as much memory
  }
  QUARRY_TRY(auto open, OpenTopology(*snapshot, *record));
  return open_.emplace(name, std::move(open)).first->second;
}

Result<std::shared_ptr<const BlockSampler::Typed>> BlockSampler::TypesOf(
    const wire::Sample& request, const std::shared_ptr<const Open>& open) {
  if (request.relation_fanouts.empty()) return std::shared_ptr<const Typed>();
  MutexLock lock(mutex_);
  if (typed_ != nullptr && typed_->open == open) return typed_;
  typed_.reset();
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  auto typed = std::make_shared<Typed>();
  typed->open = open;
  QUARRY_TRY(typed->reservation, budget_.Reserve(TypedLists::Bytes(*manifest), "where types of edges end"));
  QUARRY_TRY(typed->lists, TypedLists::Load(store_, budget_, *manifest, *open->topology));
  typed_ = std::move(typed);
  return typed_;
}

Result<BlockSampler::Sampled> BlockSampler::Sample(const wire::Sample& request, MemoryBudget& session) {
  QUARRY_TRY(const std::shared_ptr<const Open> open, Find(request.topology));
  QUARRY_TRY(const std::shared_ptr<const Typed> typed, TypesOf(request, open));
  const TypedLists* const types = typed == nullptr ? nullptr : typed->lists.get();
  std::atomic<uint64_t>& degree_max = open->degrees_max[static_cast<size_t>(request.direction)];
  QUARRY_TRY(const RoadSpec spec, SpecOf(request, *open->topology, types, *store_.manifest(), degree_max));
  const NeighborSource source = {.topology = open->topology.get(),
                                 .types = types,
                                 .direction = request.direction,
                                 .backend = &store_.backend(),
                                 .device = ProfileOf(*store_.manifest())};
  QUARRY_TRY(const auto sampler, NeighborSampler::Make(source, spec));
  const BlockBound bound = BoundOf(*open->topology, request, spec);
  // Vectors that grow double: what is filled is half of what is held, at worst.
  const uint64_t id_bytes = request.edge_ids ? bound.edges * 2 * sizeof(uint64_t) : 0;
  const uint64_t relation_bytes = types == nullptr ? 0 : bound.edges * 2 * sizeof(uint16_t);
  const uint64_t block_bytes =
      (bound.nodes * 2 + bound.edges) * 2 * sizeof(uint32_t) + id_bytes + relation_bytes + 4 * kKiB;
  const uint64_t scratch_bytes =
      NeighborSampler::ScratchBytesMax(source, bound.nodes, bound.edges, open->in_memory, spec);
  Sampled sampled;
  QUARRY_TRY(sampled.reservation, session.Reserve(block_bytes + scratch_bytes, "sampling a block"));
  QUARRY_RETURN_IF_ERROR(sampler->Sample(request.seeds, request.stream_seed, sampled.block));
  return sampled;
}

}  // namespace quarry
