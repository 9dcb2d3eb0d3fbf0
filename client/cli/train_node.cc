#include "train_node.h"

#include "opened_store.h"
#include "option_values.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/database.h"
#include "quarry/import/tensors.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/sampling/sampler.h"
#include "quarry/storage/times.h"
#include "quarry/storage/topology.h"
#include "quarry/trainer/predict.h"
#include "remote_road.h"
#include "train_targets.h"
#include "train_types.h"

namespace quarry::cli {

// The settings are written as options of `quarry train`, and so they are read. What else stands there, of the road and of
// the layout, does not change what a model says.
Result<TrainedNode> ReadNodeSettings(std::string_view run, const std::string& settings) {
  std::string task;
  NodeArguments arguments;
  CLI::App parser;
  parser.allow_extras();
  parser.add_option("--task", task);
  parser.add_option("--target", arguments.target);
  AddModelOptions(&parser, arguments);
  parser.add_option("--fanout", arguments.plan_flags.road.fanouts)->delimiter(',');
  arguments.plan_flags.AddRoadOptions(&parser);
  try {
    parser.parse(settings, /*program_name_included=*/false);
  } catch (const CLI::ParseError& error) {
    return MakeStatus(Code::kCorruption, "the settings of run \"{}\" cannot be read: {}", run, error.what());
  }
  const Result<NodeTask> trained = ParseName<NodeTask>(task);
  if (!trained.ok()) {
    return MakeStatus(Code::kInvalidArgument, "run \"{}\" trained the task {}; this takes runs on nodes: {}",
                      run, task, fmt::join(EnumNames<NodeTask>::kNames, ", "));
  }
  arguments.train.task = *trained;
  return TrainedNode{arguments.train, arguments.plan_flags.road, arguments.target};
}

Result<TrainedShape> ShapeOfRun(const Manifest& manifest, TrainingStates& states, std::string_view run) {
  TrainedShape shape;
  QUARRY_TRY(const TrainingRecord record, states.Find(run));
  QUARRY_TRY(shape.trained, ReadNodeSettings(run, record.settings));
  const std::string& name = shape.trained.road.feature_table;
  const TableRecord* const features = manifest.FindTable(name);
  QUARRY_RETURN_IF_ERROR(TakeInputs(manifest, shape.trained.road, shape.trained.train));
  if (shape.trained.train.spec.needs_relations() && !manifest.edge_types.empty()) return shape;
  if (features == nullptr) {
    return MakeStatus(Code::kNotFound, "{}: the run reads table \"{}\", which is not there any more",
                      states.path(), name);
  }
  shape.feature_dim = BatchDim(manifest, shape.trained.road.topology, *features);
  return shape;
}

Status TakeDegrees(client::Store& store, uint64_t node_count, Direction direction, TrainOptions& train) {
  if (!train.spec.needs_degrees()) return Status::Ok();
  if (const uint64_t bytes = node_count * sizeof(uint32_t); bytes > MemoryLimitBytes()) {
    return MakeStatus(
        Code::kOutOfBudget,
        "--gcn-norm both holds the degrees of {} nodes, {}, and the machine or cgroup allows {}", node_count,
        FormatBytes(bytes), FormatBytes(MemoryLimitBytes()));
  }
  QUARRY_TRY(std::vector<uint32_t> degrees, LookUpDegrees(store, direction, node_count));
  train.degrees = std::make_shared<const std::vector<uint32_t>>(std::move(degrees));
  return Status::Ok();
}

std::string EdgeOption(const ModelSpec& model) {
  return model.needs_relations() ? fmt::format("--model {}", quarry::NameOf(model.model))
                                 : "--edge-weights on";
}

Status AskForEdges(const ModelSpec& model, bool remote, RoadSpec& road) {
  if (!model.looks_at_edges()) return Status::Ok();
  if (remote && model.needs_weights()) {
    return MakeStatus(Code::kUsage,
                      "{} reads the database's files, and a server has them open: train on the database "
                      "itself, by one trainer",
                      EdgeOption(model));
  }
  if (road.direction != Direction::kIn) {
    return MakeStatus(Code::kUsage, "{} takes edges as they lead to a node: leave --direction out",
                      EdgeOption(model));
  }
  road.edge_ids = road.relation_fanouts.empty();
  return Status::Ok();
}

Status CheckAllNeighbors(std::string_view who, std::string_view option, const ModelSpec& model,
                         const RoadSpec& road) {
  if (model.weighs_messages() || model.needs_relations()) {
    return MakeStatus(Code::kUnsupported, "{} has {}, which {} does not: leave the option out", who,
                      model.needs_degrees() ? "--gcn-norm both" : EdgeOption(model), option);
  }
  if (!road.weighted) return Status::Ok();
  return MakeStatus(Code::kUnsupported,
                    "{} draws neighbors by the weights of edges, and {} takes all of them alike: leave the "
                    "option out",
                    who, option);
}

Status CheckRoadOfTypes(const NodeArguments& arguments) {
  if (arguments.road.spec.relation_fanouts.empty()) return Status::Ok();
  if (!arguments.parts) return Status::Ok();
  return MakeStatus(
      Code::kUsage,
      "--model {} draws by types of edges in a graph with types, and reads rows of each type's table, which "
      "parts do not have: take --road live or --plan",
      quarry::NameOf(arguments.train.spec.model));
}

Status TakeWeights(Database& database, const std::string& topology, TrainOptions& train) {
  if (!train.spec.needs_weights()) return Status::Ok();
  struct Loaded {
    MemoryBudget::Reservation bytes;
    std::unique_ptr<Topology> topology;
    std::span<const float> weights;
  };
  Store& store = database.store();
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  const TopologyRecord* const record = snapshot->FindTopology(topology);
  if (record == nullptr) return store.OpenTopology(topology).status();
  if (!record->weighted) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: --edge-weights on, and the edges have no weights: import them with "
                      "edge_weights.npy beside edges.npy",
                      store.path());
  }
  auto loaded = std::make_shared<Loaded>();
  QUARRY_TRY(loaded->bytes,
             database.budget().Reserve(Topology::ResidentBytes(*record) + Topology::WeightsBytes(*record),
                                       "the weights of edges"));
  QUARRY_TRY(loaded->topology, OpenPlaces(store, *snapshot, topology));
  QUARRY_RETURN_IF_ERROR(loaded->topology->LoadWeights(store.backend(), Adjacency::kCsc));
  loaded->weights = loaded->topology->weights(Adjacency::kCsc);
  train.weights = {loaded, &loaded->weights};
  return Status::Ok();
}

