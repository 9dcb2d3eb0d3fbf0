#include <malloc.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli.h"
#include "config_file.h"
#include "layout_options.h"
#include "option_values.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/server/server.h"
#include "quarry/trainer/train.h"
#include "server_address.h"
#include "train_choice.h"
#include "train_link.h"
#include "train_memory.h"
#include "train_node.h"
#include "usage.h"

namespace quarry::cli {
namespace {

struct TrainArguments {
  NodeArguments node;
  std::string task = "node";
  LinkArguments link;  // for --task link, beside the options that both tasks have
};

// Hop h samples 10 + 5 h neighbors, at most 20: 10,15,20 for three layers.
std::vector<uint32_t> DefaultFanouts(uint32_t layers) {
  std::vector<uint32_t> fanouts;
  for (uint32_t hop = 0; hop < layers; hop++) fanouts.push_back(std::min(20U, 10 + 5 * hop));
  return fanouts;
}

// Half of the engine's threads sample and half extract; each stage has one at least.
void SplitThreads(const NodeArguments& arguments, LiveRoadOptions& road, TrainOptions& train) {
  const unsigned threads =
      arguments.plan_flags.threads > 0 ? arguments.plan_flags.threads : std::max(2U, ProcessorCount());
  road.sampler_threads = std::max(1U, threads / 2);
  road.extractor_threads = std::max(1U, threads - road.sampler_threads);
  train.torch_threads = arguments.torch_threads > 0 ? arguments.torch_threads : ProcessorCount();
}

// LibTorch allocates and frees megabytes for a moment, from several threads. Few arenas and a fixed threshold
// give them back to the system instead of keeping the largest of each.
void TuneMalloc() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_TRIM_THRESHOLD, 16 << 20);
}

// Sizes may be shares of the feature bytes, which the database tells: it is opened without a budget to ask
// it.
Result<std::unique_ptr<Database>> OpenWithBudgets(NodeArguments& arguments) {
  DatabaseOptions options;
  if (!arguments.memory.empty() && !arguments.memory.ends_with('%')) {
    QUARRY_TRY(options.memory_bytes, ParseSize("--memory", arguments.memory, 0));
  }
  QUARRY_TRY(std::unique_ptr<Database> database, Database::Open(arguments.path, std::move(options)));
  QUARRY_TRY(const uint64_t feature_bytes,
             FeatureBytes(*database->manifest(), arguments.road.spec.feature_table));
  QUARRY_TRY(arguments.road.spec.cache_bytes, ParseCache(arguments.plan_flags.cache, feature_bytes));
  if (arguments.memory.ends_with('%')) {
    DatabaseOptions again;
    QUARRY_TRY(again.memory_bytes, ParseSize("--memory", arguments.memory, feature_bytes));
    database.reset();
    return Database::Open(arguments.path, std::move(again));
  }
  return database;
}

// A road to train on, and what it tells of itself.
struct OpenRoad {
  std::unique_ptr<Road> road;
  const LiveRoad* live = nullptr;        // samples whatever the layout does not hold; null without one
  const PlannedRoad* planned = nullptr;  // null on the other roads
  const SuperbatchRoad* superbatches = nullptr;
  uint64_t batch_nodes_max = 0;
};

Result<OpenRoad> OpenLive(Database& database, const LiveRoadOptions& options) {
  QUARRY_TRY(std::unique_ptr<LiveRoad> road, database.OpenLiveRoad(options));
  OpenRoad open{.live = road.get(), .batch_nodes_max = road->plan().batch_nodes_max};
  open.road = std::move(road);
  return open;
}

Result<OpenRoad> OpenPlanned(Database& database, const std::string& layout, LiveRoadOptions live) {
  live.spec = live.spec.ForOtherPasses();
  QUARRY_TRY(std::unique_ptr<PlannedRoad> road, database.OpenLayout({.layout = layout, .live = live}));
  OpenRoad open{.live = road->live(),
                .planned = road.get(),
                .batch_nodes_max =
                    std::max(road->layout().directory().nodes_max(), road->live()->plan().batch_nodes_max)};
  open.road = std::move(road);
  return open;
}

