#include "trace_source.h"

#include <algorithm>
#include <utility>

#include "quarry/base/log.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/layout/trace_statistics.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/times.h"

namespace quarry {
namespace {

// A sequence costs a search of the whole graph; the bound is seldom met with any number of them, and more
// make the order a shuffle again.
constexpr uint32_t kSequencesMax = 8;

// What stays free for samplers and batches, at least, when memory is given to indices or to a cache of them;
// filling the cache, which is done before, takes less.
constexpr uint64_t kSamplingBytes = 128 * kMiB;
static_assert(kSamplingBytes >= 2 * NeighborCache::kBuildBytes);

// With fewer batches the first one, sampled twice for a neighbor cache, is too much of the work.
constexpr uint64_t kCachedBatchesMin = 4;

// A thread's block, its canonical copy, and its encoded form (sample_trace.cc).
constexpr uint64_t kWorkingBytesPerNode = 64, kWorkingBytesPerEdge = 12, kWorkingBytesPerEdgeId = 16,
                   kWorkingBytesPerRelation = 6;

struct TopologyBytes {
  uint64_t resident = 0;
  uint64_t indices = 0;
  bool FitIn(uint64_t available_bytes) const {
    return available_bytes >= resident + indices + kSamplingBytes;
  }
};

TopologyBytes BytesOf(const Manifest& manifest, const TopologyRecord& record, const LayoutSpec& spec) {
  return {.resident = TraceSourceBytes(manifest, record, spec.road),
          .indices = ListsOnDiskOf(record, spec.road.direction).indices_bytes};
}

// What is counted of places is the same at every time.
std::vector<uint32_t> AtTimes(std::vector<uint32_t> of_places, uint64_t times) {
  const size_t places = of_places.size();
  of_places.resize(places * times);
  for (size_t node = places; node < of_places.size(); ++node) of_places[node] = of_places[node - places];
  return of_places;
}

}  // namespace

uint64_t TraceSourceBytes(const Manifest& manifest, const TopologyRecord& record, const RoadSpec& road) {
  return NeighborSampler::ResidentBytes(record, road) + NodePropertiesBytes(manifest) +
         (road.relation_fanouts.empty() ? 0 : TypedLists::Bytes(manifest));
}

ListsOnDisk ListsOnDiskOf(const TopologyRecord& record, Direction direction) {
  const uint64_t sides = SidesOf(direction).size();
  return {.indices_bytes = sides * record.edge_count * sizeof(NodeId),
          .address_bytes = sides * IoBuffer::MappedBytes(record.node_count * sizeof(uint32_t))};
}

bool MakesNeighborCaches(const ListsOnDisk& lists, uint64_t batch_count, double read_bytes,
                         uint64_t cache_bytes) {
  return batch_count >= kCachedBatchesMin && cache_bytes > lists.address_bytes &&
         static_cast<double>(batch_count) * read_bytes > static_cast<double>(lists.indices_bytes);
}

TopologyPlace PlaceTopology(const Manifest& manifest, const LayoutSpec& spec, const SampledBatch& batch,
                            uint64_t batch_count, uint64_t available_bytes) {
  const TopologyRecord* const record = manifest.FindTopology(spec.road.topology);
  if (record == nullptr) return {};
  const TopologyBytes bytes = BytesOf(manifest, *record, spec);
  if (bytes.FitIn(available_bytes)) return {.in_memory = true};
  const uint64_t left = available_bytes - std::min(available_bytes, bytes.resident);
  return {.cache_bytes = NeighborCacheBytes(batch, batch_count, spec.threads,
                                            ListsOnDiskOf(*record, spec.road.direction), left)};
}

uint64_t NeighborCacheBytes(const SampledBatch& batch, uint64_t batch_count, unsigned threads,
                            const ListsOnDisk& lists, uint64_t available_bytes) {
  // Batches differ in size, if little.
  const uint64_t working_bytes =
      std::max(kSamplingBytes, threads * (batch.working_bytes + batch.working_bytes / 4));
  if (available_bytes <= working_bytes) return 0;
  const uint64_t whole_bytes = lists.address_bytes + IoBuffer::MappedBytes(lists.indices_bytes);
  const uint64_t bytes = std::min(available_bytes - working_bytes, whole_bytes);
  return MakesNeighborCaches(lists, batch_count, static_cast<double>(batch.read_bytes), bytes) ? bytes : 0;
}

Result<std::unique_ptr<TraceSource>> TraceSource::Make(Store& store, MemoryBudget& budget,
                                                       const LayoutSpec& spec, bool load_lists) {
  std::unique_ptr<TraceSource> source(new TraceSource(store, budget));
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  std::shared_ptr<const Snapshot> snapshot = spec.snapshot;
  if (snapshot == nullptr) {
    QUARRY_TRY(snapshot, store.TakeSnapshot());
  }
  const TopologyRecord* record = snapshot->FindTopology(spec.road.topology);
  if (record == nullptr) return store.OpenTopology(spec.road.topology).status();
  const TopologyBytes bytes = BytesOf(*manifest, *record, spec);
  const std::span<const Adjacency> sides = SidesOf(spec.road.direction);
  const bool in_memory = load_lists && bytes.FitIn(budget.available_bytes());
  QUARRY_TRY(source->reservation_,
             budget.Reserve(bytes.resident + (in_memory ? bytes.indices : 0), "sampling a trace"));
  QUARRY_TRY(source->topology_, OpenPlaces(store, *snapshot, spec.road.topology));
  const Times times = Times::Of(*record, snapshot->node_count);
  if (times.any() && spec.road.seed_order != SeedOrder::kRandom) {
    return MakeStatus(
        Code::kUnsupported,
        "{}: seeds at several times are ordered by time, and not by proximity: leave the order out",
        store.path());
  }
  if (!spec.road.relation_fanouts.empty()) {
    if (times.any()) {
      return MakeStatus(Code::kUnsupported, "{}: fanouts by type of edges are of graphs without times",
                        store.path());
    }
    QUARRY_TRY(source->types_, TypedLists::Load(store, budget, *manifest, *source->topology_));
  }
  QUARRY_RETURN_IF_ERROR(NeighborSampler::LoadWeights(store.backend(), spec.road, *source->topology_));
  for (const Adjacency side : sides) {
    if (in_memory && source->topology_->has(side)) {
      QUARRY_RETURN_IF_ERROR(source->topology_->LoadIndices(store.backend(), side));
    }
  }
  source->lists_ = ListsOnDiskOf(*record, spec.road.direction);
  source->neighbors_ = {.topology = source->topology_.get(),
                        .types = source->types_.get(),
                        .times = times.count,
                        .direction = spec.road.direction,
                        .backend = &store.backend(),
                        .device = ProfileOf(*manifest)};
  QUARRY_TRY(const NodeProperties properties, LoadNodeProperties(store, times.nodes(), snapshot));
  const std::vector<NodeId> seeds = properties.TrainNodes();
  if (seeds.empty()) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: the split has no labelled training node to plan for; import one with --train",
                      store.path());
  }
  source->seed_hash_ = HashSeeds(seeds);
  QUARRY_RETURN_IF_ERROR(source->OrderSeeds(spec, seeds, properties.labels));
  return source;
}

