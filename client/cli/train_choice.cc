#include "train_choice.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "option_values.h"
#include "print_json.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/layout/cost_model.h"
#include "quarry/trainer/batch_seconds.h"
#include "train_link.h"

namespace quarry::cli {
namespace {

// A probed batch for so many that will be trained on, so that probing is a small part of sampling.
constexpr uint64_t kBatchesAProbe = 32;
constexpr uint64_t kProbedMin = 2, kProbedMax = 32;
// Fewer batches are trained on in less time than the model's steps are measured in.
constexpr uint64_t kWorthMeasuring = 64;

Choices<std::optional<RoadKind>> RoadNames() {
  Choices<std::optional<RoadKind>> names = {{std::string(kAutoRoad), std::nullopt}};
  for (const RoadKind road : {RoadKind::kLive, RoadKind::kPlanned, RoadKind::kFresh}) {
    names.emplace_back(quarry::NameOf(road), road);
  }
  return names;
}

std::function<uint64_t(uint64_t)> BytesBesideRoad(const NodeArguments& arguments, Database& database,
                                                  uint32_t classes) {
  const RoadSpec& spec = arguments.road.spec;
  const std::shared_ptr<const Manifest> manifest = database.manifest();
  const auto dim = static_cast<uint32_t>(manifest->FindTable(spec.feature_table)->dim);
  const uint64_t machine = MemoryLimitBytes();
  const uint64_t spare = machine - std::min(machine, database.budget().limit_bytes());
  const uint64_t probe_bytes = manifest->node_count;  // a count for each node, while batches are probed
  return [=, &arguments](uint64_t batch_nodes_max) {
    const uint64_t trainer = EstimateTrainerBytes(
        arguments.train, dim, classes,
        BoundHopNodes(arguments.road.spec.batch_size, arguments.road.spec.fanouts, batch_nodes_max),
        /*checkpoints=*/true);
    return trainer - std::min(trainer, spare) + probe_bytes;
  };
}

// The options of the road that a run's checkpoint was trained on; nothing for the live road.
struct RunRoad {
  bool resample = false, planned = false;
  std::string cache, disk;
  PolicyKind policy = PolicyKind::kBelady;
  uint32_t epochs = 1;
};
Result<RunRoad> RoadOfRun(const std::string& settings) {
  RunRoad road;
  std::string plan, resample;
  CLI::App parser;
  parser.allow_extras();
  parser.add_option("--plan", plan);
  parser.add_option("--resample", resample);
  parser.add_option("--cache", road.cache);
  parser.add_option("--disk", road.disk);
  parser.add_option("--epochs-planned", road.epochs);
  AddChoice(&parser, "--policy", road.policy, "");
  try {
    parser.parse(settings, /*program_name_included=*/false);
  } catch (const CLI::ParseError& error) {
    return MakeStatus(Code::kCorruption, "the settings of the run cannot be read: {}", error.what());
  }
  road.resample = !resample.empty();
  road.planned = road.resample || !plan.empty();
  return road;
}

class Decider {
 public:
  Decider(NodeArguments& arguments, Database& database, const TrainedOn& trained_on)
      : arguments_(arguments),
        database_(database),
        trained_on_(trained_on),
        manifest_(database.manifest()),
        available_bytes_(database.budget().available_bytes()) {}