// Every superbatch from a layout of its own, built while the one before trains.
Result<OpenRoad> OpenSuperbatches(Database& database, const LayoutSpec& spec, LiveRoadOptions live,
                                  uint32_t epochs) {
  live.spec = live.spec.ForOtherPasses();
  QUARRY_TRY(std::unique_ptr<SuperbatchRoad> road,
             database.OpenSuperbatches({.layout = spec, .live = live, .last_pass = epochs}));
  OpenRoad open{.live = &road->live(),
                .superbatches = road.get(),
                .batch_nodes_max = road->live().plan().batch_nodes_max};
  open.road = std::move(road);
  return open;
}

// The layout that these arguments ask for.
Result<LayoutSpec> SpecOf(const NodeArguments& arguments, const Manifest& manifest) {
  LayoutFlags flags = arguments.plan_flags;
  if (!arguments.layout.empty()) flags.name = arguments.layout;
  QUARRY_TRY(LayoutSpec spec, flags.ToSpec(manifest));
  if (arguments.resample) {
    spec.packing = Packing::kCheaper;
    spec.batches = arguments.superbatch;
  }
  return spec;
}

// Builds the layout unless the database has it already.
Status BuildWhatIsMissing(Database& database, const LayoutSpec& spec, LayoutRecord& built) {
  const std::shared_ptr<const Manifest> manifest = database.manifest();
  if (const LayoutRecord* record = manifest->FindLayout(spec.name)) {
    if (IsLayoutOf(*database.manifest(), *record, spec)) return Status::Ok();
    LogInfo("layout \"{}\" was built for something else: it is built again", spec.name);
  }
  ProgressBar bar;
  const std::string left = fmt::format(
      "layouts/{}.building stays, and the same command takes over what is whole of it", spec.name);
  QUARRY_TRY(built, database.BuildLayout(spec, /*resume=*/true, bar.AsFunction(left)));
  return Status::Ok();
}

// Refuses a budget in which a layout could be built but not trained from, before it is built. REQUIRES: the road was not
// chosen, which has found that out.
Status CheckMemoryOfPlan(Database& database, RoadKind road, const LayoutSpec& spec, LiveRoadOptions live,
                         uint64_t train_nodes) {
  const std::shared_ptr<const Manifest> manifest = database.manifest();
  if (const LayoutRecord* record = manifest->FindLayout(spec.name);
      road == RoadKind::kPlanned && record != nullptr && IsLayoutOf(*manifest, *record, spec)) {
    return Status::Ok();  // opening it says so
  }
  live.spec = live.spec.ForOtherPasses();
  QUARRY_TRY(const LiveRoadNeed need, LiveRoad::Measure(database.store(), database.budget(), live));
  const uint64_t least_bytes =
      LeastBudget(road, *manifest, spec,
                  {.live = need, .others_bytes = database.budget().used_bytes(), .train_nodes = train_nodes});
  if (least_bytes <= database.budget().limit_bytes()) return Status::Ok();
  return MakeStatus(
      Code::kOutOfBudget,
      "batches of up to {} input nodes of layout \"{}\", beside those of validation and test, need "
      "a memory budget of {}MiB, the budget is {}: raise it, or lower the cache, the batch size or "
      "the fanouts; nothing has been built",
      need.batch_nodes_max, spec.name, WholeMib(least_bytes), FormatBytes(database.budget().limit_bytes()));
}

// Remembers what an epoch took, so that `quarry layout explain` can say it beside what was predicted.
Status RememberMeasured(Database& database, const std::string& layout, const StreamStats& epoch) {
  return database.store().UpdateManifest([&](Manifest& manifest) {
    for (LayoutRecord& record : manifest.layouts) {
      if (record.name != layout) continue;
      record.measured_seconds = epoch.extract_seconds;
      record.measured_bytes = epoch.feature_bytes_read + epoch.topology_bytes_read;
    }
    return Status::Ok();
  });
}

