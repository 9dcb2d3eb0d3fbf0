#include "quarry/service/road_opener.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "batch_room.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/element_type.h"
#include "quarry/format/fanouts.h"
#include "quarry/format/wire.h"
#include "quarry/format/wire_batch.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/pipeline/partitioned_node_road.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/pipeline/superbatch_road.h"
#include "quarry/storage/times.h"

namespace quarry {
namespace {

constexpr uint64_t kBlockEdgesMax = uint64_t{1} << 31;
// More than any budget has, and room for what is added to it.
constexpr uint64_t kBytesOfNoBudget = uint64_t{1} << 62;
constexpr unsigned kRoadThreadsMax = 8;  // each extractor has staging memory of its own

// Counts of a batch that none of a road's is expected to exceed.
struct LargestBatch {
  std::string table;  // of rows, where there is one
  std::vector<std::string> type_tables =
      {};  // by type of nodes, an empty name: they have no rows; none without types
  uint32_t hops = 0;
  uint64_t seeds = 0, nodes = 0, edges = 0;
  bool edge_ids = false;
  std::string topology = {};  // by whose times columns are joined to rows; empty: none are
};

unsigned RoadThreads() { return std::clamp(ProcessorCount(), 2U, kRoadThreadsMax); }

LiveRoadOptions LiveOptions(const RoadSpec& spec, const std::shared_ptr<const Snapshot>& snapshot,
                            const std::stop_token& stop) {
  const unsigned threads = RoadThreads();
  return {.spec = spec,
          .sampler_threads = threads / 2,
          .extractor_threads = threads - threads / 2,
          .tells_plan = false,
          .snapshot = snapshot,
          .stop = stop};
}

uint64_t EdgesBound(const std::vector<uint32_t>& fanouts, const LargestBatch& largest) {
  uint64_t edges = 0;
  uint64_t frontier = std::min(largest.seeds, largest.nodes);
  for (const uint64_t fanout : fanouts) {
    const uint64_t found = frontier * fanout;
    edges += found;
    frontier = std::min(found, largest.nodes);
  }
  return edges;
}

// The road estimates its nodes; edges are bounded by the fanouts, or where these take all neighbors estimated as well, and by
// the edges that there are.
LargestBatch LargestOf(const Store& store, const RoadSpec& spec, uint64_t nodes_max, uint64_t edges_max) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  LargestBatch largest{.table = spec.feature_table,
                       .hops = static_cast<uint32_t>(spec.fanouts.size()),
                       .seeds = spec.batch_size,
                       .nodes = nodes_max,
                       .edge_ids = spec.edge_ids,
                       .topology = spec.topology};
  if (!spec.relation_fanouts.empty()) {
    for (const NodeTypeRecord& type : manifest->node_types) largest.type_tables.push_back(type.feature_table);
  }
  largest.edges = TakesAll(spec) ? edges_max : EdgesBound(spec.fanouts, largest);
  const TopologyRecord* const topology = manifest->FindTopology(spec.topology);
  if (topology == nullptr) return largest;
  const uint64_t times = Times::Of(*topology, manifest->node_count).count;
  largest.edges = std::min(largest.edges, spec.EdgesMax(topology->edge_count * times));
  return largest;
}

LargestBatch LargestOf(const Store& store, const Layout& layout) {
  const LayoutDirectory& directory = layout.directory();
  LargestBatch largest = LargestOf(store, layout.record().spec, directory.nodes_max(), directory.edges_max());
  largest.edges = directory.edges_max();
  return largest;
}

Result<uint64_t> WireBytes(const Snapshot& snapshot, const LargestBatch& largest) {
  // The road has found its tables there.
  const bool typed = !largest.type_tables.empty();
  const TableRecord* const table = typed ? nullptr : snapshot.FindTable(largest.table);
  const uint64_t dim = table == nullptr ? 0 : BatchDim(snapshot, largest.topology, *table);
  uint64_t stride_bytes = table == nullptr ? 0 : RowStride(table->element_type, dim);
  for (const std::string& name : largest.type_tables) {
    const TableRecord* const of_type = name.empty() ? nullptr : snapshot.FindTable(name);
    if (of_type == nullptr) continue;
    stride_bytes = std::max(stride_bytes, RowStride(of_type->element_type, of_type->dim));
  }
  const uint64_t seeds = std::min(largest.seeds, largest.nodes);
  QUARRY_TRY(const uint64_t bytes,
             wire::BatchBytes({.hops = largest.hops,
                               .seeds = static_cast<uint32_t>(seeds),
                               .targets = static_cast<uint32_t>(largest.hops == 1 ? seeds : largest.nodes),
                               .nodes = static_cast<uint32_t>(largest.nodes),
                               .edges = std::min(largest.edges, kBlockEdgesMax),
                               .labels = true,
                               .edge_ids = largest.edge_ids,
                               .relations = typed,
                               .node_types = static_cast<uint32_t>(largest.type_tables.size()),
                               .element_type = table == nullptr ? ElementType::kFloat32 : table->element_type,
                               .dim = static_cast<uint32_t>(dim),
                               .rows = stride_bytes == 0 ? 0 : largest.nodes,
                               .stride_bytes = stride_bytes}));
  return RoundUp(bytes, wire::kLeaseAlignment);
}

// A road, and what becomes known with it.
struct SizedRoad {
  std::unique_ptr<Road> road;
  uint64_t node_count = 0;
  uint64_t slot_bytes = 0;
  uint64_t road_bytes = 0;  // what the road cannot do without
  bool estimated = true;    // slot_bytes: a batch may be larger
  // The road has left room for the least region, and fewer slots are better than a smaller road.
  bool leaves_room = false;
  std::optional<wire::OpenedParts> parts = {};
  std::optional<uint64_t> timestamp = {};  // of its rows, where they are not the snapshot's
  uint64_t device_bytes = 0;
  bool all_on_device = false;
};

// Slots that a member may have, by preference. Members of a split hold a batch each while they wait for each
// other, so theirs are counted apart, and one does.
std::span<const uint32_t> SlotChoices(wire::StreamMode mode) {
  static constexpr uint32_t kOwn[] = {4, 3, 2}, kSplit[] = {2, 1};
  return mode == wire::StreamMode::kSplit ? std::span<const uint32_t>(kSplit) : kOwn;
}

// Batches that the region has room for. One more than a member of a shared group may hold: so a member that
// never releases cannot have all of them.
uint64_t PlacesOf(const wire::OpenStream& request, uint32_t slots) {
  switch (request.mode) {
    case wire::StreamMode::kExclusive:
      return slots;
    case wire::StreamMode::kShared:
      return slots + 1;
    case wire::StreamMode::kSplit:
      return uint64_t{slots} * request.members;
  }
  return slots;
}

// What is paid for a region: its places, and as much as one of them for batches that are larger than
// expected.
uint64_t RegionBytes(const SizedRoad& sized, uint64_t places) {
  return (places + (sized.estimated ? 1 : 0)) * sized.slot_bytes;
}

// What a road takes only because it is there.
uint64_t NeighborCacheBytes(const LiveRoad* road) {
  return road == nullptr ? 0 : road->plan().neighbor_cache_bytes;
}

class Opener {
 public:
  Opener(Store& store, MemoryBudget& budget, const wire::OpenStream& request,
         std::shared_ptr<const Snapshot> snapshot, const std::string& name, const std::stop_token& stop,
         const DeviceTarget& device)
      : store_(store),
        budget_(budget),
        request_(request),
        snapshot_(std::move(snapshot)),
        name_(name),
        stop_(stop),
        device_(device),
        used_before_(budget.used_bytes()) {}