Result<SampledBatch> TraceSource::SampleFirst() const {
  QUARRY_TRY(const std::unique_ptr<NeighborSampler> sampler, NeighborSampler::Make(neighbors_, spec_.road));
  const std::vector<NodeId>& seeds = spec_.seeds.front();
  Block block;
  QUARRY_RETURN_IF_ERROR(
      sampler->Sample({seeds.data(), std::min<size_t>(seeds.size(), spec_.road.batch_size)},
                      spec_.road.SeedOf(spec_.first_pass, spec_.first_batch), block));
  return SampledBatch{.read_bytes = sampler->stats().bytes_read,
                      .working_bytes = sampler->scratch_bytes() + block.nodes.size() * kWorkingBytesPerNode +
                                       block.indices.size() * kWorkingBytesPerEdge +
                                       block.edge_ids.size() * kWorkingBytesPerEdgeId +
                                       block.relations.size() * kWorkingBytesPerRelation};
}

// 4 bytes a node, while traces are sampled.
Status TraceSource::LoadParts(const std::string& partitioning) {
  if (!parts_.empty() && parts_name_ == partitioning) return Status::Ok();
  QUARRY_TRY(const std::unique_ptr<StoredPartitioning> parts,
             StoredPartitioning::Open(store_, budget_, partitioning));
  const uint64_t nodes = parts->directory().node_count();
  if (nodes != topology_->node_count()) {
    return MakeStatus(Code::kUnsupported, "{}: partitioning \"{}\" is of {} nodes, and the topology has {}",
                      store_.path(), partitioning, nodes, topology_->node_count());
  }
  parts_reservation_.Release();
  QUARRY_TRY(parts_reservation_, budget_.Reserve(nodes * sizeof(uint32_t), "the part of each node"));
  parts_.resize(nodes);
  QUARRY_RETURN_IF_ERROR(parts->ReadNewIds(0, parts_));
  for (uint32_t& part : parts_) part = parts->directory().PartOf(part);
  parts_name_ = partitioning;
  return Status::Ok();
}

