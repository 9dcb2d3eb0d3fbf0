#include "train_choice.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "option_values.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/layout/cost_model.h"
#include "quarry/layout/topology_place.h"
#include "quarry/pipeline/road_offers.h"
#include "quarry/trainer/batch_seconds.h"
#include "train_link.h"
#include "train_memory.h"
#include "train_run.h"

namespace quarry::cli {
namespace {

// A probed batch for so many that will be trained on, so that probing is a small part of sampling.
constexpr uint64_t kBatchesAProbe = 32;
constexpr uint64_t kProbedMin = 2, kProbedMax = 32;
// Fewer batches are trained on in less time than the model's steps are measured in.
constexpr uint64_t kWorthMeasuring = 64;

// With batches of up to so many nodes.
MachineMemory MemoryOf(const NodeArguments& arguments, const Manifest& manifest, uint32_t classes,
                       uint64_t batch_nodes_max) {
  const RoadSpec& spec = arguments.road.spec;
  return {.machine_bytes = MemoryLimitBytes(),
          .trainer_bytes = EstimateTrainerBytes(arguments.train, FeatureDim(manifest, spec), classes,
                                                BoundBlock(spec.batch_size, spec.fanouts, batch_nodes_max),
                                                /*checkpoints=*/true)};
}

// A count for each node, while batches are probed.
uint64_t ProbeBytes(const Manifest& manifest) { return manifest.node_count; }

class Decider {
 public:
  Decider(NodeArguments& arguments, Database& database, const TrainedOn& trained_on)
      : arguments_(arguments),
        database_(database),
        trained_on_(trained_on),
        manifest_(database.manifest()),
        others_bytes_(database.budget().used_bytes()),
        available_bytes_(database.budget().available_bytes()) {}

  Result<RoadDecision> Run() {
    if (arguments_.run.resume) {
      const std::string name = arguments_.run.name.empty() ? "node" : arguments_.run.name;
      if (const TrainingRecord* const record = manifest_->FindTraining(name)) {
        return GoOn(name, record->settings);
      }
    }
    RoadDecision decision;
    QUARRY_RETURN_IF_ERROR(DescribeRun());
    FindRoomOnDisk();
    QUARRY_RETURN_IF_ERROR(RefuseGivenRoad());
    LiveRoadOptions options = arguments_.road;
    options.tells_plan = false;
    options.spec.seed_order = SeedOrder::kRandom;
    Result<std::unique_ptr<LiveRoad>> live = database_.OpenLiveRoad(options);
    if (live.status().code() == Code::kOutOfBudget) return WhyNotLive(live.status());
    QUARRY_TRY(decision.live, std::move(live));
    QUARRY_RETURN_IF_ERROR(OfferLayouts(decision.live->NeedWith(0)));
    QUARRY_RETURN_IF_ERROR(RefuseGivenRoad());
    OfferLive(*decision.live);
    const bool alone = facts_.live.offered && !facts_.planned.offered && !facts_.fresh.offered;
    const bool asked = arguments_.explain || arguments_.dry_run;
    if (alone && facts_.epochs * facts_.train_batches < kWorthMeasuring && !asked) {
      LogInfo("road: live: {}", facts_.planned.why_not.empty() ? "--road says so" : facts_.planned.why_not);
      return decision;
    }
    QUARRY_RETURN_IF_ERROR(Probe(*decision.live));
    const RoadChoice choice = ChooseRoad(facts_);
    if (choice.roads.empty()) {
      return MakeStatus(choice.code, "no road is on offer: {}; nothing has been built",
                        fmt::join(choice.left_out, "; "));
    }
    if (arguments_.explain) {
      PrintRoads(choice, facts_.epochs, arguments_.train.patience, arguments_.json);
      return RoadDecision();
    }
    decision.said = choice.ToString();
    const size_t line = decision.said.find('\n');
    LogInfo("{}", decision.said.substr(0, line));
    LogInfo("{}", decision.said.substr(line + 1));
    decision.cost = choice.best();
    QUARRY_RETURN_IF_ERROR(FindLeast(decision));
    if (choice.best().plan.road != RoadKind::kLive) {
      decision.live.reset();
      Take(choice.best().plan);
    } else if (CacheIsAuto() && choice.best().plan.cache_rows != facts_.open_live_rows) {
      QUARRY_RETURN_IF_ERROR(DivideLive(choice, options, decision));
    }
    return decision;
  }