  // `region_paid`: else the road leaves room for the least region, as far as it knows.
  Result<SizedRoad> Open(bool region_paid) {
    region_paid_ = region_paid;
    return std::visit(*this, request_.road);
  }

  Result<SizedRoad> operator()(const RoadSpec& spec) const {
    QUARRY_RETURN_IF_ERROR(CheckDevice(spec));
    LiveRoadOptions options = LiveOptions(spec, snapshot_, stop_);
    // Rows stay where more of them do: a cache that is larger here is fed from.
    if (std::min(device_.bytes, device_.cache_bytes) >= spec.cache_bytes) options.gpu = device_;
    options.sampling = device_;
    if (!region_paid_) {
      options.beside_bytes = [this, &spec](uint64_t nodes_max, uint64_t edges_max) {
        const auto bytes =
            LeastRegionBytes(LargestOf(store_, spec, nodes_max, edges_max), /*estimated=*/true);
        return bytes.ok() ? *bytes : 0;  // Sized refuses the road for the same reason
      };
    }
    QUARRY_TRY(std::unique_ptr<LiveRoad> road, LiveRoad::Open(store_, budget_, options));
    const LargestBatch largest = LargestBy(spec, *road);
    const uint64_t spare_bytes = NeighborCacheBytes(road.get());
    const uint64_t device_bytes = road->plan().device_bytes + road->plan().sampling_device_bytes;
    QUARRY_TRY(SizedRoad sized, Sized(std::move(road), NodesOf(spec), {largest}, spare_bytes));
    sized.device_bytes = device_bytes;
    sized.all_on_device = options.gpu.device != nullptr;
    return sized;
  }

