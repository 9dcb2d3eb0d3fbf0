// `quarry train` on a database that this process opens: its road is made here, and chosen by price where it is left open.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/service/road_opener.h"
#include "train_choice.h"
#include "train_memory.h"
#include "train_node.h"
#include "train_report.h"
#include "train_targets.h"
#include "train_types.h"

namespace quarry::cli {
namespace {

// Half of the engine's threads sample and half extract; each stage has one at least.
void SplitThreads(NodeArguments& arguments) {
  LiveRoadOptions& road = arguments.road;
  const unsigned threads =
      arguments.plan_flags.threads > 0 ? arguments.plan_flags.threads : std::max(2U, ProcessorCount());
  road.sampler_threads = std::max(1U, threads / 2);
  road.extractor_threads = std::max(1U, threads - road.sampler_threads);
  arguments.train.torch_threads = arguments.torch_threads > 0 ? arguments.torch_threads : ProcessorCount();
}

// The layout that these arguments ask for. Superbatches that are whole epochs are said as such, whatever their size, so that
// a run that is begun and one that goes on keep the same settings.
Result<LayoutSpec> SpecOf(const NodeArguments& arguments, const Manifest& manifest, uint64_t train_nodes) {
  LayoutFlags flags = arguments.plan_flags;
  if (!arguments.layout.empty()) flags.name = arguments.layout;
  QUARRY_TRY(LayoutSpec spec, flags.ToSpec(manifest));
  if (arguments.resample) {
    spec.packing = Packing::kCheaper;
    const bool whole = arguments.superbatch >= CeilDiv(train_nodes, uint64_t{spec.road.batch_size});
    spec.batches = whole ? 0 : arguments.superbatch;
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
                       TrainingStates& states, const Communicator* trainers,
                       const wire::OpenedParts* parts = nullptr) {
  QUARRY_TRY(const std::optional<TrainRun> asked, arguments.run.NodeRun());
  TrainRun run = asked.value_or(TrainRun());
  run.from = arguments.run.from;
  if (trainers != nullptr && trainers->rank() > 0)
    return run;  // the first one's checkpoints are those of all
  QUARRY_RETURN_IF_ERROR(TakeFirstWeights(arguments, *database.manifest(), states, run));
  if (!asked) return run;
  NodeSettings settings{.road = arguments.road.spec,
                        .train = arguments.train,
                        .parts = parts,
                        .resample = arguments.resample,
                        .trainers = trainers != nullptr ? trainers->size() : 1,
                        .from = run.from,
                        .target = arguments.target};
  if (arguments.plan) settings.planned = spec;
  if (!arguments.plan && spec != nullptr) {
    const std::shared_ptr<const Manifest> manifest = database.manifest();
    settings.built = manifest->FindLayout(spec->name);
    if (settings.built == nullptr) return run;  // opening it says so
  }
  run.states = &states;
  run.settings = settings.ToString();
  run.config = arguments.config;
  QUARRY_RETURN_IF_ERROR(CheckTrainRun(run));
  return run;
}

// --layout NAME --plan --dry-run, where that layout would have to be built: the same question as that of --plan, about a
// cache and a policy that are given.
Status AskAsChoice(NodeArguments& arguments, const Manifest& manifest, uint64_t train_nodes) {
  if (!arguments.dry_run || !arguments.plan || arguments.resample || arguments.layout.empty()) {
    return Status::Ok();
  }
  QUARRY_TRY(const LayoutSpec spec, SpecOf(arguments, manifest, train_nodes));
  const LayoutRecord* const record = manifest.FindLayout(spec.name);
  if (record != nullptr && IsLayoutOf(manifest, *record, spec)) return Status::Ok();
  arguments.plan_flags.name = std::exchange(arguments.layout, {});
  arguments.plan_flags.cache = fmt::format("{}", spec.road.cache_bytes);
  arguments.policy_is_given = true;
  return Status::Ok();
}

// --dry-run: what would be done, on how much memory. REQUIRES: the decision has a cost.
Status TellDecision(const NodeArguments& arguments, Database& database, const TrainedOn& trained_on,
                    const RoadDecision& decision, TrainSetup& setup) {
  QUARRY_TRY(const FeatureGeometry rows, RowsOf(*database.manifest(), arguments.road.spec));
  setup.memory_budget_bytes = database.budget().limit_bytes();
  setup.least_budget_bytes = decision.least_bytes;
  const uint32_t dim = FeatureDim(*database.manifest(), arguments.road.spec);
  setup.cache_budget_bytes = decision.cost->plan.cache_rows * RowStride(rows.element_type, rows.dim);
  setup.overhead_bytes = EstimateTrainerBytes(
      arguments.train, dim, trained_on.classes,
      BoundBlock(arguments.road.spec.batch_size, arguments.road.spec.fanouts, decision.batch_nodes_max),
      arguments.run.checkpoint_every > 0);
  TrainReport(setup, arguments.json).Decision(decision.said, decision.live.get());
  return Status::Ok();
}

class DatabaseSource final : public TrainingSource {
 public:
  DatabaseSource(NodeArguments& arguments, std::unique_ptr<client::Store> store)
      : arguments_(arguments),
        store_(std::move(store)),
        database_(*store_->database()),
        states_(TrainingStatesOf(database_.store())) {
    SplitThreads(arguments);
  }
  // The targets read the store, and weights and relations have a part of its budget: all go with this.
  ~DatabaseSource() override {
    for (NodeArguments* const holding : {&arguments_, &decided_}) {
      holding->train.targets.reset();
      holding->train.weights.reset();
      holding->train.inputs.kinds.reset();
      holding->train.whole_graph.reset();
    }
  }

  Result<TrainingRoad> OpenRoad() override {
    QUARRY_RETURN_IF_ERROR(CheckRunLasts());
    QUARRY_RETURN_IF_ERROR(CheckRoadOfTypes(arguments_));
    if (arguments_.parts) return OpenParts();
    QUARRY_RETURN_IF_ERROR(TakeOwnLayout());
    const std::shared_ptr<const Manifest> manifest = database_.manifest();
    QUARRY_RETURN_IF_ERROR(TakeTargets(*store_, *manifest, arguments_));
    // Each batch's are read when the road has divided the memory: until then there is room held for them.
    QUARRY_TRY(
        const MemoryBudget::Reservation target_room,
        database_.budget().Reserve(TargetRoom(*manifest, arguments_.target, arguments_.road.spec.batch_size),
                                   "targets of batches"));
    QUARRY_RETURN_IF_ERROR(TakeWeights(database_, arguments_.road.spec.topology, arguments_.train));
    QUARRY_RETURN_IF_ERROR(TakeInputs(*manifest, arguments_.road.spec, arguments_.train));
    QUARRY_RETURN_IF_ERROR(TakeKinds(database_, arguments_.road.spec, arguments_.train));
    QUARRY_RETURN_IF_ERROR(TakeWholeGraph());
    QUARRY_TRY(trained_on_, CheckLabels(arguments_, database_));
    if (arguments_.eval_layers) trained_on_.valid_nodes = trained_on_.test_nodes = 0;  // of sampled passes
    if (trained_on_.classes == 0) {  // before a model is measured
      return Status(Code::kInvalidArgument,
                    "the database has labels of 0 classes; --task regress and multilabel learn the rows of a "
                    "table in their place");
    }
    QUARRY_RETURN_IF_ERROR(TakeDegrees(*store_, database_.manifest()->node_count,
                                       arguments_.road.spec.direction, arguments_.train));
    QUARRY_RETURN_IF_ERROR(AskAsChoice(arguments_, *database_.manifest(), trained_on_.train_nodes));
    TrainingRoad open;
    QUARRY_RETURN_IF_ERROR(TakeLayoutInStore());
    if (!arguments_.layout.empty()) {
      QUARRY_RETURN_IF_ERROR(OpenPlan(arguments_, open));
      return open;
    }
    if (arguments_.plan) {  // the same choice, among caches and policies of one road
      arguments_.given_road = arguments_.resample ? RoadKind::kFresh : RoadKind::kPlanned;
      arguments_.plan_is_given = true;
      arguments_.plan = arguments_.resample = false;
    }
    decided_ = arguments_;
    QUARRY_TRY(RoadDecision decision, DecideRoad(decided_, database_, trained_on_));
    if (arguments_.explain) return TrainingRoad();
    open.setup.decision = decision.cost;
    if (arguments_.dry_run && decision.cost) {
      QUARRY_RETURN_IF_ERROR(TellDecision(arguments_, database_, trained_on_, decision, open.setup));
      return TrainingRoad();
    }
    if (decided_.plan) {
      const Status status = OpenPlan(decided_, open);
      if (status.ok()) return open;
      if (arguments_.given_road || arguments_.run.resume || status.code() != Code::kOutOfBudget)
        return status;
      LogInfo("that does not fit after all, so the live road is taken: {}", status.message());
      open = TrainingRoad();
      decided_ = arguments_;
      TakeWhatIsLeft(decided_, database_, trained_on_.classes);
    }
    QUARRY_RETURN_IF_ERROR(OpenLive(std::move(decision.live), open));
    return open;
  }

  Status Remember(const StreamStats& last_epoch) override {
    const RemoteFiles* const remote = database_.backend().remote_files();
    if (layout_.empty() || last_epoch.batches == 0 || (remote != nullptr && remote->read_only)) {
      return Status::Ok();
    }
    return RememberMeasured(database_, layout_, last_epoch);
  }

  Communicator* trainers() override { return trainers_.get(); }

 private:
  // Refused here rather than when the first checkpoint is taken.
  Status CheckRunLasts() const {
    const RemoteFiles* const remote = database_.backend().remote_files();
    if (remote == nullptr || !remote->read_only) return Status::Ok();
    QUARRY_TRY(const std::optional<TrainRun> asked, arguments_.run.NodeRun());
    if (!asked) return Status::Ok();
    return MakeStatus(
        Code::kUnsupported,
        "{}: a run is kept in a database, and nothing is written there: quarry pull --thin {} DB makes one "
        "here that leaves large files in the store",
        remote->address, remote->address);
  }

  // --eval layers: memory for its passes, before a road takes what there is.
  Status TakeWholeGraph() {
    if (!arguments_.eval_layers) return Status::Ok();
    if (const RemoteFiles* const remote = database_.backend().remote_files(); remote != nullptr) {
      return MakeStatus(Code::kUsage,
                        "--eval layers writes rows of each layer into the database's folder and reads all of "
                        "its files, which are in {}: leave it out",
                        remote->address);
    }
    constexpr uint64_t kShare = 4;
    const uint64_t bytes = database_.budget().limit_bytes() / kShare;
    QUARRY_TRY(graph_bytes_, database_.budget().Reserve(bytes, "validation and test layer by layer"));
    graph_budget_ = std::make_unique<MemoryBudget>(bytes);
    const RoadSpec& road = arguments_.road.spec;
    arguments_.train.whole_graph =
        std::make_shared<const GraphSource>(GraphSource{.store = database_.store(),
                                                        .budget = *graph_budget_,
                                                        .feature_table = road.feature_table,
                                                        .topology = road.topology,
                                                        .direction = road.direction});
    return Status::Ok();
  }

  // One of several trainers, as a launcher says in the environment, trains from a layout of its own where there is one, with
  // the others.
  Status TakeOwnLayout() {
    QUARRY_TRY(std::optional<Rendezvous> rendezvous, RendezvousFromEnvironment(std::getenv));
    if (!rendezvous || rendezvous->size < 2) return Status::Ok();
    const std::string& name = arguments_.layout.empty() ? arguments_.plan_flags.name : arguments_.layout;
    const std::string own = RankLayoutName(name, rendezvous->rank, rendezvous->size);
    const std::shared_ptr<const Manifest> manifest = database_.manifest();
    if (manifest->FindLayout(own) == nullptr) {
      if (database_.backend().remote_files() == nullptr) return Status::Ok();
      return MakeStatus(Code::kNotFound,
                        "{}: there is no layout \"{}\" for trainer {} of {}: build them before the push "
                        "(quarry layout build "
                        "DB {} --ranks {})",
                        arguments_.path, own, rendezvous->rank, rendezvous->size, name, rendezvous->size);
    }
    if (arguments_.plan || arguments_.given_road.value_or(RoadKind::kPlanned) != RoadKind::kPlanned) {
      return MakeStatus(
          Code::kUsage,
          "trainer {} of {} trains from layout \"{}\": leave --plan and other roads than the planned one out",
          rendezvous->rank, rendezvous->size, own);
    }
    arguments_.layout = own;
    arguments_.given_road.reset();
    const std::string& host = rendezvous->address;
    rendezvous->several_hosts = !host.starts_with('/') && !host.starts_with("127.") && host != "localhost";
    QUARRY_TRY(trainers_, JoinTrainers(*rendezvous));
    return Status::Ok();
  }

  // From an object store nothing is planned, and only what was planned before the push is trained from: a road that was left
  // open, or is planned, is the layout that is there.
  Status TakeLayoutInStore() {
    const RemoteFiles* const remote = database_.backend().remote_files();
    if (remote == nullptr) return Status::Ok();
    if (arguments_.dry_run || arguments_.explain) {
      return MakeStatus(
          Code::kUsage,
          "{} is of roads that are chosen, and from {} there is the planned one alone: leave it out",
          arguments_.dry_run ? "--dry-run" : "--explain", remote->address);
    }
    if (arguments_.train.patience > 0) {
      return MakeStatus(
          Code::kUsage,
          "--patience waits for a better validation metric, and validation reads scattered rows, which {} "
          "does not give: leave it out",
          remote->address);
    }
    const RoadKind road = arguments_.plan && arguments_.resample ? RoadKind::kFresh
                          : arguments_.plan                      ? RoadKind::kPlanned
                                            : arguments_.given_road.value_or(RoadKind::kPlanned);
    if (!arguments_.layout.empty()) return Status::Ok();
    const std::string& name = arguments_.plan_flags.name;
    if (road == RoadKind::kPlanned && database_.manifest()->FindLayout(name) != nullptr) {
      arguments_.layout = name;
      arguments_.plan = false;
      return Status::Ok();
    }
    if (road == RoadKind::kLive) return Status::Ok();  // which refuses, and says why
    return MakeStatus(
        Code::kUnsupported,
        "{}: {}; from an object store one trains from a layout that was built before the push (quarry "
        "layout build DB, quarry push DB {}), or with --road partitioned",
        remote->address,
        road == RoadKind::kFresh ? std::string("planning epochs anew reads scattered rows")
                                 : fmt::format("there is no layout \"{}\"", name),
        remote->address);
  }

  // The live road: `opened`, or one that is opened now.
  Status OpenLive(std::unique_ptr<LiveRoad> opened, TrainingRoad& open) {
    QUARRY_TRY(open.setup.run, RunOf(decided_, database_, nullptr, *states_, nullptr));
    if (opened == nullptr) {
      QUARRY_TRY(opened, database_.OpenLiveRoad(decided_.road));
    } else {
      LogInfo("{}", opened->plan().ToString());
    }
    open.live = opened.get();
    open.batch_nodes_max = open.live->plan().batch_nodes_max;
    open.road = std::move(opened);
    SetUp(decided_, open);
    return Status::Ok();
  }

  // The road of a layout, which is built first where `arguments` say so; or that of superbatches.
  Status OpenPlan(const NodeArguments& arguments, TrainingRoad& open) {
    QUARRY_TRY(const LayoutSpec spec, SpecOf(arguments, *database_.manifest(), trained_on_.train_nodes));
    const std::shared_ptr<const Manifest> manifest = database_.manifest();
    const LayoutRecord* const there = manifest->FindLayout(spec.name);
    if (there != nullptr && there->share.ranks > 0 && trainers_ == nullptr) {
      return MakeStatus(Code::kUsage,
                        "layout \"{}\" has the batches of one of {} trainers: start {} of them, each with "
                        "its RANK and with "
                        "WORLD_SIZE={} in the environment, or train from a layout that has all",
                        spec.name, there->share.ranks, there->share.ranks, there->share.ranks);
    }
    QUARRY_RETURN_IF_ERROR(Agree(trainers(), [&]() -> Status {
      QUARRY_TRY(open.setup.run, RunOf(arguments, database_, &spec, *states_, trainers()));
      return Status::Ok();
    }()));
    if (arguments.plan && !open.setup.decision) {
      const RoadKind kind = arguments.resample ? RoadKind::kFresh : RoadKind::kPlanned;
      QUARRY_RETURN_IF_ERROR(
          CheckMemoryOfPlan(database_, kind, spec, arguments.road, trained_on_.train_nodes));
    }
    LiveRoadOptions passes = arguments.road;
    passes.spec = passes.spec.ForOtherPasses();
    if (arguments.resample) {
      QUARRY_TRY(auto road, database_.OpenSuperbatches(
                                {.layout = spec, .live = passes, .last_pass = arguments.train.epochs}));
      open.live = &road->live();
      open.setup.superbatches = road.get();
      open.batch_nodes_max = open.live->plan().batch_nodes_max;
      open.road = std::move(road);
      SetUp(arguments, open);
      return Status::Ok();
    }
    LayoutRecord built;
    if (arguments.plan) QUARRY_RETURN_IF_ERROR(BuildWhatIsMissing(database_, spec, built));
    open.setup.plan_seconds = built.plan_seconds;
    open.setup.plan_bytes_written = built.plan_bytes_written;
    open.setup.plan_bytes_read = built.plan_bytes_read;
    QUARRY_TRY(auto road, database_.OpenLayout({.layout = spec.name, .live = passes}));
    const LayoutRecord& record = road->layout().record();
    open.setup.predicted_seconds = record.predicted_seconds;
    open.setup.run.epochs_of_cycle = record.epochs;
    open.live = road->live();
    open.batch_nodes_max = road->layout().directory().nodes_max();
    if (open.live != nullptr) {
      open.batch_nodes_max = std::max(open.batch_nodes_max, open.live->plan().batch_nodes_max);
    } else {
      LogInfo(
          "validation and test are left out: they read scattered rows, which an object store does not give");
    }
    open.road = std::move(road);
    layout_ = spec.name;
    SetUp(arguments, open);
    return Status::Ok();
  }

  // Part by part: labels and splits are those of the parts, and no list of nodes is ever made.
  Result<TrainingRoad> OpenParts() {
    PartitionedNodeRoadOptions options = *arguments_.parts;
    options.spec = arguments_.road.spec;
    options.sampler_threads = arguments_.road.sampler_threads;
    if (arguments_.run.resume) {
      QUARRY_TRY(const std::optional<TrainRun> run, arguments_.run.NodeRun());
      QUARRY_TRY(const TrainingRecord record, states_->Find(run->name));
      QUARRY_RETURN_IF_ERROR(TakeTunedParts(run->name, record.settings, options.parts));
    }
    QUARRY_TRY(std::unique_ptr<PartitionedNodeRoad> road,
               PartitionedNodeRoad::Open(database_.store(), database_.budget(), options));
    LogInfo("{}", road->plan().ToString());
    const auto largest_label = [&] { return road->partitioning().FindLargestLabel(database_.budget()); };
    QUARRY_RETURN_IF_ERROR(CheckTrainerMemory(
        arguments_.train, road->feature_dim(), road->class_count(), largest_label,
        BoundBlock(options.spec.batch_size, options.spec.fanouts, road->plan().batch_nodes_max), false,
        database_.budget().used_bytes(), MemoryLimitBytes()));
    TrainingRoad open{.batch_nodes_max = road->plan().batch_nodes_max};
    const wire::OpenedParts parts = PartsOf(*road);
    QUARRY_TRY(open.setup.run, RunOf(arguments_, database_, nullptr, *states_, nullptr, &parts));
    SetUp(arguments_, open);
    open.setup.road.sampler_threads = road->plan().samplers;
    open.road = std::move(road);
    return open;
  }

  // What is told of the memory, beside the trainer's own.
  void SetUp(const NodeArguments& arguments, TrainingRoad& open) const {
    open.setup.memory_budget_bytes = database_.budget().limit_bytes();
    open.setup.cache_budget_bytes = arguments.road.cache_takes_what_is_left ? open.live->plan().cache_bytes
                                                                            : arguments.road.spec.cache_bytes;
    open.setup.road = arguments.road;
    open.setup.trainers = trainers_ != nullptr ? trainers_->size() : 1;
  }

  NodeArguments& arguments_;
  NodeArguments decided_;  // with the road that was chosen; outlives it
  const std::unique_ptr<client::Store> store_;
  Database& database_;
  const std::unique_ptr<TrainingStates> states_;
  MemoryBudget::Reservation graph_bytes_;       // for graph_budget_
  std::unique_ptr<MemoryBudget> graph_budget_;  // of --eval layers
  std::unique_ptr<Communicator> trainers_;      // null: alone
  TrainedOn trained_on_;
  std::string layout_;  // that the road reads; empty: none
};

}  // namespace

std::unique_ptr<TrainingSource> SourceOfDatabase(NodeArguments& arguments,
                                                 std::unique_ptr<client::Store> store) {
  return std::make_unique<DatabaseSource>(arguments, std::move(store));
}

}  // namespace quarry::cli