Result<TraceSpec> TraceSource::SpecOf(const RankShare& share) {
  TraceSpec spec = spec_;
  if (share.ranks == 0) return spec;
  const uint64_t batch = spec.road.batch_size;
  if (!share.rank_partitioning.empty()) QUARRY_RETURN_IF_ERROR(LoadParts(share.rank_partitioning));
  for (std::vector<NodeId>& seeds : spec.seeds) {
    const std::vector<NodeId> all = std::exchange(seeds, {});
    for (size_t i = 0; i < all.size(); ++i) {
      const uint64_t turn = share.rank_partitioning.empty() ? i / batch : parts_[all[i]];
      if (turn % share.ranks == share.rank) seeds.push_back(all[i]);
    }
    if (!seeds.empty()) continue;
    return MakeStatus(Code::kUsage,
                      "trainer {} of {} has no batch of a pass of {} training nodes: take fewer ranks{}",
                      share.rank, share.ranks, all.size(),
                      share.rank_partitioning.empty() ? ", or smaller batches" : ", or more parts");
  }
  spec.batch_step = share.ranks;
  spec.batch_offset = share.rank;
  return spec;
}

Status TraceSource::CacheNeighbors(MemoryBudget& budget) {
  if (neighbors_.caches[0] != nullptr || neighbors_.caches[1] != nullptr)
    return Status::Ok();  // for another rank
  const std::span<const Adjacency> sides = SidesOf(spec_.road.direction);
  const auto on_disk = [&](Adjacency side) {
    return topology_->has(side) && topology_->indices(side).empty();
  };
  if (!std::ranges::all_of(sides, on_disk) || spec_.batch_count() < kCachedBatchesMin) return Status::Ok();
  QUARRY_TRY(const SampledBatch first, SampleFirst());
  const uint64_t bytes =
      NeighborCacheBytes(first, spec_.batch_count(), spec_.threads, lists_, budget.available_bytes()) /
      sides.size();
  if (bytes == 0) return Status::Ok();
  QUARRY_TRY(cache_reservation_, budget.Reserve(bytes * sides.size(), "a neighbor cache"));
  for (const Adjacency side : sides) {
    auto& cache = neighbor_caches_[static_cast<int>(side)];
    QUARRY_TRY(cache, NeighborCache::Build(store_.backend(), *topology_, side, bytes));
    neighbors_.caches[static_cast<int>(side)] = cache.get();
    LogLine(LogLevel::kDebug,
            fmt::format("sampling from disk: a neighbor cache of {} has {} lists, {:.1f} % of the edges",
                        FormatBytes(cache->memory_bytes()), cache->cached_nodes(),
                        100.0 * static_cast<double>(cache->cached_edges()) /
                            static_cast<double>(std::max<uint64_t>(1, topology_->edge_count()))));
  }
  return Status::Ok();
}