  Result<SizedRoad> operator()(const wire::PlannedSpec& spec) const {
    QUARRY_RETURN_IF_ERROR(CheckSampledAsItComes("a layout's batches are"));
    PlannedRoadOptions options{
        .layout = spec.layout, .tells_plan = false, .snapshot = snapshot_, .device = device_};
    if (spec.live) options.live = LiveOptions(spec.live->ForOtherPasses(), snapshot_, stop_);
    QUARRY_TRY(std::unique_ptr<PlannedRoad> road, PlannedRoad::Open(store_, budget_, options));
    std::vector<LargestBatch> largest = {LargestOf(store_, road->layout())};
    const LiveRoad* const live = road->live();
    if (live != nullptr) largest.push_back(LargestBy(*spec.live, *live));
    const uint64_t nodes = road->layout().directory().node_count, device_bytes = road->plan().device_bytes;
    const uint64_t spare_bytes = NeighborCacheBytes(live);
    const bool samples = live != nullptr;
    QUARRY_TRY(SizedRoad sized, Sized(std::move(road), nodes, largest, spare_bytes));
    sized.estimated = samples;  // the layout knows its batches
    sized.device_bytes = device_bytes;
    sized.all_on_device = device_.device != nullptr && !samples;
    return sized;
  }

  Result<SizedRoad> operator()(const wire::SuperbatchSpec& spec) const {
    QUARRY_RETURN_IF_ERROR(CheckSampledAsItComes("batches of the fresh road are"));
    QUARRY_RETURN_IF_ERROR(CheckDevice(spec.live));
    LayoutSpec layout{.name = name_,
                      .road = spec.live,
                      .policy = spec.policy,
                      .disk_bytes = spec.disk_bytes,
                      .packing = spec.packing};
    LiveRoadOptions live = LiveOptions(spec.live.ForOtherPasses(), snapshot_, stop_);
    QUARRY_TRY(std::unique_ptr<SuperbatchRoad> road,
               SuperbatchRoad::Open(store_, budget_, {.layout = std::move(layout), .live = std::move(live)}));
    const LargestBatch largest = LargestBy(spec.live, road->live());
    const uint64_t spare_bytes = NeighborCacheBytes(&road->live());
    return Sized(std::move(road), NodesOf(spec.live), {largest}, spare_bytes);
  }

  // No batch exceeds what the parts that are held can give, so none needs a spare.
  Result<SizedRoad> operator()(const wire::PartitionedSpec& spec) const {
    QUARRY_RETURN_IF_ERROR(CheckSampledAsItComes("batches of parts are"));
    const auto largest = [&spec](uint64_t nodes, uint64_t edges) {
      return LargestBatch{.table = spec.live.feature_table,
                          .hops = static_cast<uint32_t>(spec.live.fanouts.size()),
                          .seeds = spec.live.batch_size,
                          .nodes = nodes,
                          .edges = edges};
    };
    PartitionedNodeRoadOptions options{
        .partitioning = spec.partitioning, .spec = spec.live, .sampler_threads = RoadThreads()};
    options.parts.buffer = spec.buffer;
    options.parts.logical = spec.logical;
    Status batch_fits;  // the largest of the buffer that was asked about last, which is the one that is taken
    options.beside_bytes = [&](uint64_t nodes, uint64_t edges) {
      const auto bytes = LeastRegionBytes(largest(nodes, edges), /*estimated=*/false);
      batch_fits = bytes.status();
      return bytes.ok() ? *bytes : kBytesOfNoBudget;
    };
    auto opened = PartitionedNodeRoad::Open(store_, budget_, options);
    if (opened.status().code() == Code::kOutOfBudget) QUARRY_RETURN_IF_ERROR(batch_fits);
    QUARRY_TRY(std::unique_ptr<PartitionedNodeRoad> road, std::move(opened));
    const PartitionedNodePlan& plan = road->plan();
    const LargestBatch batch = largest(plan.batch_nodes_max, plan.batch_edges_max);
    const wire::OpenedParts parts = PartsOf(*road);
    const uint64_t timestamp = road->partitioning().record().timestamp;
    QUARRY_TRY(SizedRoad sized, Sized(std::move(road), NodesOf(spec.live), {batch}, 0));
    sized.estimated = false;
    sized.leaves_room = true;
    sized.parts = parts;
    sized.timestamp = timestamp;
    return sized;
  }

