#include "quarry/pipeline/live_road.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "buffer_fill.h"
#include "extractor.h"
#include "live_device.h"
#include "live_sampling.h"
#include "live_stream.h"
#include "memory_plan.h"
#include "one_pass.h"
#include "probe.h"
#include "quarry/base/log.h"
#include "quarry/base/processor_time.h"
#include "quarry/base/random.h"
#include "quarry/cache/neighbor_cache.h"
#include "quarry/format/fanouts.h"
#include "quarry/io/device.h"
#include "quarry/sampling/all_neighbors.h"
#include "quarry/sampling/seed_order.h"
#include "quarry/sampling/typed_lists.h"
#include "quarry/storage/node_properties.h"
#include "scattered_place.h"

namespace quarry {
namespace {

constexpr uint32_t kBatchesInFlightMax = 4;
constexpr uint64_t kLiveStagingBytes = 16 * kMiB;  // holds 64 requests of 256 KiB
constexpr uint64_t kMeasuredTableBytes =
    256 * kMiB;                                // smaller ones are read in a moment whatever the device does
constexpr uint64_t kMeasureBytes = 8 * kMiB;   // held by MeasureDevice
constexpr uint64_t kProbeSeed = 0x70726f6265;  // apart from the streams of passes

// A batch that exceeds all slots ends its pass. Several in flight that need more than is there merely wait.
constexpr uint64_t kFlightMarginPercent = 3;

// What an entry of a block takes while it is sampled: a neighbor, a node, its place in a hash table at a
// quarter of its load; arrays that grow are there twice.
constexpr uint64_t kProbedEntryBytes = 64;
constexpr uint64_t kProbedEdgeIdBytes = 16;   // beside it, where edge ids are asked for
constexpr uint64_t kProbedRelationBytes = 4;  // and where fanouts are by type of edges
// What probing may take of the memory beside a budget that is small: the least that would do is then known,
// and can be told.
constexpr uint64_t kProbedBytesAnyway = 8 * kMiB;

class LiveRoadImpl final : public LiveRoad {
 public:
  LiveRoadImpl(Store& store, MemoryBudget& budget, const LiveRoadOptions& options)
      : store_(store),
        budget_(budget),
        options_(options),
        takes_all_(TakesAll(options.spec)),
        sides_(SidesOf(options.spec.direction)) {}

  Status OpenAll();
  Result<LiveRoadNeed> Measure();

  Result<std::unique_ptr<BatchStream>> StartPass(PassOptions pass) override;
  std::span<const int64_t> labels() const override { return properties_.labels; }
  std::vector<NodeId> SplitNodes(Split split) const override { return properties_.SplitNodes(split); }
  uint32_t feature_dim() const override { return rows_.dim(); }
  const LiveRoadPlan& plan() const override { return plan_; }
  Result<RoadProbe> ProbeTraining(uint32_t batches) override;
  LiveRoadNeed NeedWith(uint64_t cache_bytes) const override;
  Result<LiveRoadPlan> DivideWith(LiveRoadOptions::TopologyPlacement placement,
                                  uint64_t cache_bytes) const override;