Status TakeTargets(client::Store& store, const Manifest& manifest, NodeArguments& arguments) {
  if (arguments.target.empty()) return Status::Ok();
  QUARRY_TRY(arguments.train.targets, OpenTargets(store, manifest, arguments.target));
  return Status::Ok();
}

// The name of a run has neither a point nor a slash.
Status TakeFirstWeights(const NodeArguments& arguments, const Manifest& manifest, TrainingStates& states,
                        TrainRun& run) {
  run.from = arguments.run.from;
  if (run.from.empty() || run.resume) return Status::Ok();
  if (run.from.find_first_of("./") != std::string::npos) {
    run.read_weights = [path = run.from] { return ReadTensors(path, MemoryLimitBytes()); };
  } else {
    QUARRY_TRY(TrainedShape shape, ShapeOfRun(manifest, states, run.from));
    shape.trained.train.torch_threads = arguments.train.torch_threads;
    run.read_weights = [&states, name = run.from, shape] {
      return ReadWeights(states, name, shape.trained.train, shape.feature_dim);
    };
  }
  return run.read_weights().status();
}

namespace {

constexpr uint64_t kAskingBytes = 128 << 20;  // for reading a catalog, wherever it is

}  // namespace

Result<OpenedDatabase> OpenWithMemory(NodeArguments& arguments, const std::string& address,
                                      uint64_t memory_bytes) {
  OpenedDatabase opened{.memory_bytes = memory_bytes};
  uint64_t feature_bytes = 0, cache_bytes = 0;
  if (!arguments.cache_folder.empty()) {
    QUARRY_TRY(cache_bytes, ParseBytes(arguments.cache_size, 0));
  }
  const auto open = [&](uint64_t bytes) -> Status {
    opened.store.reset();
    QUARRY_TRY(opened.store, client::Open(address, {.memory_bytes = bytes,
                                                    .cache_folder = arguments.cache_folder,
                                                    .cache_bytes = cache_bytes,
                                                    .timeout_seconds = kTrainerTimeoutSeconds,
                                                    .inline_only = arguments.inline_only}));
    QUARRY_TRY(opened.manifest, ManifestOf(*opened.store, address));
    QUARRY_RETURN_IF_ERROR(AskByType(opened.manifest, arguments.train.spec, arguments.plan_flags.road.fanouts,
                                     arguments.road.spec));
    arguments.plan_flags.by_type = !arguments.road.spec.relation_fanouts.empty();
    QUARRY_TRY(feature_bytes, FeatureBytes(opened.manifest, arguments.road.spec));
    QUARRY_TRY(arguments.road.spec.cache_bytes, ParseCache(arguments.plan_flags.cache, feature_bytes));
    return Status::Ok();
  };
  if (memory_bytes == 0 && !arguments.memory.empty()) {
    if (arguments.memory.ends_with('%')) QUARRY_RETURN_IF_ERROR(open(kAskingBytes));  // holds none of it
    QUARRY_TRY(opened.memory_bytes, ParseSize("--memory", arguments.memory, feature_bytes));
  }
  QUARRY_RETURN_IF_ERROR(open(opened.memory_bytes));
  return opened;
}