// What the run is filed under and goes on from; refused here rather than when a road has been made.
Result<TrainRun> RunOf(const NodeArguments& arguments, Database& database, const LayoutSpec* spec,
                       TrainingStates& states, const PartitionedNodeRoad* parts = nullptr) {
  QUARRY_TRY(std::optional<TrainRun> run, arguments.run.NodeRun());
  if (!run) return TrainRun();
  NodeSettings settings{
      .road = arguments.road.spec, .train = arguments.train, .parts = parts, .resample = arguments.resample};
  if (arguments.plan) settings.planned = spec;
  if (!arguments.plan && spec != nullptr) {
    const std::shared_ptr<const Manifest> manifest = database.manifest();
    settings.built = manifest->FindLayout(spec->name);
    if (settings.built == nullptr) return *run;  // opening it says so
  }
  run->states = &states;
  run->settings = settings.ToString();
  run->config = arguments.config;
  QUARRY_RETURN_IF_ERROR(CheckTrainRun(*run));
  return *run;
}

Status TrainOn(const NodeArguments& arguments, Database& database, const OpenRoad& open, TrainSetup setup,
               StreamStats& last_epoch) {
  setup.memory_budget_bytes = database.budget().limit_bytes();
  setup.cache_budget_bytes = arguments.road.cache_takes_what_is_left ? open.live->plan().cache_bytes
                                                                     : arguments.road.spec.cache_bytes;
  setup.overhead_bytes = EstimateTrainerBytes(
      arguments.train, open.road->feature_dim(), open.road->class_count(),
      BoundHopNodes(arguments.road.spec.batch_size, arguments.road.spec.fanouts, open.batch_nodes_max),
      setup.run.states != nullptr);
  setup.superbatches = open.superbatches;
  setup.config = arguments.config;
  if (open.planned != nullptr) setup.run.epochs_of_cycle = open.planned->layout().record().epochs;
  setup.road = arguments.road;
  setup.train = arguments.train;
  LogInfo(
      "threads: {} sampling, {} extracting, {} in LibTorch; memory: {} for the engine + {} for LibTorch and "
      "code",
      setup.road.sampler_threads, setup.road.extractor_threads, setup.train.torch_threads,
      FormatBytes(setup.memory_budget_bytes), FormatBytes(setup.overhead_bytes));
  if (arguments.dry_run) {
    TrainReport(setup, arguments.json).Plan(open.live->plan());
    return Status::Ok();
  }
  return TrainReported(*open.road, arguments, setup, nullptr, last_epoch);
}

// On the live road: on `open`, or on one that is opened now.
Status TrainLive(const NodeArguments& arguments, Database& database, std::unique_ptr<LiveRoad> open,
                 TrainSetup setup, TrainingStates& states) {
  StreamStats last_epoch;
  QUARRY_TRY(setup.run, RunOf(arguments, database, nullptr, states));
  OpenRoad road;
  if (open == nullptr) {
    QUARRY_TRY(road, OpenLive(database, arguments.road));
  } else {
    LogInfo("{}", open->plan().ToString());
    road.live = open.get();
    road.batch_nodes_max = open->plan().batch_nodes_max;
    road.road = std::move(open);
  }
  return TrainOn(arguments, database, road, setup, last_epoch);
}

Status TrainPlanned(const NodeArguments& arguments, Database& database, const TrainedOn& trained_on,
                    TrainSetup setup, TrainingStates& states, bool& began) {
  StreamStats last_epoch;
  QUARRY_TRY(const LayoutSpec spec, SpecOf(arguments, *database.manifest()));
  QUARRY_TRY(setup.run, RunOf(arguments, database, &spec, states));
  if (arguments.resample) {
    if (!setup.decision) {
      QUARRY_RETURN_IF_ERROR(
          CheckMemoryOfPlan(database, RoadKind::kFresh, spec, arguments.road, trained_on.train_nodes));
    }
    QUARRY_TRY(const OpenRoad open, OpenSuperbatches(database, spec, arguments.road, arguments.train.epochs));
    began = true;
    return TrainOn(arguments, database, open, setup, last_epoch);
  }
  LayoutRecord built;
  if (arguments.plan) {
    if (!setup.decision) {
      QUARRY_RETURN_IF_ERROR(
          CheckMemoryOfPlan(database, RoadKind::kPlanned, spec, arguments.road, trained_on.train_nodes));
    }
    QUARRY_RETURN_IF_ERROR(BuildWhatIsMissing(database, spec, built));
  }
  setup.plan_seconds = built.plan_seconds;
  setup.plan_bytes_written = built.plan_bytes_written;
  setup.plan_bytes_read = built.plan_bytes_read;
  {
    QUARRY_TRY(const OpenRoad open, OpenPlanned(database, spec.name, arguments.road));
    setup.predicted_seconds = open.planned->layout().record().predicted_seconds;
    began = true;
    QUARRY_RETURN_IF_ERROR(TrainOn(arguments, database, open, setup, last_epoch));
  }
  return last_epoch.batches > 0 ? RememberMeasured(database, spec.name, last_epoch) : Status::Ok();
}