 private:
  Status CheckWanted() const;
  Status OpenBase();
  Status OpenTopology();
  Status OpenSnapshot();
  Status MeasureTableDevice();
  Result<uint64_t> ResidentBytes() const;
  Result<BatchProbe> Probe(bool may_load);
  bool typed() const { return !options_.spec.relation_fanouts.empty(); }
  uint64_t node_count() const { return topology_->node_count() * times_.count; }
  uint64_t ProbedEntryBytes() const {
    return kProbedEntryBytes + (options_.spec.edge_ids ? kProbedEdgeIdBytes : 0) +
           (typed() ? kProbedRelationBytes : 0);
  }
  // The most that is expected in a batch. Those that take all neighbors are refused where they have more edges.
  uint64_t Expected(uint64_t probed, uint64_t in_any_case) const {
    if (!takes_all_) return WithMargin(probed);
    return std::max(WithMargin(probed, kAllNeighborsMarginPercent), std::min(in_any_case, EntriesMax()));
  }
  uint64_t EntriesMax() const {
    return BlockEntriesMax(options_.spec, node_count(), topology_->edge_count() * times_.count);
  }
  uint64_t EdgeBytes() const {  // of a block
    return sizeof(uint32_t) + (options_.spec.edge_ids ? sizeof(uint64_t) : 0) +
           (typed() ? sizeof(uint16_t) : 0);
  }
  Status LoadIndices();
  Status Allocate(const BatchProbe& probe);
  Status AllocateSampling();
  Status Fill(const PassOptions& pass, LiveResources& resources);
  MemoryDemand DemandOf(const BatchProbe& probe) const;
  uint64_t resident_bytes() const { return resident_reservation_.bytes() + overlay_reservation_.bytes(); }
  uint64_t indices_bytes() const { return topology_->IndicesBytes() * sides_.size(); }

  Store& store_;
  MemoryBudget& budget_;
  LiveRoadOptions options_;  // with numbers in the place of "all neighbors", once OpenBase is through
  const bool takes_all_;     // of any hop
  const std::span<const Adjacency> sides_;