 private:
  Status CheckDevice(const RoadSpec& spec) const {
    if (device_.device == nullptr || spec.relation_fanouts.empty()) return Status::Ok();
    return Status(Code::kUnsupported, "rows of several types are made in memory: leave the device out");
  }
  Status CheckSampledAsItComes(std::string_view batches) const {
    if (!device_.samples) return Status::Ok();
    constexpr std::string_view kWhy = "sampling on the device is for batches of the live road";
    return MakeStatus(Code::kInvalidArgument, "{} sampled by the processor: {}", batches, kWhy);
  }
  uint64_t NodesOf(const RoadSpec& spec) const {
    return TimesOf(*store_.manifest(), spec.topology).nodes();  // the road has found the topology there
  }
  LargestBatch LargestBy(const RoadSpec& spec, const LiveRoad& road) const {
    return LargestOf(store_, spec, road.plan().batch_nodes_max, road.plan().batch_edges_max);
  }
  // An error where no message holds such a batch.
  Result<uint64_t> LeastRegionBytes(const LargestBatch& largest, bool estimated) const {
    const bool typed = !largest.type_tables.empty();
    if (!typed && snapshot_->FindTable(largest.table) == nullptr)
      return uint64_t{0};  // for the road to refuse
    QUARRY_TRY(const uint64_t bytes, WireBytes(*snapshot_, largest));
    return RegionBytes({.slot_bytes = bytes, .estimated = estimated},
                       PlacesOf(request_, SlotChoices(request_.mode).back()));
  }
  Result<SizedRoad> Sized(std::unique_ptr<Road> road, uint64_t nodes,
                          const std::vector<LargestBatch>& largest, uint64_t spare_bytes) const {
    SizedRoad sized{.road = std::move(road), .node_count = nodes};
    sized.road_bytes = budget_.used_bytes() - used_before_ - spare_bytes;
    for (const LargestBatch& batch : largest) {
      QUARRY_TRY(const uint64_t bytes, WireBytes(*snapshot_, batch));
      sized.slot_bytes = std::max(sized.slot_bytes, bytes);
    }
    return sized;
  }

