#include <malloc.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli.h"
#include "config_file.h"
#include "layout_options.h"
#include "option_values.h"
#include "quarry/database.h"
#include "quarry/format/fanouts.h"
#include "quarry/objects/place.h"
#include "quarry/objects/thin_database.h"
#include "quarry/server/server.h"
#include "quarry/trainer/train.h"
#include "server_address.h"
#include "train_choice.h"
#include "train_link.h"
#include "train_node.h"
#include "train_targets.h"
#include "usage.h"

namespace quarry::cli {
namespace {

struct TrainArguments {
  NodeArguments node;
  std::string task = "node";
  std::string loss;    // one of the task's; empty: its default
  LinkArguments link;  // for --task link, beside the options that both tasks have
};

// kUsage for a loss of another task than that of `train`.
Status TakeLoss(const std::string& loss, TrainOptions& train) {
  if (loss.empty()) return Status::Ok();
  if (train.task != NodeTask::kRegression) {
    return MakeStatus(Code::kUsage, "--loss is of --task regress and link, and this is --task {}",
                      quarry::NameOf(train.task));
  }
  QUARRY_TRY(train.regression_loss, ParseName<RegressionLoss>(loss));
  return Status::Ok();
}

// Hop h samples 10 + 5 h neighbors, at most 20: 10,15,20 for three layers.
std::vector<uint32_t> DefaultFanouts(uint32_t layers) {
  std::vector<uint32_t> fanouts;
  for (uint32_t hop = 0; hop < layers; hop++) fanouts.push_back(std::min(20U, 10 + 5 * hop));
  return fanouts;
}

// LibTorch allocates and frees megabytes for a moment, from several threads. Few arenas and a fixed threshold
// give them back to the system instead of keeping the largest of each.
void TuneMalloc() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_TRIM_THRESHOLD, 16 << 20);
}

// A database without a server gets one, for as long as the workers run.
Status TrainWithWorkers(NodeArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckCommunicator());
  QUARRY_TRY(const std::unique_ptr<WorkerFolder> folder, WorkerFolder::Make());
  const uint32_t count = arguments.workers.count;
  if (IsServerAddress(arguments.path)) return RunWorkers(count, arguments.path, 0, *folder);
  QUARRY_TRY(const OpenedDatabase opened, OpenWithMemory(arguments, arguments.path));
  Database& database = *opened.store->database();
  QUARRY_TRY(const std::unique_ptr<Server> server,
             Server::Start(database.store(), database.budget(), {.socket_path = folder->path() + "/socket"}));
  QUARRY_RETURN_IF_ERROR(RunWorkers(count, std::string(client::kServerScheme) + server->socket_path(),
                                    database.budget().limit_bytes(), *folder));
  return server->Stop();
}

Status TrainAlone(NodeArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<TrainingSource> source, OpenTrainingSource(arguments));
  return TrainFrom(*source, arguments);
}

// What goes with a database in an object store, and what does not.
Status CheckStoreOptions(const NodeArguments& arguments) {
  const bool in_store = IsObjectAddress(arguments.path) || IsThin(arguments.path);
  if (!arguments.cache_folder.empty() && !in_store) {
    return MakeStatus(
        Code::kUsage,
        "--cache-dir keeps what comes from an object store, and {} is no database there: leave it out",
        arguments.path);
  }
  if (!arguments.cache_folder.empty() && arguments.cache_size.empty()) {
    return Status(Code::kUsage, "--cache-dir needs --cache-size: how much the folder may take");
  }
  if (!arguments.cache_size.empty()) {
    QUARRY_RETURN_IF_ERROR(ParseSize("--cache-size", arguments.cache_size, 0).status());
  }
  if (!in_store || arguments.workers.count <= 1) return Status::Ok();
  return MakeStatus(
      Code::kUsage,
      "--workers share the batches of a server's road, which has passes of validation, and {} is in an "
      "object store, which does not serve them: train with one, or bring it here (quarry pull)",
      arguments.path);
}

// --eval layers reads a database of this process, whatever road it trains on.
Status CheckEvalLayers(const NodeArguments& arguments, bool remote) {
  if (remote) {
    return Status(Code::kUsage,
                  "--eval layers reads the database's files, and a server has them open: train on the "
                  "database itself, by one trainer");
  }
  if (arguments.parts) {
    return Status(
        Code::kUsage,
        "--eval layers looks up labels and splits of all nodes, and --road partitioned holds nothing "
        "of each node: take another road");
  }
  const Status all =
      CheckAllNeighbors("this training", "--eval layers", arguments.train.spec, arguments.plan_flags.road);
  return all.ok() ? all : Status(Code::kUsage, std::string(all.message()));
}