  MemoryBudget::Reservation resident_reservation_;  // what OpenBase loads
  MemoryBudget::Reservation overlay_reservation_;
  MemoryBudget::Reservation reservation_;  // everything else
  std::shared_ptr<const Snapshot> snapshot_;
  Times times_;
  RowSources rows_;
  DeviceProfile device_;
  std::unique_ptr<Topology> topology_;
  std::unique_ptr<TypedLists> types_;  // null: fanouts are not by type
  bool indices_loaded_ = false;
  NodeProperties properties_;
  std::unique_ptr<NeighborCache> neighbor_caches_[2];
  NeighborSource source_;
  std::unique_ptr<FeatureBuffer> buffer_;
  std::unique_ptr<LiveDevice> gpu_;            // null without one
  std::unique_ptr<DeviceLists> device_lists_;  // null where the processor samples
  std::vector<std::unique_ptr<NeighborSampler>> samplers_;
  std::vector<std::unique_ptr<Extractor>> extractors_;
  LiveRoadPlan plan_;
  BatchProbe probe_;
  bool filled_ = false;      // the buffer has all rows
  uint64_t candidates_ = 0;  // seeds of all passes
  uint64_t seeds_max_ = 0;   // most seeds of a pass: the largest split
  OnePass
      pass_;  // destroyed first, so that a stream that outlives the road is found before what it reads is gone
};

Status LiveRoadImpl::CheckWanted() const {
  return options_.stop.stop_requested() ? Status(Code::kCancelled, "the road is not wanted any more")
                                        : Status::Ok();
}

Status LiveRoadImpl::OpenAll() {
  QUARRY_RETURN_IF_ERROR(CheckGivesScatteredRows(store_.backend()));
  QUARRY_RETURN_IF_ERROR(CheckLiveOptions(options_));
  QUARRY_RETURN_IF_ERROR(OpenBase());
  QUARRY_RETURN_IF_ERROR(MeasureTableDevice());
  QUARRY_RETURN_IF_ERROR(CheckWanted());
  QUARRY_TRY(probe_, Probe(/*may_load=*/true));
  QUARRY_RETURN_IF_ERROR(CheckWanted());
  return Allocate(probe_);
}

Result<LiveRoadNeed> LiveRoadImpl::Measure() {
  QUARRY_RETURN_IF_ERROR(CheckGivesScatteredRows(store_.backend()));
  QUARRY_RETURN_IF_ERROR(CheckLiveOptions(options_));
  QUARRY_RETURN_IF_ERROR(OpenBase());
  QUARRY_TRY(probe_, Probe(/*may_load=*/false));  // the batches are the same wherever the lists lie
  return NeedWith(options_.cache_takes_what_is_left ? 0 : options_.spec.cache_bytes);
}

LiveRoadNeed LiveRoadImpl::NeedWith(uint64_t cache_bytes) const {
  MemoryDemand demand = DemandOf(probe_);
  demand.beside_bytes = 0;
  demand.cache_bytes = cache_bytes;
  demand.cache_takes_what_is_left = false;
  // Probing comes first, and has to hold a batch too.
  const uint64_t probed_bytes = (options_.spec.batch_size + probe_.edges_max) * ProbedEntryBytes();
  const uint64_t probing = resident_bytes() + ProbeScratchBytes(node_count(), 2 * candidates_) +
                           (probed_bytes > kProbedBytesAnyway ? probed_bytes : 0);
  return LiveRoadNeed{.batch_nodes_max = demand.rows_of_batches.front(),
                      .least_bytes = std::max(probing, LeastBytes(demand))};
}

Result<LiveRoadPlan> LiveRoadImpl::DivideWith(LiveRoadOptions::TopologyPlacement placement,
                                              uint64_t cache_bytes) const {
  MemoryDemand demand = DemandOf(probe_);
  demand.available_bytes += reservation_.bytes();
  demand.other_bytes -= reservation_.bytes();
  demand.cache_bytes = cache_bytes;
  demand.cache_takes_what_is_left = false;
  demand.placement = placement;
  return DivideMemory(demand);
}

// What OpenBase will hold, told by the manifest alone: it is reserved before anything is read.
Result<uint64_t> LiveRoadImpl::ResidentBytes() const {
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  QUARRY_TRY(uint64_t bytes, RowSources::ResidentBytes(*manifest, options_.spec));
  if (typed()) bytes += TypedLists::Bytes(*manifest);
  if (const TopologyRecord* record = manifest->FindTopology(options_.spec.topology)) {
    bytes += NeighborSampler::ResidentBytes(*record, options_.spec);
  }
  return bytes + NodePropertiesBytes(*manifest);
}

Status LiveRoadImpl::OpenBase() {
  snapshot_ = options_.snapshot;
  if (snapshot_ == nullptr) {
    QUARRY_TRY(snapshot_, store_.TakeSnapshot());
  }
  times_ = TimesOf(*snapshot_, options_.spec.topology);
  QUARRY_RETURN_IF_ERROR(CheckTimes(options_, times_, store_.path()));
  QUARRY_TRY(const uint64_t resident_bytes, ResidentBytes());
  QUARRY_TRY(resident_reservation_,
             budget_.Reserve(resident_bytes, "what a database keeps resident (indptr, checksums, labels)"));
  QUARRY_TRY(rows_, RowSources::Open(store_, snapshot_, options_.spec));
  QUARRY_RETURN_IF_ERROR(OpenTopology());
  if (rows_.node_count() < node_count()) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} feature rows for the {} nodes of topology '{}'",
                      rows_.largest()->file().path(), rows_.node_count(), node_count(),
                      options_.spec.topology);
  }
  if (topology_->node_count() == 0) {
    return MakeStatus(Code::kInvalidArgument, "{}: topology '{}' has no nodes", topology_->file().path(),
                      options_.spec.topology);
  }
  if (typed()) {
    QUARRY_TRY(types_, TypedLists::Load(store_, budget_, *store_.manifest(), *topology_));
  }
  QUARRY_RETURN_IF_ERROR(
      CountAllNeighbors(*topology_, types_.get(), store_.manifest()->edge_types, options_.spec));
  return OpenSnapshot();
}

// Without indices.
Status LiveRoadImpl::OpenTopology() {
  topology_.reset();  // two would not fit into what is reserved for one
  QUARRY_TRY(topology_, OpenPlaces(store_, *snapshot_, options_.spec.topology));
  return NeighborSampler::LoadWeights(store_.backend(), options_.spec, *topology_);
}