  Store& store_;
  MemoryBudget& budget_;
  const wire::OpenStream& request_;
  const std::shared_ptr<const Snapshot> snapshot_;
  const std::string name_;
  const std::stop_token stop_;
  const DeviceTarget device_;
  const uint64_t used_before_;
  bool region_paid_ = false;
};

Status RegionTooLarge(const MemoryBudget& budget, const SizedRoad& sized, uint64_t region_bytes) {
  return MakeStatus(
      Code::kOutOfBudget,
      "the memory budget of {} cannot hold a stream: batches of up to {} take {} of shared memory, "
      "beside a road of {}; give at least {}MiB",
      FormatBytes(budget.limit_bytes()), FormatBytes(sized.slot_bytes), FormatBytes(region_bytes),
      FormatBytes(sized.road_bytes), CeilDiv(budget.used_bytes() + region_bytes + sized.road_bytes, kMiB));
}

// The region beside the road; or, since some roads take all that the budget has left, the region first and
// the road again on the rest. kOutOfBudget leaves `sized` with or without its road.
Result<MemoryBudget::Reservation> PutAside(MemoryBudget& budget, Opener& opener, uint64_t region_bytes,
                                           SizedRoad& sized) {
  constexpr std::string_view kWhat = "a stream's batches in shared memory";
  if (sized.road != nullptr) {
    auto beside = budget.Reserve(region_bytes, kWhat);
    if (beside.ok() || sized.leaves_room) return beside;
    sized.road.reset();
  }
  auto region = budget.Reserve(region_bytes, kWhat);
  if (!region.ok()) return RegionTooLarge(budget, sized, region_bytes);
  QUARRY_TRY(SizedRoad again, opener.Open(true));
  sized.road = std::move(again.road);
  return region;
}

// With as many slots as the budget has room for.
Result<OpenedRoad> OpenSized(MemoryBudget& budget, const wire::OpenStream& request,
                             std::shared_ptr<const Snapshot> snapshot, Opener opener) {
  QUARRY_TRY(SizedRoad sized, opener.Open(false));
  Status status;
  for (const uint32_t slots : SlotChoices(request.mode)) {
    const uint64_t places = PlacesOf(request, slots);
    if (sized.slot_bytes > wire::kRegionBytesMax / BatchRoom::AddressBytes(places, 1)) {
      status =
          MakeStatus(Code::kOutOfBudget, "{} batches of {} are more than a region of shared memory holds",
                     places, FormatBytes(sized.slot_bytes));
      continue;
    }
    auto region = PutAside(budget, opener, RegionBytes(sized, places), sized);
    status = region.status();
    if (status.code() == Code::kOutOfBudget) continue;
    QUARRY_RETURN_IF_ERROR(status);
    return OpenedRoad{.timestamp = sized.timestamp.value_or(snapshot->timestamp),
                      .snapshot = std::move(snapshot),
                      .road = std::move(sized.road),
                      .node_count = sized.node_count,
                      .slot_bytes = sized.slot_bytes,
                      .slots = slots,
                      .places = places,
                      .spare_bytes = sized.estimated ? sized.slot_bytes : 0,
                      .region = std::move(region).value(),
                      .parts = std::move(sized.parts),
                      .device_bytes = sized.device_bytes,
                      .all_on_device = sized.all_on_device};
  }
  return status;
}

Status CheckSeeds(std::vector<NodeId> seeds, uint64_t node_count) {
  std::ranges::sort(seeds);
  if (!seeds.empty() && seeds.back() >= node_count) {
    return MakeStatus(Code::kInvalidArgument, "seed {}: there are {} nodes", seeds.back(), node_count);
  }
  const auto twice = std::ranges::adjacent_find(seeds);
  if (twice == seeds.end()) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "seed {} is given twice", *twice);
}

// What is packed, and parts, have rows; parts have neither types of edges in their blocks nor rows of other than one table.
Status CheckLiveOnly(const wire::OpenStream& request) {
  const RoadSpec* spec = nullptr;
  if (const auto* planned = std::get_if<wire::PlannedSpec>(&request.road);
      planned != nullptr && planned->live) {
    spec = &*planned->live;
  }
  if (const auto* fresh = std::get_if<wire::SuperbatchSpec>(&request.road)) spec = &fresh->live;
  if (const auto* parts = std::get_if<wire::PartitionedSpec>(&request.road)) spec = &parts->live;
  if (spec == nullptr) return Status::Ok();
  if (spec->feature_table.empty()) {
    return Status(Code::kUnsupported,
                  "batches without rows are sampled as they come: on the live road alone");
  }
  if (!spec->relation_fanouts.empty() && std::holds_alternative<wire::PartitionedSpec>(request.road)) {
    return Status(Code::kUnsupported,
                  "fanouts by type of edges are drawn of whole graphs: parts have no types of edges");
  }
  if (!TakesAll(*spec)) return Status::Ok();
  return Status(Code::kUnsupported,
                "all neighbors are taken by batches that are sampled as they come: on the live road alone");
}

}  // namespace