 private:
  Result<RoadDecision> GoOn(const std::string& name, const std::string& settings) {
    QUARRY_TRY(const RunRoad road, RoadOfRun(settings));
    const RoadKind kind = !road.planned   ? RoadKind::kLive
                          : road.resample ? RoadKind::kFresh
                                          : RoadKind::kPlanned;
    if (!Wanted(kind)) {
      return MakeStatus(
          Code::kUsage,
          "run \"{}\" was not trained on the {} road, which {} asks for: leave that out to go on "
          "along the run's own, or begin the run anew with --overwrite",
          name, quarry::NameOf(*arguments_.given_road), arguments_.plan_is_given ? "--plan" : "--road");
    }
    if (!road.planned) return RoadDecision();
    arguments_.plan = true;
    arguments_.resample = road.resample;
    // What was given is held against the run's settings, and refused where it differs.
    if (!arguments_.policy_is_given) arguments_.plan_flags.policy = road.policy;
    if (arguments_.plan_flags.epochs == 1) arguments_.plan_flags.epochs = road.epochs;
    if (arguments_.superbatch == 0) arguments_.superbatch = road.superbatch;
    if (CacheIsAuto()) arguments_.plan_flags.cache = road.cache;
    if (arguments_.plan_flags.disk.empty()) arguments_.plan_flags.disk = road.disk == "0" ? "" : road.disk;
    return RoadDecision();
  }

  void Take(const RoadPlan& plan) {
    arguments_.plan = true;
    arguments_.resample = plan.road == RoadKind::kFresh;
    arguments_.plan_flags.policy = plan.policy;
    arguments_.superbatch = plan.superbatch;
    if (CacheIsAuto()) arguments_.plan_flags.cache = fmt::format("{}", plan.cache_rows * stride());
  }

  // The live road anew, with the rows and the lists where they were chosen; as it was opened by `options`, where that does
  // not fit after all.
  Status DivideLive(const RoadChoice& choice, const LiveRoadOptions& options, RoadDecision& decision) {
    using Placement = LiveRoadOptions::TopologyPlacement;
    const Placement placement = choice.best().lists.in_memory ? Placement::kMemory : Placement::kDisk;
    const uint64_t cache_bytes = choice.best().plan.cache_rows * stride();
    if (!decision.live->DivideWith(placement, cache_bytes).ok()) return StayAsOpen(choice, decision);
    decision.live.reset();
    LiveRoadOptions divided = options;
    divided.topology_placement = placement;
    divided.spec.cache_bytes = cache_bytes;
    divided.cache_takes_what_is_left = false;
    Result<std::unique_ptr<LiveRoad>> opened = database_.OpenLiveRoad(divided);
    const bool fits = opened.status().code() != Code::kOutOfBudget;
    if (!fits) opened = database_.OpenLiveRoad(options);
    QUARRY_TRY(decision.live, std::move(opened));
    if (!fits) return StayAsOpen(choice, decision);
    arguments_.road.topology_placement = placement;
    arguments_.road.spec.cache_bytes = cache_bytes;
    arguments_.road.cache_takes_what_is_left = false;
    return Status::Ok();
  }

  // What is told is then what is predicted of the road as it was opened first.
  Status StayAsOpen(const RoadChoice& choice, RoadDecision& decision) const {
    LogInfo("that division of the memory does not fit after all, so the live road keeps its own");
    for (const RoadCost& cost : choice.roads) {
      const bool open = cost.plan.road == RoadKind::kLive && cost.plan.cache_rows == facts_.open_live_rows;
      if (open) decision.cost = cost;
    }
    return Status::Ok();
  }

  bool CacheIsAuto() const { return arguments_.plan_flags.cache == kCacheAuto; }
  uint64_t stride() const { return RowStride(facts_.geometry.element_type, facts_.geometry.dim); }
  bool Given(RoadKind road) const { return arguments_.given_road == road; }
  bool Wanted(RoadKind road) const { return !arguments_.given_road || Given(road); }

