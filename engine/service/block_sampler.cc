#include "quarry/service/block_sampler.h"

#include <algorithm>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/layout/layout.h"
#include "quarry/sampling/all_neighbors.h"
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

RoadSpec SpecOf(const wire::Sample& request) {
  return {.direction = request.direction,
          .fanouts = request.fanouts,
          .replace = request.replace,
          .weighted = request.weighted,
          .edge_ids = request.edge_ids,
          .relation_fanouts = request.relation_fanouts};
}

}  // namespace

Result<std::shared_ptr<const BlockSampler::Open>> BlockSampler::OpenTopology(const Snapshot& snapshot,
                                                                             const TopologyRecord& record,
                                                                             bool weighted) {
  const uint64_t sides = record.has_csr ? 2 : 1;
  const uint64_t indices_bytes = IoBuffer::MappedBytes(record.edge_count * sizeof(NodeId)) * sides;
  const uint64_t fixed_bytes =
      Topology::ResidentBytes(record) + (weighted ? sides * Topology::WeightsBytes(record) : 0);
  auto open = std::make_shared<Open>();
  open->timestamp = record.timestamp();
  open->weighted = weighted;
  // Half of it stays for the tables.
  open->in_memory = fixed_bytes + indices_bytes <= budget_.available_bytes() / 2;
  QUARRY_TRY(open->reservation, budget_.Reserve(fixed_bytes + (open->in_memory ? indices_bytes : 0),
                                                "topology \"" + record.name + "\""));
  QUARRY_TRY(open->topology, store_.OpenTopology(snapshot, record.name));
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    if (!open->topology->has(side)) continue;
    if (weighted) QUARRY_RETURN_IF_ERROR(open->topology->LoadWeights(store_.backend(), side));
    if (open->in_memory) QUARRY_RETURN_IF_ERROR(open->topology->LoadIndices(store_.backend(), side));
  }
  return std::shared_ptr<const Open>(std::move(open));
}

// The newest graph: once nodes or edges were committed it is opened anew, and so it is with its weights when somebody first
// draws by them. A compaction changes none.
Result<std::shared_ptr<const BlockSampler::Open>> BlockSampler::Find(std::string_view name, bool weighted) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store_.TakeSnapshot());
  const TopologyRecord* const record = snapshot->FindTopology(name);
  if (record == nullptr) {
    return Status(Code::kNotFound, ThereIsNo("topology", name, "topologies", snapshot->topologies));
  }
  MutexLock lock(mutex_);
  if (const auto found = open_.find(name); found != open_.end()) {
    const Open& open = *found->second;
    const bool newest =
        open.timestamp >= record->timestamp() && open.topology->node_count() >= record->node_count;
    if (newest && (open.weighted || !weighted)) return found->second;
    weighted = weighted || open.weighted;
    open_.erase(found);  // before the next one takes as much memory
  }
  QUARRY_TRY(auto open, OpenTopology(*snapshot, *record, weighted));
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
  QUARRY_TRY(const std::shared_ptr<const Open> open, Find(request.topology, request.weighted));
  QUARRY_TRY(const std::shared_ptr<const Typed> typed, TypesOf(request, open));
  const TypedLists* const types = typed == nullptr ? nullptr : typed->lists.get();
  std::atomic<uint64_t>& degree_max = open->degrees_max[static_cast<size_t>(request.direction)];
  RoadSpec spec = SpecOf(request);
  const bool takes_all = TakesAll(spec);
  QUARRY_RETURN_IF_ERROR(
      CountAllNeighbors(*open->topology, types, store_.manifest()->edge_types, spec, &degree_max));
  const NeighborSource source = {.topology = open->topology.get(),
                                 .types = types,
                                 .takes_all = takes_all,
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