// Part by part: labels and splits are those of the parts, and no list of nodes is ever made.
Status TrainByParts(const NodeArguments& arguments, Database& database) {
  PartitionedNodeRoadOptions options = *arguments.parts;
  options.spec = arguments.road.spec;
  options.sampler_threads = arguments.road.sampler_threads;
  const std::unique_ptr<TrainingStates> states = TrainingStatesOf(database.store());
  if (arguments.run.resume) {
    QUARRY_TRY(const std::optional<TrainRun> run, arguments.run.NodeRun());
    QUARRY_TRY(const TrainingRecord record, states->Find(run->name));
    QUARRY_RETURN_IF_ERROR(TakeTunedParts(run->name, record.settings, options.parts));
  }
  QUARRY_TRY(std::unique_ptr<PartitionedNodeRoad> road,
             PartitionedNodeRoad::Open(database.store(), database.budget(), options));
  LogInfo("{}", road->plan().ToString());
  const auto largest_label = [&] { return road->partitioning().FindLargestLabel(database.budget()); };
  QUARRY_RETURN_IF_ERROR(CheckTrainerMemory(
      arguments.train, road->feature_dim(), road->class_count(), largest_label,
      BoundHopNodes(options.spec.batch_size, options.spec.fanouts, road->plan().batch_nodes_max), false,
      database.budget().used_bytes(), MemoryLimitBytes()));
  TrainSetup setup;
  QUARRY_TRY(setup.run, RunOf(arguments, database, nullptr, *states, road.get()));
  NodeArguments taken = arguments;
  taken.road.sampler_threads = road->plan().samplers;
  OpenRoad open{.batch_nodes_max = road->plan().batch_nodes_max};
  open.road = std::move(road);
  StreamStats last_epoch;
  return TrainOn(taken, database, open, setup, last_epoch);
}

// --layout NAME --plan --dry-run, where that layout would have to be built: the same question as that of --plan, about a
// cache and a policy that are given.
Status AskAsChoice(NodeArguments& arguments, const Manifest& manifest) {
  if (!arguments.dry_run || !arguments.plan || arguments.resample || arguments.layout.empty()) {
    return Status::Ok();
  }
  QUARRY_TRY(const LayoutSpec spec, SpecOf(arguments, manifest));
  const LayoutRecord* const record = manifest.FindLayout(spec.name);
  if (record != nullptr && IsLayoutOf(manifest, *record, spec)) return Status::Ok();
  arguments.plan_flags.name = std::exchange(arguments.layout, {});
  arguments.plan_flags.cache = fmt::format("{}", spec.road.cache_bytes);
  arguments.policy_is_given = true;
  return Status::Ok();
}

Status TrainOnDatabase(NodeArguments& arguments) {
  SplitThreads(arguments, arguments.road, arguments.train);
  QUARRY_TRY(const std::unique_ptr<Database> database, OpenWithBudgets(arguments));
  if (arguments.parts) return TrainByParts(arguments, *database);
  QUARRY_TRY(const TrainedOn trained_on, CheckLabels(arguments, *database));
  const std::unique_ptr<TrainingStates> states = TrainingStatesOf(database->store());
  TrainSetup setup;
  bool began = false;  // training, and not only what it needs
  QUARRY_RETURN_IF_ERROR(AskAsChoice(arguments, *database->manifest()));
  if (!arguments.layout.empty()) {
    return TrainPlanned(arguments, *database, trained_on, setup, *states, began);
  }
  if (arguments.plan) {  // the same choice, among caches and policies of one road
    arguments.given_road = arguments.resample ? RoadKind::kFresh : RoadKind::kPlanned;
    arguments.plan_is_given = true;
    arguments.plan = arguments.resample = false;
  }
  NodeArguments decided = arguments;
  QUARRY_TRY(RoadDecision decision, DecideRoad(decided, *database, trained_on));
  if (arguments.explain) return Status::Ok();
  setup.decision = decision.cost;
  if (arguments.dry_run && decision.cost) {
    TellDecision(arguments, *database, trained_on, decision, setup);
    return Status::Ok();
  }
  if (decided.plan) {
    const Status status = TrainPlanned(decided, *database, trained_on, setup, *states, began);
    const bool fixed = arguments.given_road || arguments.run.resume;
    if (fixed || began || status.code() != Code::kOutOfBudget) return status;
    LogInfo("that does not fit after all, so the live road is taken: {}", status.message());
    setup.decision.reset();
    decided = arguments;
    TakeWhatIsLeft(decided, *database, trained_on.classes);
  }
  return TrainLive(decided, *database, std::move(decision.live), setup, *states);
}