  Status DescribeRun() {
    const RoadSpec& spec = arguments_.road.spec;
    QUARRY_TRY(facts_.geometry, RowsOf(*manifest_, spec));
    const uint64_t batch_size = spec.batch_size;
    facts_.processors = ProcessorCount();
    facts_.sampler_threads = arguments_.road.sampler_threads;
    facts_.extractor_threads = arguments_.road.extractor_threads;
    facts_.epochs = arguments_.train.epochs;
    facts_.train_batches = std::max<uint64_t>(1, CeilDiv(trained_on_.train_nodes, batch_size));
    facts_.valid_batches = static_cast<double>(trained_on_.valid_nodes) / static_cast<double>(batch_size);
    facts_.test_batches = static_cast<double>(trained_on_.test_nodes) / static_cast<double>(batch_size);
    facts_.planned_epochs = arguments_.plan_flags.epochs;
    if (arguments_.policy_is_given) {
      facts_.policies = {arguments_.plan_flags.policy};
      facts_.fresh_policy = arguments_.plan_flags.policy;
    }
    return Status::Ok();
  }

  // The live road does not open, and so nothing can be priced. Of a road that was given, the least is told.
  Status WhyNotLive(const Status& refused) {
    if (!Given(RoadKind::kPlanned) && !Given(RoadKind::kFresh)) return refused;
    LiveRoadOptions passes = arguments_.road;
    passes.spec = passes.spec.ForOtherPasses();
    passes.cache_takes_what_is_left = false;
    passes.beside_bytes = {};
    QUARRY_TRY(const LiveRoadNeed need, LiveRoad::Measure(database_.store(), database_.budget(), passes));
    QUARRY_RETURN_IF_ERROR(OfferLayouts(need));
    QUARRY_RETURN_IF_ERROR(RefuseGivenRoad());
    return refused;
  }

  void OfferLive(const LiveRoad& road) {
    const LiveRoadPlan& plan = road.plan();
    facts_.reads_overlap = plan.batches_in_flight > 1;
    facts_.open_live_rows = plan.retained_max;
    facts_.live = {.offered = Wanted(RoadKind::kLive), .cache_is_given = !CacheIsAuto()};
    OfferDivisions(road, arguments_.road.topology_placement, facts_.geometry, facts_.live);
    if (arguments_.plan_flags.road.seed_order != SeedOrder::kRandom) {
      facts_.live = {.why_not = "takes its seeds in random order"};
    } else if (!arguments_.given_road && plan.retained_max >= facts_.geometry.row_count) {
      facts_.planned = {.why_not = "all rows fit into memory, so no layout saves reads"};
      facts_.fresh = facts_.planned;
    }
  }

  void FindRoomOnDisk() {
    const std::string& path = database_.store().path();
    const auto leave_out = [&](std::string why) {
      facts_.planned = {.why_not = std::move(why), .code = Code::kIoError};
      facts_.fresh = facts_.planned;
      writable_ = false;
    };
    if (access(path.c_str(), W_OK) != 0) {
      return leave_out(fmt::format("the database's folder cannot be written to ({})",
                                   std::generic_category().message(errno)));
    }
    std::error_code error;
    const auto space = std::filesystem::space(path, error);
    if (error) return leave_out(fmt::format("{} does not tell its free space ({})", path, error.message()));
    facts_.disk_bytes = space.available / 10 * 9;
  }

  // `passes`: the need of a live road without a cache.
  Status OfferLayouts(const LiveRoadNeed& passes) {
    demand_ = {.live = passes,
               .others_bytes = others_bytes_,
               .trainer_bytes = ProbeBytes(*manifest_),
               .train_nodes = trained_on_.train_nodes};
    if (!writable_) return Status::Ok();
    QUARRY_TRY(const LayoutSpec layout, Spec());
    if (Wanted(RoadKind::kPlanned)) facts_.planned = OfferOf(RoadKind::kPlanned, layout);
    if (Wanted(RoadKind::kFresh)) OfferFresh(layout);
    if (arguments_.train.ordered && !arguments_.given_road) {
      facts_.planned = {.why_not = "repeats its samples, and --ordered gives those of the live road"};
    }
    if (layout.disk_bytes > 0) facts_.disk_bytes = std::min(facts_.disk_bytes, layout.disk_bytes);
    FindBuilt(layout);
    return Status::Ok();
  }