// Rows and labels are those of one snapshot for as long as the road is open, so no buffer ever grows stale.
Status LiveRoadImpl::OpenSnapshot() {
  QUARRY_TRY(properties_, LoadNodeProperties(store_, node_count(), snapshot_));
  QUARRY_TRY(const uint64_t overlay_bytes, rows_.OpenOverlays(store_, snapshot_));
  QUARRY_TRY(overlay_reservation_, budget_.Reserve(overlay_bytes, "the bitmap of changed rows"));
  return Status::Ok();
}

// Prices reads only: nothing that it finds shows in a batch.
Status LiveRoadImpl::MeasureTableDevice() {
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  const std::optional<DeviceRecord>& stored = manifest->device;
  if (stored) device_ = {stored->random_reads_per_second, stored->sequential_bytes_per_second};
  if (options_.device) device_ = *options_.device;
  if (stored || options_.device || rows_.data_bytes() < kMeasuredTableBytes) return Status::Ok();
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget_.Reserve(kMeasureBytes, "measuring the device"));
  const Result<DeviceProfile> measured = MeasureDevice(store_.backend(), rows_.largest()->file());
  if (measured.ok()) device_ = *measured;
  // A file system without direct reads cannot be measured; the default does.
  return measured.status().code() == Code::kUnsupported ? Status::Ok() : measured.status();
}

Status LiveRoadImpl::LoadIndices() {
  for (const Adjacency side : sides_) {
    if (!topology_->has(side)) continue;  // NeighborSampler::Make says what is missing
    QUARRY_RETURN_IF_ERROR(CheckWanted());
    QUARRY_RETURN_IF_ERROR(topology_->LoadIndices(store_.backend(), side));
  }
  indices_loaded_ = true;
  return Status::Ok();
}

// Samples from disk, unless the indices may be loaded and are so small beside the budget that they will surely stay in
// memory. The batches are the same.
Result<BatchProbe> LiveRoadImpl::Probe(bool may_load) {
  using Placement = LiveRoadOptions::TopologyPlacement;
  std::vector<NodeId> lists[3] = {SplitNodes(Split::kTrain), SplitNodes(Split::kValid),
                                  SplitNodes(Split::kTest)};
  if (lists[0].empty() && lists[1].empty() && lists[2].empty()) {
    lists[0].resize(node_count());
    std::iota(lists[0].begin(), lists[0].end(), NodeId{0});
  }
  for (const auto& list : lists) {
    candidates_ += list.size();
    seeds_max_ = std::max<uint64_t>(seeds_max_, list.size());
  }

  const uint64_t available = budget_.available_bytes();
  const uint64_t probe_bytes = ProbeScratchBytes(node_count(), 2 * candidates_);
  const uint64_t wanted = probe_bytes + (options_.cache_takes_what_is_left ? 0 : options_.spec.cache_bytes);
  const bool in_memory = may_load && options_.topology_placement != Placement::kDisk && available > wanted &&
                         indices_bytes() <= (available - wanted) / 2;
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget_.Reserve(probe_bytes + (in_memory ? indices_bytes() : 0), "probing a few batches"));
  const uint64_t bytes_max = std::max(budget_.available_bytes(), kProbedBytesAnyway);
  const uint64_t entries_max =
      std::min({EntriesMax(), bytes_max / ProbedEntryBytes(), NeighborSource().block_entries_max});
  QUARRY_TRY(const MemoryBudget::Reservation block_reservation,
             budget_.Reserve(std::min(entries_max * ProbedEntryBytes(), budget_.available_bytes()),
                             "the largest batch that is probed"));
  if (in_memory) QUARRY_RETURN_IF_ERROR(LoadIndices());

  source_ = {.topology = topology_.get(),
             .types = types_.get(),
             .times = times_.count,
             .takes_all = takes_all_,
             .direction = options_.spec.direction,
             .backend = &store_.backend(),
             .io_depth = options_.io_depth,
             .device = device_};
  NeighborSource probed = source_;
  probed.block_entries_max = entries_max;
  QUARRY_TRY(const std::unique_ptr<NeighborSampler> sampler, NeighborSampler::Make(probed, options_.spec));
  const std::span<const NodeId> spans[] = {lists[0], lists[1], lists[2]};
  const uint32_t batches = std::min(kBatchesInFlightMax, options_.extractor_threads + 2);
  auto probe = ProbeBatches(*sampler, node_count(), options_.spec.batch_size, batches, spans,
                            MixSeed(options_.spec.seed, kProbeSeed), options_.stop, times_.places_or_none());
  if (probe.status().code() != Code::kInvalidArgument) return probe;
  return BatchTooLarge(options_.spec, entries_max * ProbedEntryBytes(), budget_.limit_bytes());
}