// One trainer, or whoever starts several of a server's.
Status TrainNode(const CLI::App& verb, NodeArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckInlineFlag(arguments.inline_only, arguments.path));
  QUARRY_RETURN_IF_ERROR(CheckStoreOptions(arguments));
  QUARRY_RETURN_IF_ERROR(CheckPlanOptions(verb, arguments));
  TuneMalloc();
  TrainOptions& train = arguments.train;
  RoadSpec& spec = arguments.plan_flags.road;
  if (spec.fanouts.empty()) spec.fanouts = DefaultFanouts(train.layers);
  if (TakesAll(spec.fanouts)) {
    return Status(Code::kUsage, "--fanout all is of encoders (--task link): give numbers for nodes");
  }
  if (spec.fanouts.size() != train.layers) {
    return MakeStatus(Code::kUsage, "--layers {} needs {} fanouts, but --fanout gives {}", train.layers,
                      train.layers, spec.fanouts.size());
  }
  QUARRY_RETURN_IF_ERROR(CheckModel(train.spec, train.layers, train.hidden));
  QUARRY_RETURN_IF_ERROR(FinishSchedule(train.schedule, train.epochs, train.schedule_epochs));
  QUARRY_RETURN_IF_ERROR(CheckTarget(train.task, arguments.target));
  if (train.task != NodeTask::kClasses && arguments.parts) {
    return Status(Code::kUsage,
                  "--road partitioned brings labels with nodes and no other targets: take another road");
  }
  if (train.spec.needs_degrees() && arguments.parts) {
    return Status(
        Code::kUsage,
        "--gcn-norm both holds a number for each node of the graph, and --road partitioned holds nothing "
        "of each node: take another road, or --gcn-norm right");
  }
  const bool remote = arguments.workers.count > 1 || IsServerAddress(arguments.path);
  QUARRY_RETURN_IF_ERROR(AskForEdges(train.spec, remote, spec));
  if (train.spec.looks_at_edges() && arguments.parts) {
    return MakeStatus(
        Code::kUsage,
        "{} asks which edges a batch has, and --road partitioned does not say so: take another road",
        EdgeOption(train.spec));
  }
  if (arguments.eval_layers) QUARRY_RETURN_IF_ERROR(CheckEvalLayers(arguments, remote));
  spec.seed = train.seed;
  arguments.road.spec = spec;
  train.torch_threads = arguments.torch_threads;
  if (const int status_fd = arguments.workers.status_fd; status_fd >= 0) {
    QUARRY_RETURN_IF_ERROR(FollowStarter(status_fd));
    return TellStarter(status_fd, TrainAlone(arguments));
  }
  if (remote) QUARRY_RETURN_IF_ERROR(CheckRemoteOptions(verb, arguments));
  return arguments.workers.count > 1 ? TrainWithWorkers(arguments) : TrainAlone(arguments);
}

void AddEngineOptions(CLI::App* verb, NodeArguments& arguments) {
  LiveRoadOptions& road = arguments.road;
  using Placement = LiveRoadOptions::TopologyPlacement;
  verb->add_option(
          "--fanout", arguments.plan_flags.road.fanouts,
          "neighbors a hop, from the seeds outwards (default 10,15,20; link: 20, and all for all of them)")
      ->delimiter(',')
      ->transform(FanoutRangeOrAll());
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
  CLI::Option* const folder = verb->add_option("--cache-dir", arguments.cache_folder,
                                               "of a database in an object store: keep what was fetched in "
                                               "this folder, on a disk here, for other "
                                               "epochs, runs and processes (default: QUARRY_CACHE_DIR)")
                                  ->type_name("DIR");
  verb->add_option("--cache-size", arguments.cache_size, "the most that --cache-dir takes: 500GB")
      ->type_name("SIZE")
      ->needs(folder);
  verb->add_flag("--ordered", arguments.train.ordered,
                 "batches in order: one seed, the same losses to the last bit for any --threads");
}

}  // namespace

void HandOver(int /*argc*/, char** /*argv*/) {}  // this program trains