  std::vector<uint64_t> Superbatches() const {
    return arguments_.superbatch > 0 ? std::vector{arguments_.superbatch}
                                     : SuperbatchSizes(facts_.train_batches);
  }

  // With every size of superbatches that the memory has room for; what the smallest needs, where it has none.
  void OfferFresh(LayoutSpec layout) {
    for (const uint64_t batches : Superbatches()) {
      layout.batches = batches;
      const RoadFacts::Offer offer = OfferOf(RoadKind::kFresh, layout);
      if (offer.offered) facts_.superbatches.push_back({batches, offer.cache_rows_max});
      if (offer.offered || !facts_.fresh.offered) facts_.fresh = offer;
    }
  }

  // Where the only road on offer has no room, before anything is priced or built for it.
  Status RefuseGivenRoad() const {
    if (!arguments_.given_road || Given(RoadKind::kLive)) return Status::Ok();
    const RoadFacts::Offer& offer = Given(RoadKind::kPlanned) ? facts_.planned : facts_.fresh;
    if (offer.why_not.empty()) return Status::Ok();
    if (offer.code != Code::kOutOfBudget) {
      return MakeStatus(offer.code, "the {} road is not on offer: {}; --road live writes nothing",
                        quarry::NameOf(*arguments_.given_road), offer.why_not);
    }
    return MakeStatus(Code::kOutOfBudget,
                      "the {} road {}: raise --memory, or lower --cache, the batch size or "
                      "the fanouts; nothing has been built",
                      quarry::NameOf(*arguments_.given_road), offer.why_not);
  }

  Result<LayoutSpec> Spec() const { return arguments_.plan_flags.ToSpec(*manifest_); }

  // A layout of the same batches that is there already.
  void FindBuilt(LayoutSpec layout) {
    const LayoutRecord* const record = manifest_->FindLayout(layout.name);
    if (record == nullptr || !facts_.planned.offered) return;
    layout.policy = record->policy;
    if (CacheIsAuto()) layout.road.cache_bytes = record->spec.cache_bytes;
    if (!IsLayoutOf(*manifest_, *record, layout)) {
      if (arguments_.given_road) return;
      facts_.planned = {
          .why_not = fmt::format("layout \"{}\" is for other batches, and only --plan or --road planned "
                                 "replaces it",
                                 record->name)};
      return;
    }
    const bool wanted = std::ranges::find(facts_.policies, record->policy) != facts_.policies.end();
    if (!wanted || record->cache_rows > facts_.planned.cache_rows_max) return;
    facts_.built = RoadPlan{RoadKind::kPlanned, record->policy, true, record->cache_rows};
  }

  // With so many rows in its cache, and as much for the trainer as this budget has to leave it, or none.
  uint64_t LeastOf(RoadKind road, LayoutSpec layout, uint64_t cache_rows, uint64_t trainer_bytes) const {
    if (road == RoadKind::kFresh) layout.packing = Packing::kCheaper;
    layout.road.cache_bytes = cache_rows * stride();
    RoadDemand demand = demand_;
    demand.trainer_bytes += trainer_bytes;
    return LeastBudget(road, *manifest_, layout, demand);
  }

  uint64_t GivenRows(const LayoutSpec& layout) const {
    return CacheIsAuto() ? 0 : std::min(layout.road.cache_bytes / stride(), facts_.geometry.row_count);
  }

  RoadFacts::Offer OfferOf(RoadKind road, const LayoutSpec& layout) const {
    const uint64_t budget_bytes = database_.budget().limit_bytes();
    MachineMemory memory =
        MemoryOf(arguments_, *manifest_, trained_on_.classes, demand_.live.batch_nodes_max);
    if (!CacheIsAuto()) memory.trainer_bytes = 0;  // whoever says what stays has left it room
    const auto fits = [&](uint64_t rows) {
      return LeastOf(road, layout, rows, memory.TrainerOf(budget_bytes)) <= budget_bytes;
    };
    RoadFacts::Offer offer{.offered = fits(GivenRows(layout)),
                           .cache_rows_max = GivenRows(layout),
                           .cache_is_given = !CacheIsAuto(),
                           .segments = arguments_.given_road && layout.disk_bytes > 0};
    if (offer.offered && CacheIsAuto()) {
      uint64_t beyond = facts_.geometry.row_count + 1;
      while (beyond - offer.cache_rows_max > 1) {
        const uint64_t rows = offer.cache_rows_max + (beyond - offer.cache_rows_max) / 2;
        (fits(rows) ? offer.cache_rows_max : beyond) = rows;
      }
    }
    if (!offer.offered) {
      offer.why_not = WhyTooLittle(memory, LeastOf(road, layout, offer.cache_rows_max, 0), budget_bytes);
    }
    return offer;
  }