MemoryDemand LiveRoadImpl::DemandOf(const BatchProbe& probe) const {
  const uint64_t node_count = rows_.node_count();
  MemoryDemand demand;
  demand.resident_bytes = resident_bytes() + SeedsBytes(seeds_max_, times_);
  demand.available_bytes = budget_.available_bytes() + resident_bytes();
  demand.other_bytes = budget_.limit_bytes() - demand.available_bytes;
  demand.indices_bytes = indices_bytes();
  demand.node_count = node_count;
  demand.slot_bytes = SlotBytes(options_, rows_.widest());
  demand.cache_bytes = options_.cache_takes_what_is_left ? 0 : options_.spec.cache_bytes;
  demand.cache_takes_what_is_left = options_.cache_takes_what_is_left;
  const uint64_t nodes_max = std::min(node_count, Expected(probe.distinct_nodes.front(), kAllNeighborsNodes));
  const uint64_t edges_max = Expected(probe.edges_max, kAllNeighborsEdges);
  if (options_.beside_bytes) demand.beside_bytes = options_.beside_bytes(nodes_max, edges_max);
  for (const uint64_t distinct : probe.distinct_nodes) {
    const uint64_t rows = std::min(node_count, WithMargin(distinct, kFlightMarginPercent));
    demand.rows_of_batches.push_back(std::max(rows, nodes_max));
  }
  demand.frame_bytes = nodes_max * (sizeof(NodeId) + sizeof(uint32_t)) + edges_max * EdgeBytes() +
                       Expected(probe.targets_max, kAllNeighborsNodes) * sizeof(uint32_t) +
                       options_.spec.batch_size * sizeof(int64_t) + kKiB;
  demand.memory_sampler_bytes =
      NeighborSampler::ScratchBytesMax(source_, nodes_max, edges_max, true, options_.spec);
  demand.disk_sampler_bytes =
      NeighborSampler::ScratchBytesMax(source_, nodes_max, edges_max, false, options_.spec);
  demand.extractor_bytes = Extractor::ScratchBytes(nodes_max, rows_);
  demand.staging_bytes_min = RoundUp(Extractor::StagingBytesMin(rows_), 2 * kMiB);
  demand.staging_bytes = std::clamp(RoundUp(rows_.data_bytes(), 2 * kMiB), demand.staging_bytes_min,
                                    std::max(kLiveStagingBytes, demand.staging_bytes_min));
  demand.sampler_threads = options_.sampler_threads;
  demand.extractor_threads = options_.extractor_threads;
  demand.placement = options_.topology_placement;
  if (SamplesOnDevice(options_)) {
    demand.placement = LiveRoadOptions::TopologyPlacement::kMemory;
    demand.memory_sampler_bytes = NeedOfLiveSampler(options_, *topology_).pinned_bytes;
  }
  demand.device = DeviceDemandOf(options_, rows_.widest(), nodes_max, edges_max,
                                 SamplingDeviceBytes(options_, *topology_));
  return demand;
}