StreamCost CostOf(const wire::OpenStream& request) {
  constexpr uint64_t kProducer = 1, kReleaser = 1, kPlanned = 2, kPlan = 1;
  constexpr uint64_t kRegion = 1, kLiveFiles = 4, kPlannedFiles = 8, kPlannedRings = 3, kBuiltFiles = 8;
  constexpr uint64_t kReader = 1, kPartsFiles = 2, kReaderRing = 1;
  // A ring for each of the threads: extractors read rows, samplers neighbors.
  const StreamCost live = {.threads = RoadThreads() + kReleaser, .descriptors = kLiveFiles + RoadThreads()};
  const StreamCost planned = {.threads = kPlanned, .descriptors = kPlannedFiles + kPlannedRings};
  StreamCost cost = {.threads = kProducer, .descriptors = kRegion};
  const auto add = [&cost](uint64_t threads, uint64_t descriptors) {
    cost.threads += threads;
    cost.descriptors += descriptors;
  };
  if (std::holds_alternative<wire::LiveSpec>(request.road)) add(live.threads, live.descriptors);
  const auto* const packed = std::get_if<wire::PlannedSpec>(&request.road);
  // One pass at a time, so the threads of one; but both roads are open.
  if (packed != nullptr && !packed->live) add(planned.threads, planned.descriptors);
  if (packed != nullptr && packed->live) {
    add(std::max(planned.threads, live.threads), planned.descriptors + live.descriptors);
  }
  if (std::holds_alternative<wire::PartitionedSpec>(request.road)) {
    add(RoadThreads() + kReader, kPartsFiles + kReaderRing);
  }
  if (std::holds_alternative<wire::SuperbatchSpec>(request.road)) {
    add(std::max(planned.threads, live.threads) + kPlan,
        planned.descriptors + live.descriptors + kBuiltFiles);
  }
  return cost;
}

Status CheckSnapshot(const wire::OpenStream& request, const Snapshot* snapshot) {
  const auto* const parts = std::get_if<wire::PartitionedSpec>(&request.road);
  if (parts == nullptr || snapshot == nullptr) return Status::Ok();
  return MakeStatus(Code::kUnsupported,
                    "a partitioned road of the snapshot of timestamp {}: the rows of partitioning \"{}\" are "
                    "those of its build, so leave the snapshot out",
                    snapshot->timestamp, parts->partitioning);
}

Result<OpenedRoad> OpenRoad(Store& store, MemoryBudget& budget, const wire::OpenStream& request,
                            std::shared_ptr<const Snapshot> snapshot, const std::string& name,
                            const std::stop_token& stop, const DeviceTarget& device) {
  QUARRY_RETURN_IF_ERROR(CheckSnapshot(request, snapshot.get()));
  QUARRY_RETURN_IF_ERROR(CheckLiveOnly(request));
  if (snapshot == nullptr) {
    QUARRY_TRY(snapshot, store.TakeSnapshot());
  }
  auto opened =
      OpenSized(budget, request, snapshot, Opener(store, budget, request, snapshot, name, stop, device));
  if (opened.ok() || opened.status().code() != Code::kUsage) return opened;
  return Status(Code::kInvalidArgument, std::string(opened.status().message()));
}

wire::OpenedParts PartsOf(const PartitionedNodeRoad& road) {
  const PartitionedNodePlan& plan = road.plan();
  return {.directory = road.partitioning().record().directory,
          .buffer = plan.parts.buffer,
          .logical = plan.parts.logical,
          .class_count = road.class_count(),
          .train_nodes = road.CountNodes(Split::kTrain),
          .valid_nodes = road.CountNodes(Split::kValid),
          .test_nodes = road.CountNodes(Split::kTest),
          .batch_nodes_max = plan.batch_nodes_max};
}

Result<std::unique_ptr<BatchStream>> StartPass(const OpenedRoad& opened, const wire::StartPass& request,
                                               const std::stop_token& stop) {
  PassOptions pass{
      .shuffle = request.shuffle, .pass = request.pass, .ordered = request.ordered, .stop = stop};
  if (const Split* const split = std::get_if<Split>(&request.seeds)) {
    return opened.road->StartSplit(*split, std::move(pass));
  }
  const auto* const ids = std::get_if<std::vector<NodeId>>(&std::get<wire::NodeIds>(request.seeds));
  if (ids == nullptr) return Status(Code::kInternal, "the seeds of a pass were not copied from their region");
  QUARRY_RETURN_IF_ERROR(CheckSeeds(*ids, opened.node_count));
  pass.seeds = *ids;
  return opened.road->StartPass(std::move(pass));
}

}  // namespace quarry