  // What --dry-run says of the road that is taken.
  Status FindLeast(RoadDecision& decision) const {
    decision.batch_nodes_max = demand_.live.batch_nodes_max;
    const RoadKind road = decision.cost->plan.road;
    if (road == RoadKind::kLive) {
      const uint64_t cache_bytes = CacheIsAuto() ? 0 : arguments_.road.spec.cache_bytes;
      decision.least_bytes =
          others_bytes_ + demand_.trainer_bytes + decision.live->NeedWith(cache_bytes).least_bytes;
      return Status::Ok();
    }
    QUARRY_TRY(LayoutSpec layout, Spec());
    if (road == RoadKind::kFresh) layout.batches = Superbatches().back();
    decision.least_bytes = LeastOf(road, layout, GivenRows(layout), 0);
    return Status::Ok();
  }

  Status Probe(LiveRoad& road) {
    const uint64_t batches = facts_.epochs * facts_.train_batches;
    const auto probed =
        static_cast<uint32_t>(std::clamp(CeilDiv(batches, kBatchesAProbe), kProbedMin, kProbedMax));
    QUARRY_TRY(const RoadProbe probe, road.ProbeTraining(probed));
    const auto count = static_cast<double>(probe.batches);
    facts_.uses = UseProfile::Fit(probe.nodes_by_uses);
    facts_.batch_edges = static_cast<double>(probe.edges) / count;
    facts_.sample_seconds = probe.sample_seconds / count;
    facts_.device = DeviceOf(*manifest_);
    facts_.device.random_reads_per_second = probe.device.random_reads_per_second;
    facts_.device.sequential_bytes_per_second = probe.device.sequential_bytes_per_second;
    ProbeLists(probe, road.plan());
    if (!manifest_->device) {
      LogInfo(
          "the device's rates are guesses where opening did not measure them: `quarry calibrate {}` measures "
          "all",
          arguments_.path);
    }
    QUARRY_TRY(const BatchSeconds seconds,
               MeasureBatchSeconds(arguments_.train, FeatureDim(*manifest_, arguments_.road.spec),
                                   facts_.geometry.element_type, trained_on_.classes, probe.last.view(),
                                   batches < kWorthMeasuring ? 2 : 3));
    facts_.train = seconds.train;
    facts_.evaluate = seconds.evaluate;
    return Status::Ok();
  }

  // What was read of lists, and where they will lie on each road.
  void ProbeLists(const RoadProbe& probe, const LiveRoadPlan& plan) {
    const TopologyRecord& topology = *manifest_->FindTopology(arguments_.road.spec.topology);
    const auto count = static_cast<double>(probe.batches);
    const auto mean = [&](uint64_t of_all) { return static_cast<double>(of_all) / count; };
    const ListsOnDisk on_disk = ListsOnDiskOf(topology, arguments_.road.spec.direction);
    facts_.runs = PriceRuns(topology, facts_.device);
    if (arguments_.road.spec.edge_ids) facts_.told_edges = topology.edge_count;
    facts_.source_bytes = TraceSourceBytes(*manifest_, topology, arguments_.road.spec);
    facts_.train_nodes = trained_on_.train_nodes;
    facts_.lists = {
        .lists = mean(probe.lists),
        .hits = mean(probe.list_hits),
        .reads = {.bytes = mean(probe.topology_bytes), .requests = mean(probe.topology_requests)},
        .in_memory = plan.topology_in_memory,
        .cache_bytes = plan.neighbor_cache_bytes > on_disk.address_bytes ? plan.neighbor_cache_bytes : 0,
        .indices_bytes = on_disk.indices_bytes,
        .address_bytes = on_disk.address_bytes,
        .cache_scans = topology.has_csr ? 1.0 : 2.0,
        .mean_list_bytes = static_cast<double>(topology.edge_count * sizeof(NodeId)) /
                           static_cast<double>(std::max<uint64_t>(1, topology.node_count))};
    PlaceLists(plan, available_bytes_, facts_.planned_epochs, facts_.planned);
    PlaceLists(plan, available_bytes_ / 2, 1, facts_.fresh);
  }