  Result<RoadDecision> Run() {
    if (arguments_.dry_run && !arguments_.explain)
      return RoadDecision();  // how the live road divides its memory
    if (arguments_.run.resume && !arguments_.given_road) {
      const std::string name = arguments_.run.name.empty() ? "node" : arguments_.run.name;
      if (const TrainingRecord* const record = manifest_->FindTraining(name)) return GoOn(record->settings);
    }
    RoadDecision decision;
    LiveRoadOptions options = arguments_.road;
    options.tells_plan = false;
    QUARRY_TRY(decision.live, database_.OpenLiveRoad(options));
    QUARRY_RETURN_IF_ERROR(MakeOffers(decision.live->plan()));
    const bool alone = facts_.live.offered && !facts_.planned.offered && !facts_.fresh.offered;
    if (alone && facts_.epochs * facts_.train_batches < kWorthMeasuring && !arguments_.explain) {
      LogInfo("road: live: {}", facts_.planned.why_not.empty() ? "--road says so" : facts_.planned.why_not);
      return decision;
    }
    QUARRY_RETURN_IF_ERROR(Probe(*decision.live));
    const RoadChoice choice = ChooseRoad(facts_);
    if (choice.roads.empty()) {
      return MakeStatus(Code::kOutOfBudget, "no road is on offer: {}", fmt::join(choice.left_out, "; "));
    }
    if (arguments_.explain) {
      Explain(choice);
      return RoadDecision();
    }
    const std::string said = choice.ToString();
    const size_t line = said.find('\n');
    LogInfo("{}", said.substr(0, line));
    LogInfo("{}", said.substr(line + 1));
    decision.cost = choice.best();
    if (choice.best().plan.road != RoadKind::kLive) {
      decision.live.reset();
      Take(choice.best().plan);
    }
    return decision;
  }

 private:
  Result<RoadDecision> GoOn(const std::string& settings) {
    QUARRY_TRY(const RunRoad road, RoadOfRun(settings));
    if (!road.planned) return RoadDecision();
    arguments_.plan = true;
    arguments_.resample = road.resample;
    // What was given is held against the run's settings, and refused where it differs.
    if (!arguments_.policy_is_given) arguments_.plan_flags.policy = road.policy;
    if (arguments_.plan_flags.epochs == 1) arguments_.plan_flags.epochs = road.epochs;
    if (CacheIsAuto()) arguments_.plan_flags.cache = road.cache;
    if (arguments_.plan_flags.disk.empty()) arguments_.plan_flags.disk = road.disk == "0" ? "" : road.disk;
    return RoadDecision();
  }

  void Take(const RoadPlan& plan) {
    arguments_.plan = true;
    arguments_.resample = plan.road == RoadKind::kFresh;
    arguments_.plan_flags.policy = plan.policy;
    if (CacheIsAuto()) arguments_.plan_flags.cache = fmt::format("{}", plan.cache_rows * stride());
  }

  bool CacheIsAuto() const { return arguments_.plan_flags.cache == kCacheAuto; }
  uint64_t stride() const { return RowStride(facts_.geometry.element_type, facts_.geometry.dim); }
  bool Wanted(RoadKind road) const { return !arguments_.given_road || *arguments_.given_road == road; }

  Status MakeOffers(const LiveRoadPlan& plan) {
    const RoadSpec& spec = arguments_.road.spec;
    const TableRecord& table = *manifest_->FindTable(spec.feature_table);
    QUARRY_TRY(facts_.geometry, FeatureGeometry::Make(table.element_type, table.dim, table.row_count));
    const uint64_t batch_size = spec.batch_size;
    facts_.processors = ProcessorCount();
    facts_.sampler_threads = arguments_.road.sampler_threads;
    facts_.extractor_threads = arguments_.road.extractor_threads;
    facts_.epochs = arguments_.train.epochs;
    facts_.train_batches = std::max<uint64_t>(1, CeilDiv(trained_on_.train_nodes, batch_size));
    facts_.valid_batches = CeilDiv(trained_on_.valid_nodes, batch_size);
    facts_.test_batches = CeilDiv(trained_on_.test_nodes, batch_size);
    facts_.planned_epochs = arguments_.plan_flags.epochs;
    facts_.reads_overlap = plan.batches_in_flight > 1;
    facts_.live = {.offered = Wanted(RoadKind::kLive), .cache_rows_max = plan.retained_max};
    const bool all_fit = plan.retained_max >= table.row_count;
    if (!CacheIsAuto()) facts_.live.cache_is_given = true;
    if (!arguments_.given_road && all_fit) {
      facts_.planned.why_not = facts_.fresh.why_not = "all rows fit into memory, so no layout saves reads";
      return Status::Ok();
    }
    if (access(database_.store().path().c_str(), W_OK) != 0) {
      facts_.planned.why_not = facts_.fresh.why_not = "the database's folder cannot be written to";
      return Status::Ok();
    }
    QUARRY_TRY(const LayoutSpec layout, Spec());
    if (Wanted(RoadKind::kPlanned)) facts_.planned = OfferOf(layout, plan, available_bytes_);
    if (Wanted(RoadKind::kFresh)) facts_.fresh = OfferOf(layout, plan, available_bytes_ / 2);
    if (arguments_.train.ordered && !arguments_.given_road) {
      facts_.planned = {.why_not = "repeats its samples, and --ordered gives those of the live road"};
    }
    if (arguments_.policy_is_given) facts_.policies = {arguments_.plan_flags.policy};
    std::error_code error;
    const auto space = std::filesystem::space(database_.store().path(), error);
    facts_.disk_bytes = error ? 0 : space.available / 10 * 9;
    if (layout.disk_bytes > 0) facts_.disk_bytes = std::min(facts_.disk_bytes, layout.disk_bytes);
    FindBuilt(layout);
    return Status::Ok();
  }