Result<std::unique_ptr<TrainingSource>> OpenTrainingSource(NodeArguments& arguments) {
  const std::string& worker = arguments.workers.address;
  const std::string& address = worker.empty() ? arguments.path : worker;
  if (IsServerAddress(address)) return SourceOfServer(arguments, address);
  QUARRY_TRY(OpenedDatabase opened, OpenWithMemory(arguments, address));
  return SourceOfDatabase(arguments, std::move(opened.store));
}

Status TrainFrom(TrainingSource& source, const NodeArguments& arguments) {
  QUARRY_TRY(TrainingRoad open, source.OpenRoad());
  if (open.road == nullptr) return Status::Ok();
  TrainSetup& setup = open.setup;
  const RoadSpec& spec = arguments.road.spec;
  setup.overhead_bytes = EstimateTrainerBytes(
      arguments.train, open.road->feature_dim(), open.road->class_count(),
      BoundBlock(spec.batch_size, spec.fanouts, open.batch_nodes_max), setup.run.states != nullptr);
  setup.overhead_bytes +=
      JudgingBytes(arguments.train, open.road->class_count(),
                   std::max(open.road->CountNodes(Split::kValid), open.road->CountNodes(Split::kTest)));
  setup.train = arguments.train;
  setup.config = arguments.config;
  Communicator* const trainers = source.trainers();
  const bool reports = trainers == nullptr || trainers->rank() == 0;
  if (reports) LogInfo("{}", setup.ToString());
  TrainReport report(setup, arguments.json);
  if (arguments.dry_run) {
    report.Plan(open.live->plan());
    return Status::Ok();
  }
  StreamStats last_epoch;
  ProgressBar bar;
  TrainCallbacks callbacks;
  callbacks.progress = [&](std::string_view phase, uint64_t done, uint64_t total) -> Status {
    if (Interrupted()) {
      return MakeStatus(Code::kCancelled, "interrupted in {} after {} of {} batches", phase, done, total);
    }
    if (reports) bar.Show(phase, done, total, " batches");
    return Status::Ok();
  };
  callbacks.epoch = [&](const EpochReport& epoch) {
    bar.Clear();
    if (reports) report.Epoch(epoch);
    last_epoch = epoch.stats;
    return Status::Ok();
  };
  QUARRY_TRY(const TrainSummary summary, Train(*open.road, arguments.train, callbacks, setup.run, trainers));
  bar.Clear();
  if (reports) report.Summary(summary);
  open.road.reset();
  return source.Remember(last_epoch);
}