void AddTrain(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("train", kTrainDescription);
  auto arguments = std::make_shared<TrainArguments>();
  NodeArguments& node = arguments->node;
  verb->add_option("DB", node.path,
                   "database folder, unix:PATH of a server's socket (quarry serve), or s3://BUCKET/PREFIX "
                   "(quarry push)")
      ->required();
  verb->add_option("--task", arguments->task,
                   "node: classes of nodes, by a GNN; regress: numbers of nodes; multilabel: any of several "
                   "labels; link: edges, by vectors")
      ->type_name("NAME")
      ->check(CLI::IsMember({"node", "regress", "multilabel", "link"}))
      ->capture_default_str();
  verb->add_option("--target", node.target,
                   "regress, multilabel: the table whose row of a node is learned; TABLE@+LAG: the row so "
                   "many further on")
      ->type_name("TABLE");
  verb->add_option(
          "--loss", arguments->loss,
          "regress: of an output's error (default mse); link: of an edge's score against its negatives' "
          "(default softmax)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"mse", "huber", "mae", "softmax", "margin"}));
  AddInlineFlag(verb, node.inline_only);
  AddModelOptions(verb, node);
  AddEngineOptions(verb, node);
  verb->add_option("--layout", node.layout, "train from this packed layout (quarry layout build)")
      ->type_name("NAME");
  verb->add_flag("--plan", node.plan,
                 "build the layout if it is missing, then train from it: --road planned");
  verb->add_flag(
      "--newest", node.newest,
      "of a server's database: each epoch trains on the nodes, edges and labels that there are when it "
      "begins");
  AddRoadChoice(verb, node, arguments->link.partitioned);
  node.plan_flags.AddPlanOptions(verb);
  AddChoice<bool>(verb, "--resample", node.resample, {{"never", false}, {"every-epoch", true}},
                  "with --plan: repeat the planned epochs (default), or sample and plan every epoch anew "
                  "while the one before trains, packed or not, whichever is cheaper");
  AddChoice<bool>(
      verb, "--eval", node.eval_layers, {{"sampled", false}, {"layers", true}},
      "validation and test by samples (default), or by all neighbors of all nodes, layer by layer and "
      "out of core, as `quarry predict --inference layers`, in a quarter of --memory");
  verb->add_flag("--json", node.json,
                 "one JSON object per epoch on stdout, then {\"summary\": {...}}, and nothing else there");
  node.run.AddTo(verb);
  node.workers.AddTo(verb);
  verb->add_flag(
      "--dry-run", node.dry_run,
      "say which road would be taken, why, and the least memory that it needs, or how --layout would "
      "divide it; train nothing");
  for (const ModelField& field : ModelFields()) {
    GroupOptions(*verb, "Model", {fmt::format("--{}", field.name).c_str()});
  }
  GroupOptions(
      *verb, "Model",
      {"--layers", "--hidden", "--epochs", "--patience", "--lr", "--schedule", "--schedule-epochs",
       "--dropout", "--input-dropout", "--weight-decay", "--normalize-features", "--seed", "--from"});
  GroupOptions(*verb, "Batches",
               {"--fanout", "--batch-size", "--direction", "--replace", "--sampler", "--batch-dependency",
                "--weighted", "--eval", "--ordered", "--newest"});
  GroupOptions(*verb, "Memory and threads",
               {"--cache", "--memory", "--topology", "--threads", "--torch-threads", "--inline", "--dry-run",
                "--cache-dir", "--cache-size"});
  GroupOptions(*verb, "Packed layouts",
               {"--road", "--explain", "--layout", "--plan", "--disk", "--epochs-planned", "--policy",
                "--seed-order", "--hash-functions", "--resample", "--superbatch"});
  AddLinkOptions(verb, arguments->link);
  verb->footer(
      "Peak RSS stays under --memory plus an overhead for code and LibTorch's working set, which is "
      "printed.\n"
      "With --task link: --batch-size 1000 edges, --lr 0.05, and --memory shares are of the machine's.\n"
      "Example: quarry train db/ --fanout 10,15,20 --batch-size 1024 --epochs 10 --memory 8GiB --cache 10%\n"
      "         quarry train db/ --task regress --target target --layers 2\n"
      "         quarry train mag/ --model rgcn --layers 2 --fanout 10,10\n"
      "         quarry train kg/ --task link --decoder distmult --dim 50");
  verb->callback([verb, arguments, &action] {
    NodeArguments& given = arguments->node;
    if (given.resample) given.plan = true;
    given.policy_is_given = verb->count("--policy") > 0;
    if (verb->count("--layers") == 0 && !given.plan_flags.road.fanouts.empty()) {
      given.train.layers = static_cast<uint32_t>(given.plan_flags.road.fanouts.size());
    }
    if (arguments->task == "link") {
      arguments->link.train.schedule = given.train.schedule;
      arguments->link.train.schedule_epochs = given.train.schedule_epochs;
      action = [verb, arguments] { return TrainLink(*verb, arguments->link); };
      return;
    }
    action = [verb, arguments] {
      QUARRY_TRY(arguments->node.train.task, ParseName<NodeTask>(arguments->task));
      QUARRY_RETURN_IF_ERROR(CheckTaskOptions(*verb, arguments->task));
      QUARRY_RETURN_IF_ERROR(TakeLoss(arguments->loss, arguments->node.train));
      QUARRY_RETURN_IF_ERROR(CheckModelOptions(*verb, arguments->node.train.spec));
      if (arguments->link.partitioned) TakePartOptions(*verb, arguments->link, arguments->node);
      arguments->node.config = EffectiveConfig(*verb->get_parent());
      return TrainNode(*verb, arguments->node);
    };
  });
}

}  // namespace quarry::cli