  // While a layout is built in so much memory, and of the passes beside it.
  void PlaceLists(const LiveRoadPlan& plan, uint64_t available_bytes, uint64_t epochs,
                  RoadFacts::Offer& offer) const {
    using Placement = LiveRoadOptions::TopologyPlacement;
    Result<LayoutSpec> spec = Spec();
    if (!offer.offered || !spec.ok()) return;
    const DeviceProfile device = {facts_.device.random_reads_per_second,
                                  facts_.device.sequential_bytes_per_second};
    const uint64_t read_bytes = static_cast<uint64_t>(ReadsOfLists(facts_.lists, 0, device).bytes);
    offer.building = PlaceTopology(*manifest_, *spec, {.read_bytes = read_bytes},
                                   epochs * facts_.train_batches, available_bytes);
    spec->road.cache_bytes = 0;
    const uint64_t taken =
        plan.fixed_bytes + 2 * plan.batch_nodes_max * stride() +
        PlannedRoad::LeastBytes(*manifest_, *spec, trained_on_.train_nodes, plan.batch_nodes_max);
    offer.lists_bytes = available_bytes - std::min(available_bytes, taken);
    offer.row_bytes = static_cast<double>(stride());
    const Placement placement = arguments_.road.topology_placement;
    const uint64_t indices_bytes = facts_.lists.indices_bytes;
    if (placement == Placement::kDisk ||
        (placement == Placement::kAuto && offer.lists_bytes < indices_bytes)) {
      offer.rows_beside_lists.reset();
    } else if (placement == Placement::kAuto) {
      offer.rows_beside_lists = (offer.lists_bytes - indices_bytes) / stride();
    }
  }

  NodeArguments& arguments_;
  Database& database_;
  const TrainedOn& trained_on_;
  const std::shared_ptr<const Manifest> manifest_;
  const uint64_t others_bytes_, available_bytes_;  // of the budget, before a road is open
  bool writable_ = true;
  RoadFacts facts_;
  RoadDemand demand_;
};

}  // namespace

void TakeWhatIsLeft(NodeArguments& arguments, Database& database, uint32_t classes) {
  const std::shared_ptr<const Manifest> manifest = database.manifest();
  if (arguments.plan_flags.cache != kCacheAuto) {
    arguments.road.beside_bytes = [bytes = ProbeBytes(*manifest)](uint64_t, uint64_t) { return bytes; };
    return;
  }
  arguments.road.cache_takes_what_is_left = true;
  const uint64_t budget_bytes = database.budget().limit_bytes();
  arguments.road.beside_bytes = [=, &arguments](uint64_t batch_nodes_max, uint64_t /*batch_edges_max*/) {
    return MemoryOf(arguments, *manifest, classes, batch_nodes_max).TrainerOf(budget_bytes) +
           ProbeBytes(*manifest);
  };
}

Result<RoadDecision> DecideRoad(NodeArguments& arguments, Database& database, const TrainedOn& trained_on) {
  TakeWhatIsLeft(arguments, database, trained_on.classes);
  QUARRY_TRY(RoadDecision decision, Decider(arguments, database, trained_on).Run());
  if (arguments.plan) {  // the layout's road divides its memory by itself
    arguments.road.cache_takes_what_is_left = false;
    arguments.road.beside_bytes = {};
    QUARRY_TRY(const uint64_t feature_bytes, FeatureBytes(*database.manifest(), arguments.road.spec));
    QUARRY_TRY(arguments.road.spec.cache_bytes, ParseCache(arguments.plan_flags.cache, feature_bytes));
  }
  return decision;
}

}  // namespace quarry::cli