// A database without a server gets one, for as long as the workers run.
Status TrainWithWorkers(NodeArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckCommunicator());
  QUARRY_TRY(const std::unique_ptr<WorkerFolder> folder, WorkerFolder::Make());
  const uint32_t count = arguments.workers.count;
  if (IsServerAddress(arguments.path)) return RunWorkers(count, arguments.path, 0, *folder);
  QUARRY_TRY(const std::unique_ptr<Database> database, OpenWithBudgets(arguments));
  QUARRY_TRY(
      const std::unique_ptr<Server> server,
      Server::Start(database->store(), database->budget(), {.socket_path = folder->path() + "/socket"}));
  QUARRY_RETURN_IF_ERROR(RunWorkers(count, std::string(client::kServerScheme) + server->socket_path(),
                                    database->budget().limit_bytes(), *folder));
  return server->Stop();
}

// One trainer alone on a database, or one of a server's; or whoever starts several of the latter.
Status TrainNode(const CLI::App& verb, NodeArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckInlineFlag(arguments.inline_only, arguments.path));
  QUARRY_RETURN_IF_ERROR(CheckPlanOptions(verb, arguments));
  TuneMalloc();
  TrainOptions& train = arguments.train;
  RoadSpec& spec = arguments.plan_flags.road;
  if (spec.fanouts.empty()) spec.fanouts = DefaultFanouts(train.layers);
  if (spec.fanouts.size() != train.layers) {
    return MakeStatus(Code::kUsage, "--layers {} needs {} fanouts, but --fanout gives {}", train.layers,
                      train.layers, spec.fanouts.size());
  }
  spec.seed = train.seed;
  arguments.road.spec = spec;
  train.torch_threads = arguments.torch_threads;
  const int status_fd = arguments.workers.status_fd;
  if (status_fd >= 0) {
    QUARRY_RETURN_IF_ERROR(FollowStarter(status_fd));
    return TellStarter(status_fd, TrainRemotely(arguments));
  }
  const bool starts_workers = arguments.workers.count > 1;
  if (starts_workers || IsServerAddress(arguments.path)) {
    QUARRY_RETURN_IF_ERROR(CheckRemoteOptions(verb, arguments));
    return starts_workers ? TrainWithWorkers(arguments) : TrainRemotely(arguments);
  }
  return TrainOnDatabase(arguments);
}

}  // namespace

namespace {

void AddEngineOptions(CLI::App* verb, NodeArguments& arguments) {
  LiveRoadOptions& road = arguments.road;
  using Placement = LiveRoadOptions::TopologyPlacement;
  verb->add_option("--fanout", arguments.plan_flags.road.fanouts,
                   "neighbors a hop, from the seeds outwards (default 10,15,20; link: 20)")
      ->delimiter(',')
      ->check(FanoutRange());
  arguments.plan_flags.AddRoadOptions(verb);
  verb->add_option("--memory", arguments.memory,
                   "cap on all that the engine holds: 8GiB, 2GB, or 50% of the feature bytes; "
                   "default: 80% of what the machine or cgroup allows");
  AddChoice<Placement>(
      verb, "--topology", road.topology_placement,
      {{"auto", Placement::kAuto}, {"memory", Placement::kMemory}, {"disk", Placement::kDisk}},
      "where adjacency lists lie (default auto: in memory if they fit)");
  verb->add_option("--threads", arguments.plan_flags.threads,
                   "of the engine, shared by sampling and extraction; default: processors");
  verb->add_option("--torch-threads", arguments.torch_threads, "of LibTorch; default: processors");
  verb->add_flag("--ordered", arguments.train.ordered,
                 "batches in order: one seed, the same losses to the last bit for any --threads");
}

}  // namespace