Status LiveRoadImpl::Allocate(const BatchProbe& probe) {
  QUARRY_RETURN_IF_ERROR(CheckSamplingFits(options_, *topology_));
  const MemoryDemand demand = DemandOf(probe);
  QUARRY_TRY(plan_, DivideMemory(demand));
  plan_.sampling_device_bytes = SamplingDeviceBytes(options_, *topology_);
  QUARRY_TRY(reservation_, budget_.Reserve(plan_.total_bytes() - resident_bytes(), "the live road"));
  plan_.batch_edges_max = Expected(probe.edges_max, kAllNeighborsEdges);
  if (takes_all_) source_.block_entries_max = options_.spec.batch_size + plan_.batch_edges_max;
  QUARRY_RETURN_IF_ERROR(AllocateSampling());
  QUARRY_TRY(buffer_, FeatureBuffer::Make({.node_count = demand.node_count,
                                           .slot_bytes = demand.slot_bytes,
                                           .slot_count = plan_.slot_count,
                                           .retained_max = plan_.retained_max,
                                           .rows_elsewhere = demand.device.has_value()}));
  if (demand.device) {
    QUARRY_TRY(gpu_, LiveDevice::Make(DeviceOptionsOf(demand, plan_)));
  }
  for (unsigned i = 0; i < options_.extractor_threads; ++i) {
    QUARRY_TRY(std::unique_ptr<Extractor> extractor,
               Extractor::Make(
                   store_.backend(), rows_,
                   {.io_depth = options_.io_depth, .staging_bytes = plan_.staging_bytes, .device = device_}));
    extractors_.push_back(std::move(extractor));
  }
  LogLine(options_.tells_plan ? LogLevel::kInfo : LogLevel::kDebug, plan_.ToString());
  return Status::Ok();
}

Status LiveRoadImpl::AllocateSampling() {
  if (indices_loaded_ && !plan_.topology_in_memory) {  // probing guessed wrong; a fresh reader holds none
    QUARRY_RETURN_IF_ERROR(OpenTopology());
  }
  if (!indices_loaded_ && plan_.topology_in_memory) QUARRY_RETURN_IF_ERROR(LoadIndices());
  indices_loaded_ = plan_.topology_in_memory;
  source_.topology = topology_.get();
  if (!plan_.topology_in_memory) {
    for (const Adjacency side : sides_) {
      auto& cache = neighbor_caches_[static_cast<int>(side)];
      QUARRY_RETURN_IF_ERROR(CheckWanted());
      QUARRY_TRY(cache, NeighborCache::Build(store_.backend(), *topology_, side,
                                             plan_.neighbor_cache_bytes / sides_.size()));
      source_.caches[static_cast<int>(side)] = cache.get();
    }
  }
  QUARRY_RETURN_IF_ERROR(CheckWanted());
  QUARRY_TRY(samplers_, MakeLiveSamplers(options_, source_, device_lists_));
  return Status::Ok();
}

// The first batches of the first epochs. The block lies in what the plan has for batches in flight.
Result<RoadProbe> LiveRoadImpl::ProbeTraining(uint32_t batches) {
  assert(!pass_.under_way() && batches >= 1 && batches <= UINT8_MAX);
  std::vector<NodeId> seeds = TrainNodes();
  if (seeds.empty()) return Status(Code::kInvalidArgument, "there is no training node to probe batches of");
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget_.Reserve(node_count(), "counting the nodes of a few batches"));
  std::vector<uint8_t> uses(node_count());
  NeighborSampler& sampler = *samplers_.front();
  const SamplerStats before = sampler.stats();
  RoadProbe probe{.batches = batches, .device = device_};
  const size_t batch_size = options_.spec.batch_size;
  size_t next = seeds.size();
  for (uint64_t b = 0, pass = 0; b < batches; ++b) {
    QUARRY_RETURN_IF_ERROR(CheckWanted());
    const size_t count = std::min(batch_size, seeds.size());
    if (seeds.size() - next < count) {  // a short batch would not be like the others
      ShuffleSeeds(seeds, options_.spec.seed, ++pass, times_.places_or_none());
      next = 0;
    }
    const double start = ThreadProcessorSeconds();
    QUARRY_RETURN_IF_ERROR(sampler.Sample(std::span(seeds).subspan(next, count),
                                          options_.spec.SeedOf(kProbeSeed, b), probe.last));
    probe.sample_seconds += ThreadProcessorSeconds() - start;
    next += count;
    probe.input_nodes += probe.last.nodes.size();
    probe.edges += probe.last.indices.size();
    probe.lists += (probe.last.indptr.size() - 1) * sides_.size();
    for (const NodeId node : probe.last.nodes) ++uses[node];
  }
  probe.list_hits = sampler.stats().neighbor_cache_hits - before.neighbor_cache_hits;
  probe.topology_bytes = sampler.stats().bytes_read - before.bytes_read;
  probe.topology_requests = sampler.stats().read_requests - before.read_requests;
  probe.nodes_by_uses.resize(batches + 1);
  for (const uint8_t count : uses) ++probe.nodes_by_uses[count];
  return probe;
}