Status TraceSource::OrderSeeds(const LayoutSpec& spec, const std::vector<NodeId>& seeds,
                               const std::vector<int64_t>& labels) {
  spec_ = {.road = spec.road,
           .first_pass = spec.first_pass,
           .first_batch = spec.first_batch,
           .threads = spec.threads};
  for (uint32_t epoch = 0; epoch < spec.epochs; ++epoch) {
    const uint64_t pass = spec.first_pass + epoch;
    if (spec.road.seed_order == SeedOrder::kRandom) {
      spec_.seeds.push_back(seeds);
      ShuffleSeeds(spec_.seeds.back(), spec.road.seed, pass,
                   neighbors_.times > 1 ? topology_->node_count() : 0);
      continue;
    }
    QUARRY_TRY(OrderedSeeds ordered, OrderByProximity(*topology_, seeds, labels,
                                                      {.batch_size = spec.road.batch_size,
                                                       .sequences_max = kSequencesMax,
                                                       .seed = MixSeed(spec.road.seed, pass)}));
    sequences_ = ordered.sequences;
    spec_.seeds.push_back(std::move(ordered.seeds));
  }
  return spec.batches > 0 ? KeepSuperbatch(spec) : Status::Ok();
}

// Seeds are in the order of the whole pass, so that the superbatches of a pass are the pass.
Status TraceSource::KeepSuperbatch(const LayoutSpec& spec) {
  std::vector<NodeId>& seeds = spec_.seeds.front();
  const uint64_t pass_batches = CeilDiv(seeds.size(), uint64_t{spec.road.batch_size});
  if (spec.first_batch >= pass_batches) {
    return MakeStatus(
        Code::kUsage,
        "first_batch {}: the pass has {} batches, so a superbatch begins with batch {} at the latest",
        spec.first_batch, pass_batches, pass_batches - 1);
  }
  const uint64_t count = std::min(spec.batches, pass_batches - spec.first_batch);
  const auto first = seeds.begin() + static_cast<ptrdiff_t>(spec.first_batch * spec.road.batch_size);
  const uint64_t left = static_cast<uint64_t>(seeds.end() - first);
  seeds.erase(first + static_cast<ptrdiff_t>(std::min(left, count * spec.road.batch_size)), seeds.end());
  seeds.erase(seeds.begin(), first);
  return Status::Ok();
}

Result<std::vector<uint32_t>> CountUses(IoBackend& backend, const Topology& topology, Direction direction) {
  std::vector<uint32_t> counts(topology.node_count());
  for (const Adjacency side : SidesOf(direction)) {
    const Adjacency other = side == Adjacency::kCsc ? Adjacency::kCsr : Adjacency::kCsc;
    if (topology.has(other)) {
      const std::span<const uint64_t> indptr = topology.indptr(other);
      for (size_t v = 0; v < counts.size(); ++v)
        counts[v] += static_cast<uint32_t>(indptr[v + 1] - indptr[v]);
      continue;
    }
    for (const NodeId node : topology.indices(side)) ++counts[node];
    if (!topology.indices(side).empty() || topology.edge_count() == 0) continue;
    QUARRY_TRY(const auto scanner, EdgeColumnScanner::Make(backend, topology, side, EdgeColumn::kNeighbors));
    for (uint64_t left = topology.edge_count(); left > 0;) {
      QUARRY_TRY(const std::span<const NodeId> nodes, scanner->Next());
      for (const NodeId node : nodes) ++counts[node];
      left -= nodes.size();
    }
  }
  return counts;
}

Result<std::vector<uint32_t>> TraceSource::CountUses() const {
  QUARRY_TRY(std::vector<uint32_t> counts,
             quarry::CountUses(store_.backend(), *topology_, neighbors_.direction));
  return AtTimes(std::move(counts), neighbors_.times);
}

Result<std::vector<uint32_t>> CountUses(Store& store, MemoryBudget& budget, const LayoutRecord& layout) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  const TopologyRecord* record = snapshot->FindTopology(layout.spec.topology);
  if (record == nullptr) return store.OpenTopology(layout.spec.topology).status();
  const Times times = Times::Of(*record, snapshot->node_count);
  QUARRY_TRY(
      const MemoryBudget::Reservation reservation,
      budget.Reserve(Topology::ResidentBytes(*record) + times.nodes() * sizeof(uint32_t), "counting uses"));
  QUARRY_TRY(const std::unique_ptr<Topology> topology, OpenPlaces(store, *snapshot, layout.spec.topology));
  QUARRY_TRY(std::vector<uint32_t> counts, CountUses(store.backend(), *topology, layout.spec.direction));
  return AtTimes(std::move(counts), times.count);
}

}  // namespace quarry