void HandOver(int /*argc*/, char** /*argv*/) {}  // this program trains

void AddTrain(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("train", kTrainDescription);
  auto arguments = std::make_shared<TrainArguments>();
  NodeArguments& node = arguments->node;
  verb->add_option("DB", node.path, "database folder, or unix:PATH of a server's socket (quarry serve)")
      ->required();
  verb->add_option("--task", arguments->task, "node: classes of nodes, by a GNN; link: edges, by vectors")
      ->type_name("NAME")
      ->check(CLI::IsMember({"node", "link"}))
      ->capture_default_str();
  AddInlineFlag(verb, node.inline_only);
  AddModelOptions(verb, node);
  AddEngineOptions(verb, node);
  verb->add_option("--layout", node.layout, "train from this packed layout (quarry layout build)")
      ->type_name("NAME");
  verb->add_flag("--plan", node.plan,
                 "build the layout if it is missing, then train from it: --road planned");
  AddRoadChoice(verb, node, arguments->link.partitioned);
  node.plan_flags.AddPlanOptions(verb);
  AddChoice<bool>(verb, "--resample", node.resample, {{"never", false}, {"every-epoch", true}},
                  "with --plan: repeat the planned epochs (default), or sample and plan every epoch anew "
                  "while the one before trains, packed or not, whichever is cheaper");
  verb->add_flag("--json", node.json,
                 "one JSON object per epoch on stdout, then {\"summary\": {...}}, and nothing else there");
  node.run.AddTo(verb);
  node.workers.AddTo(verb);
  verb->add_flag(
      "--dry-run", node.dry_run,
      "say which road would be taken, why, and the least memory that it needs, or how --layout would "
      "divide it; train nothing");
  GroupOptions(*verb, "Model",
               {"--model", "--layers", "--hidden", "--epochs", "--patience", "--lr", "--dropout",
                "--input-dropout", "--weight-decay", "--normalize-features", "--seed"});
  GroupOptions(*verb, "Batches", {"--fanout", "--batch-size", "--direction", "--replace", "--ordered"});
  GroupOptions(
      *verb, "Memory and threads",
      {"--cache", "--memory", "--topology", "--threads", "--torch-threads", "--inline", "--dry-run"});
  GroupOptions(*verb, "Packed layouts",
               {"--road", "--explain", "--layout", "--plan", "--disk", "--epochs-planned", "--policy",
                "--seed-order", "--hash-functions", "--resample", "--superbatch"});
  AddLinkOptions(verb, arguments->link);
  verb->footer(
      "Peak RSS stays under --memory plus an overhead for code and LibTorch's working set, which is "
      "printed.\n"
      "With --task link: --batch-size 1000 edges, --lr 0.05, and --memory shares are of the machine's.\n"
      "Example: quarry train db/ --fanout 10,15,20 --batch-size 1024 --epochs 10 --memory 8GiB --cache 10%\n"
      "         quarry train kg/ --task link --decoder distmult --dim 50");
  verb->callback([verb, arguments, &action] {
    NodeArguments& given = arguments->node;
    if (given.resample) given.plan = true;
    given.policy_is_given = verb->count("--policy") > 0;
    if (verb->count("--layers") == 0 && !given.plan_flags.road.fanouts.empty()) {
      given.train.layers = static_cast<uint32_t>(given.plan_flags.road.fanouts.size());
    }
    if (arguments->task == "link") {
      action = [verb, arguments] { return TrainLink(*verb, arguments->link); };
      return;
    }
    action = [verb, arguments] {
      QUARRY_RETURN_IF_ERROR(CheckTaskOptions(*verb, "node"));
      if (arguments->link.partitioned) TakePartOptions(*verb, arguments->link, arguments->node);
      arguments->node.config = EffectiveConfig(*verb->get_parent());
      return TrainNode(*verb, arguments->node);
    };
  });
}

}  // namespace quarry::cli