void AddModelOptions(CLI::App* verb, NodeArguments& arguments) {
  TrainOptions& train = arguments.train;
  for (const ModelField& field : ModelFields()) {
    const auto take = [&train, &field](const std::string& text) { field.take(text, train.spec); };
    const auto check = [&field](const std::string& text) {
      ModelSpec spec;
      return field.take(text, spec) ? std::string() : fmt::format("'{}' is not {}", text, field.values);
    };
    // As CLI11 describes its own lists of names: completion reads them there.
    const std::string names = field.names.empty() ? "" : fmt::format("{{{}}}", fmt::join(field.names, ","));
    verb->add_option_function<std::string>(fmt::format("--{}", field.name), take,
                                           fmt::format("{}: {}", field.help, field.values))
        ->type_name(std::string(field.type))
        ->check(CLI::Validator(check, names))
        ->default_str(field.text(train.spec));
  }
  constexpr double kHopsMax = NeighborSampler::kHopsMax;
  static const std::string layers_words = fmt::format("a number of layers from 1 to {}", kHopsMax);
  verb->add_option("--layers", train.layers, "one per hop; default: as many as fanouts, else 3")
      ->check(WholeFrom(1, kHopsMax, layers_words.c_str(), "3"));
  verb->add_option("--hidden", train.hidden, "width of the hidden layers")
      ->check(WholeFrom(1, 65536, "a width from 1 to 65536", "256"))
      ->capture_default_str();
  verb->add_option("--epochs", train.epochs, "passes over the training nodes, at most")
      ->check(WholeFrom(1, kUint32Max, "a number of epochs from 1 on", "10"))
      ->capture_default_str();
  verb->add_option("--patience", train.patience,
                   "stop after so many epochs without a better validation metric; 0: never")
      ->capture_default_str();
  const CLI::Validator share =
      NumberIn({.max = 1, .max_included = false, .words = "a share from 0 to below 1", .example = "0.5"});
  verb->add_option("--lr", train.learning_rate, "Adam's learning rate")
      ->check(NumberIn({.min_included = false, .words = "a learning rate above 0", .example = "0.003"}))
      ->capture_default_str();
  AddChoice(verb, "--schedule", train.schedule,
            "the learning rate from epoch to epoch: constant; cosine, which falls to 0; step, a tenth every "
            "so many epochs");
  verb->add_option(
          "--schedule-epochs", train.schedule_epochs,
          "cosine: epochs in which it falls (default --epochs); step: epochs from one step to the next "
          "(default a third of --epochs)")
      ->check(WholeFrom(1, kUint32Max, "a number of epochs from 1 on", "10"));
  verb->add_option("--dropout", train.dropout, "of hidden activations")->check(share)->capture_default_str();
  verb->add_option("--input-dropout", train.input_dropout, "of the first layer's inputs")
      ->check(share)
      ->capture_default_str();
  verb->add_option("--weight-decay", train.weight_decay, "L2 penalty, as Adam takes it")
      ->check(NumberIn({.words = "a penalty of 0 or more", .example = "0.0005"}))
      ->capture_default_str();
  AddChoice(verb, "--normalize-features", train.row_norm, RowNorms(),
            "scale each feature row to norm 1 as it is gathered (default none)");
  verb->add_option("--seed", train.seed, "of weights, order, samples and dropout")->capture_default_str();
}

Status FinishSchedule(LearningSchedule schedule, uint32_t epochs, uint32_t& schedule_epochs) {
  if (schedule == LearningSchedule::kConstant) {
    if (schedule_epochs == 0) return Status::Ok();
    return Status(Code::kUsage, "--schedule-epochs is of --schedule cosine and step, and this is constant");
  }
  const bool falls = schedule == LearningSchedule::kCosine;
  if (schedule_epochs == 0) schedule_epochs = falls ? epochs : (epochs - 1) / 3 + 1;
  return Status::Ok();
}

Status CheckModelOptions(const CLI::App& verb, const ModelSpec& spec) {
  for (const ModelField& field : ModelFields()) {
    if (field.IsOf(spec.model) || verb.count(fmt::format("--{}", field.name)) == 0) continue;
    return MakeStatus(Code::kUsage, "--{} is of --model {}, and this is --model {}", field.name,
                      field.Owners(), quarry::NameOf(spec.model));
  }
  return Status::Ok();
}

}  // namespace quarry::cli