// Before the first pass that would bring in most of the table, where the buffer has room for all of it. Row by row that
// took 4 GiB of reads for half a GiB of rows.
Status LiveRoadImpl::Fill(const PassOptions& pass, LiveResources& resources) {
  if (rows_.dim() == 0) return Status::Ok();  // a scan of several tables is not priced
  const FeatureGeometry& geometry = rows_.widest();
  if (filled_ || plan_.retained_max < geometry.row_count) return Status::Ok();
  const uint64_t batches = CeilDiv(pass.seeds.size(), uint64_t{options_.spec.batch_size});
  if (!ScanPays(device_, DistinctNodes(probe_, batches, geometry.row_count), geometry.data_bytes())) {
    return Status::Ok();
  }
  const uint64_t misses_before = buffer_->stats().misses;
  const RowTarget target = RowTarget::In(*buffer_, gpu_ == nullptr ? nullptr : &gpu_->rows());
  QUARRY_RETURN_IF_ERROR(FillBuffer(*buffer_, target, *extractors_.front(), geometry.row_count,
                                    plan_.batch_nodes_max, pass.stop, resources.filled));
  resources.filled_rows = buffer_->stats().misses - misses_before;
  filled_ = true;
  return Status::Ok();
}

Result<std::unique_ptr<BatchStream>> LiveRoadImpl::StartPass(PassOptions pass) {
  QUARRY_RETURN_IF_ERROR(pass_.Check());
  if (pass.shuffle) ShuffleSeeds(pass.seeds, options_.spec.seed, pass.pass, times_.places_or_none());
  LiveResources resources{.rows = &rows_,
                          .buffer = buffer_.get(),
                          .device = gpu_.get(),
                          .samplers = samplers_,
                          .extractors = extractors_,
                          .labels = properties_.labels,
                          .batch_size = options_.spec.batch_size,
                          .frame_count = plan_.frame_count,
                          .batch_nodes_max = plan_.batch_nodes_max,
                          .batch_edges_max = plan_.batch_edges_max,
                          .takes_all = takes_all_,
                          .spec = &options_.spec};
  if (gpu_ != nullptr) {
    gpu_->Restart();
    resources.device_bytes = gpu_->sent_bytes();
  }
  QUARRY_RETURN_IF_ERROR(Fill(pass, resources));
  return pass_.Start([&](std::function<void(bool)> on_end) {
    return std::make_unique<LiveStream>(resources, std::move(pass), std::move(on_end));
  });
}

}  // namespace

Result<LiveRoadNeed> LiveRoad::Measure(Store& store, MemoryBudget& budget, const LiveRoadOptions& options) {
  return LiveRoadImpl(store, budget, options).Measure();
}

Result<std::unique_ptr<LiveRoad>> LiveRoad::Open(Store& store, MemoryBudget& budget,
                                                 const LiveRoadOptions& options) {
  auto road = std::make_unique<LiveRoadImpl>(store, budget, options);
  QUARRY_RETURN_IF_ERROR(road->OpenAll());
  return std::unique_ptr<LiveRoad>(std::move(road));
}

}  // namespace quarry