  Result<LayoutSpec> Spec() const { return arguments_.plan_flags.ToSpec(*manifest_); }

  // A layout of the same batches that is there already.
  void FindBuilt(LayoutSpec layout) {
    const LayoutRecord* const record = manifest_->FindLayout(layout.name);
    if (record == nullptr || !facts_.planned.offered) return;
    layout.policy = record->policy;
    if (CacheIsAuto()) layout.road.cache_bytes = record->cache_rows * stride();
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

  // What the road takes with so many rows in its cache, beside the live road of its other passes; building comes first
  // and has all of the memory (train.cc, CheckMemoryOfPlan).
  uint64_t BytesOf(LayoutSpec layout, const LiveRoadPlan& plan, uint64_t cache_rows) const {
    layout.road.cache_bytes = cache_rows * stride();
    const uint64_t nodes = plan.batch_nodes_max, train_nodes = trained_on_.train_nodes;
    const uint64_t live_rows = 2 * nodes * stride();
    const uint64_t live = plan.fixed_bytes + plan.topology_bytes + live_rows +
                          (arguments_.road.beside_bytes ? arguments_.road.beside_bytes(nodes) : 0);
    const uint64_t batches = layout.epochs * CeilDiv(train_nodes, uint64_t{layout.road.batch_size});
    const uint64_t build = BuildBytesMax(*manifest_, layout, batches, nodes);
    const uint64_t bytes =
        std::max(live + PlannedRoad::LeastBytes(*manifest_, layout, train_nodes, nodes), build);
    return bytes + bytes / 32;
  }

  RoadFacts::Offer OfferOf(const LayoutSpec& layout, const LiveRoadPlan& plan,
                           uint64_t available_bytes) const {
    const auto fits = [&](uint64_t rows) { return BytesOf(layout, plan, rows) <= available_bytes; };
    RoadFacts::Offer offer;
    if (!CacheIsAuto()) {
      offer.cache_is_given = true;
      offer.cache_rows_max = std::min(layout.road.cache_bytes / stride(), facts_.geometry.row_count);
      offer.offered = fits(offer.cache_rows_max);
    } else if (fits(0)) {
      offer.offered = true;
      uint64_t beyond = facts_.geometry.row_count + 1;
      while (beyond - offer.cache_rows_max > 1) {
        const uint64_t rows = offer.cache_rows_max + (beyond - offer.cache_rows_max) / 2;
        (fits(rows) ? offer.cache_rows_max : beyond) = rows;
      }
    }
    if (!offer.offered) {
      const uint64_t bytes = BytesOf(layout, plan, offer.cache_rows_max);
      offer.why_not = fmt::format("needs about {} of memory, and has {}", FormatBytes(bytes),
                                  FormatBytes(available_bytes));
    }
    return offer;
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
    facts_.topology_bytes = static_cast<double>(probe.topology_bytes) / count;
    facts_.device = DeviceOf(*manifest_);
    facts_.device.random_reads_per_second = probe.device.random_reads_per_second;
    facts_.device.sequential_bytes_per_second = probe.device.sequential_bytes_per_second;
    if (!manifest_->device) {
      LogInfo(
          "the device's rates are guesses where opening did not measure them: `quarry calibrate {}` measures "
          "all",
          arguments_.path);
    }
    const TableRecord& table = *manifest_->FindTable(arguments_.road.spec.feature_table);
    QUARRY_TRY(
        const BatchSeconds seconds,
        MeasureBatchSeconds(arguments_.train, static_cast<uint32_t>(table.dim), table.element_type,
                            trained_on_.classes, probe.last.view(), batches < kWorthMeasuring ? 2 : 3));
    facts_.train_seconds = seconds.train;
    facts_.evaluate_seconds = seconds.evaluate;
    return Status::Ok();
  }

  void Explain(const RoadChoice& choice) const {
    if (!arguments_.json) {
      for (const std::string& line : {choice.Table(), choice.ToString() + "\n"}) Print("{}", line);
      return;
    }
    nlohmann::ordered_json json = {{"roads", nlohmann::ordered_json::array()},
                                   {"not_on_offer", choice.left_out}};
    for (const RoadCost& cost : choice.roads) {
      json["roads"].push_back({{"road", quarry::NameOf(cost.plan.road)},
                               {"packed", cost.plan.packed},
                               {"policy", quarry::NameOf(cost.plan.policy)},
                               {"cache_rows", cost.plan.cache_rows},
                               {"build_seconds", cost.build_seconds},
                               {"epoch_seconds", cost.epoch_seconds},
                               {"other_seconds", cost.other_seconds},
                               {"seconds", cost.seconds},
                               {"epoch_bytes_read", cost.read_bytes},
                               {"disk_bytes", cost.disk_bytes},
                               {"processor_bound", cost.processor_bound}});
    }
    PrintJson(json);
  }

  NodeArguments& arguments_;
  Database& database_;
  const TrainedOn& trained_on_;
  const std::shared_ptr<const Manifest> manifest_;
  const uint64_t available_bytes_;
  RoadFacts facts_;
};

}  // namespace

Result<TrainedOn> CheckLabels(const NodeArguments& arguments, Database& database) {
  const std::shared_ptr<const Manifest> manifest = database.manifest();
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, database.store().TakeSnapshot());
  QUARRY_TRY(const NodeProperties properties,
             LoadNodeProperties(database.store(), manifest->node_count, snapshot));
  const RoadSpec& spec = arguments.road.spec;
  QUARRY_RETURN_IF_ERROR(CheckTrainerMemory(
      arguments.train, static_cast<uint32_t>(manifest->FindTable(spec.feature_table)->dim), properties.labels,
      BoundHopNodes(spec.batch_size, spec.fanouts, manifest->node_count), false,
      database.budget().used_bytes(), MemoryLimitBytes()));
  return TrainedOn{.classes = CountClasses(properties.labels),
                   .train_nodes = properties.TrainNodes().size(),
                   .valid_nodes = properties.SplitNodes(Split::kValid).size(),
                   .test_nodes = properties.SplitNodes(Split::kTest).size()};
}

void AddRoadChoice(CLI::App* verb, NodeArguments& arguments, bool& partitioned) {
  const Choices<std::optional<RoadKind>> roads = RoadNames();
  std::vector<std::string> names;
  for (const auto& road : roads) names.push_back(road.first);
  names.emplace_back(kPartitionedRoad);
  verb->add_option_function<std::string>(
          "--road",
          [&arguments, &partitioned, roads](const std::string& chosen) {
            partitioned = chosen == kPartitionedRoad;
            for (const auto& [name, road] : roads) {
              if (name == chosen) arguments.given_road = road;
            }
          },
          "auto (default): the one that is predicted to take the least time; live: sample and read; planned: "
          "repeat "
          "packed epochs; fresh: sample and plan every epoch while the one before trains; partitioned: "
          "part by part, as `quarry partition build` has cut the graph")
      ->type_name("NAME")
      ->check(CLI::IsMember(names));
  verb->add_flag("--explain", arguments.explain,
                 "print what each road is predicted to take, and train nothing");
}

Status CheckPlanOptions(const CLI::App& verb, const NodeArguments& arguments) {
  const auto given = [&](const char* option) { return verb.count(option) > 0; };
  const bool fixed = arguments.plan || !arguments.layout.empty();
  for (const char* const option : {"--road", "--explain"}) {
    if (!fixed || !given(option)) continue;
    return MakeStatus(Code::kUsage,
                      "{} is about a road that is still to be chosen, and {} has chosen it: leave one out",
                      option, arguments.layout.empty() ? "--plan" : "--layout");
  }
  for (const char* const option :
       {"--explain", "--dry-run", "--cache", "--topology", "--seed-order", "--disk", "--workers"}) {
    if (!arguments.parts || !given(option)) continue;
    return MakeStatus(Code::kUsage, "{} is of the other roads: leave it out with --road partitioned", option);
  }
  if (arguments.parts && IsServerAddress(arguments.path)) {
    return Status(Code::kUsage, "--road partitioned trains on the database itself, and not at a server");
  }
  const bool may_plan = arguments.plan || arguments.given_road.value_or(RoadKind::kLive) != RoadKind::kLive;
  for (const char* const option : {"--policy", "--epochs-planned", "--hash-functions"}) {
    if (may_plan || !given(option)) continue;
    return MakeStatus(Code::kUsage,
                      "{} is about the layout that --plan builds, and nothing is planned: give --plan "
                      "too, or leave it out",
                      option);
  }
  const bool alone = !IsServerAddress(arguments.path) && arguments.workers.count <= 1;
  const bool may_choose = alone && !arguments.given_road && arguments.layout.empty();
  if (given("--disk") && !may_plan && !may_choose) {
    return MakeStatus(Code::kUsage,
                      "--disk is about the layout that --plan builds, and nothing is planned: leave it out");
  }
  if (arguments.resample && given("--epochs-planned")) {
    return Status(Code::kUsage,
                  "--epochs-planned is about epochs that repeat, and --resample every-epoch plans one "
                  "at a time: leave one of them out");
  }
  if (!arguments.memory.empty())
    QUARRY_RETURN_IF_ERROR(ParseSize("--memory", arguments.memory, 1024 * kGiB).status());
  return arguments.plan_flags.Check();
}

void TakeWhatIsLeft(NodeArguments& arguments, Database& database, uint32_t classes) {
  if (arguments.plan_flags.cache != kCacheAuto) return;
  arguments.road.cache_takes_what_is_left = true;
  arguments.road.beside_bytes = BytesBesideRoad(arguments, database, classes);
}

Result<RoadDecision> DecideRoad(NodeArguments& arguments, Database& database, const TrainedOn& trained_on) {
  TakeWhatIsLeft(arguments, database, trained_on.classes);
  QUARRY_TRY(RoadDecision decision, Decider(arguments, database, trained_on).Run());
  if (arguments.plan) {  // the layout's road divides its memory by itself
    arguments.road.cache_takes_what_is_left = false;
    arguments.road.beside_bytes = {};
    const TableRecord& table = *database.manifest()->FindTable(arguments.road.spec.feature_table);
    QUARRY_TRY(
        arguments.road.spec.cache_bytes,
        ParseCache(arguments.plan_flags.cache, table.row_count * RowBytes(table.element_type, table.dim)));
  }
  return decision;
}

}  // namespace quarry::cli
