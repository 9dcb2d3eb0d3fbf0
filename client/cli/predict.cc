// quarry predict DB: what a trained model says of nodes, as an array or as a table of the database.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "cli.h"
#include "layout_options.h"
#include "npy_file.h"
#include "opened_store.h"
#include "option_values.h"
#include "predict_output.h"
#include "predict_report.h"
#include "predict_rollout.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/storage/times.h"
#include "quarry/trainer/predict.h"
#include "remote_road.h"
#include "remote_states.h"
#include "server_address.h"
#include "train_node.h"
#include "train_run.h"
#include "train_targets.h"
#include "train_types.h"

namespace quarry::cli {
namespace {

enum class What : uint8_t { kClasses, kScores, kValues, kEmbeddings };
enum class Inference : uint8_t { kSampled, kLayers };

struct PredictArguments {
  std::string path, run = "node", split, nodes, out, ids, table, memory;
  LayoutFlags road;  // what differs from the run's
  bool has_fanouts = false, has_batch_size = false;
  std::optional<What> what;  // nothing: what the run's task tells
  Inference inference = Inference::kSampled;
  RolloutSpec rollout;
  unsigned torch_threads = 0;
  bool overwrite = false;
  bool json = false;
};

class Prediction {
 public:
  explicit Prediction(PredictArguments& arguments) : arguments_(arguments) {}

  Result<PredictReport> Run() {
    QUARRY_TRY(store_, OpenStore(arguments_.path, arguments_.memory, MemoryLimitBytes()));
    QUARRY_TRY(manifest_, ManifestOf(*store_, arguments_.path));
    states_ = StatesOf(*store_, arguments_.path);
    QUARRY_TRY(const TrainedShape shape, ShapeOfRun(manifest_, *states_, arguments_.run));
    trained_ = shape.trained;
    QUARRY_TRY(what_, WhatIsTold());
    QUARRY_RETURN_IF_ERROR(Merge());
    QUARRY_TRY(const MemoryBudget::Reservation target_room, OpenTargetsToJudge());
    QUARRY_RETURN_IF_ERROR(TakeDegrees(*store_, manifest_.node_count, spec_.direction, trained_.train));
    QUARRY_RETURN_IF_ERROR(AskForEdges(trained_.train.spec, store_->database() == nullptr, spec_));
    if (trained_.train.spec.looks_at_edges() && !by_layers()) {
      Database* const database = store_->database();
      QUARRY_RETURN_IF_ERROR(database == nullptr ? TakeKindsOf(*store_, manifest_, spec_, trained_.train)
                                                 : TakeKinds(*database, spec_, trained_.train));
      if (database != nullptr) {
        QUARRY_RETURN_IF_ERROR(TakeWeights(*database, spec_.topology, trained_.train));
      }
    }
    QUARRY_TRY(predictor_,
               Predictor::Open(*states_, arguments_.run, trained_.train, shape.feature_dim, by_layers()));
    if (what_ == What::kEmbeddings && predictor_->width(PredictedRows::kEmbeddings) == 0) {
      return MakeStatus(Code::kUsage,
                        "run \"{}\" has one layer, and below it are the features themselves: there are "
                        "no embeddings",
                        arguments_.run);
    }
    if (arguments_.rollout.steps > 0) return RollOutAll(shape.feature_dim);
    if (by_layers()) {
      QUARRY_RETURN_IF_ERROR(CheckLayers());
      QUARRY_TRY(snapshot_, store_->TakeSnapshot());
      QUARRY_TRY(properties_, LookUpProperties(*store_, *snapshot_));
    } else {
      QUARRY_RETURN_IF_ERROR(CheckMemory(shape.feature_dim));
      QUARRY_RETURN_IF_ERROR(OpenRoad());
      QUARRY_RETURN_IF_ERROR(CheckEdgesStayed(*store_, arguments_.path, manifest_, spec_, trained_.train));
    }
    QUARRY_TRY(std::vector<NodeId> nodes, Nodes());
    QUARRY_RETURN_IF_ERROR(WriteIds(nodes));
    QUARRY_TRY(const std::unique_ptr<PredictOutput> output, OpenOutput(nodes.size()));
    QUARRY_RETURN_IF_ERROR(by_layers() ? PredictLayers(nodes, *output) : PredictAll(nodes, *output));
    QUARRY_RETURN_IF_ERROR(output->Finish());
    if (ids_) QUARRY_RETURN_IF_ERROR(ids_->Finish());
    return report_;
  }

  uint64_t width() const { return what_ == What::kClasses ? 1 : predictor_->width(Rows()); }

 private:
  bool by_layers() const { return arguments_.inference == Inference::kLayers; }

  // What values are held against, while the table is there; and room for them beside a road.
  Result<MemoryBudget::Reservation> OpenTargetsToJudge() {
    const std::string& target = trained_.target;
    const uint64_t bytes = TargetRoom(manifest_, target, spec_.batch_size);
    if (trained_.train.task != NodeTask::kRegression || bytes == 0) return MemoryBudget::Reservation();
    QUARRY_TRY(trained_.train.targets, OpenTargets(*store_, manifest_, target));
    if (store_->database() == nullptr) return MemoryBudget::Reservation();
    return store_->database()->budget().Reserve(bytes, "targets of batches");
  }

  // Each task has its own answer.
  Result<What> WhatIsTold() const {
    const NodeTask task = trained_.train.task;
    const What own = task == NodeTask::kClasses      ? What::kClasses
                     : task == NodeTask::kRegression ? What::kValues
                                                     : What::kScores;
    const What asked = arguments_.what.value_or(own);
    if (asked == own || asked == What::kEmbeddings) return asked;
    if (asked == What::kScores && task == NodeTask::kClasses) return asked;
    return MakeStatus(Code::kUsage, "run \"{}\" has the task {}, which tells {}: leave --what out",
                      arguments_.run, quarry::NameOf(task),
                      task == NodeTask::kClasses      ? "classes and their scores"
                      : task == NodeTask::kRegression ? "values"
                                                      : "the score of each label");
  }

  PredictedRows Rows() const {
    return what_ == What::kEmbeddings ? PredictedRows::kEmbeddings : PredictedRows::kScores;
  }

  // The run's samples, but for what was asked for.
  Status Merge() {
    spec_ = trained_.road;
    const RoadSpec& asked = arguments_.road.road;
    if (arguments_.has_batch_size) spec_.batch_size = asked.batch_size;
    if (arguments_.has_fanouts) spec_.fanouts = asked.fanouts;
    if (spec_.fanouts.size() != trained_.train.layers) {
      return MakeStatus(Code::kUsage,
                        "run \"{}\" has {} layers and takes a fanout for each, but --fanout gives {}",
                        arguments_.run, trained_.train.layers, spec_.fanouts.size());
    }
    spec_.seed = trained_.train.seed;
    QUARRY_RETURN_IF_ERROR(AskByType(manifest_, trained_.train.spec, spec_.fanouts, spec_));
    QUARRY_TRY(const uint64_t feature_bytes, FeatureBytes(manifest_, spec_));
    QUARRY_TRY(spec_.cache_bytes, ParseCache(arguments_.road.cache, feature_bytes));
    trained_.train.torch_threads = arguments_.torch_threads > 0 ? arguments_.torch_threads : ProcessorCount();
    return Status::Ok();
  }

  Status CheckLayers() const {
    if (store_->database() == nullptr) {
      return MakeStatus(Code::kUsage,
                        "{}: --inference layers reads the database's files, and a server has them open: give "
                        "its folder once the server is gone, or leave the option out",
                        arguments_.path);
    }
    return CheckAllNeighbors(fmt::format("run \"{}\"", arguments_.run), "--inference layers",
                             trained_.train.spec, spec_);
  }

  Status CheckMemory(uint32_t feature_dim) const {
    const uint64_t bytes =
        EstimateTrainerBytes(trained_.train, feature_dim, predictor_->class_count(),
                             BoundBlock(spec_.batch_size, spec_.fanouts, manifest_.node_count));
    if (bytes <= MemoryLimitBytes()) return Status::Ok();
    return MakeStatus(
        Code::kOutOfBudget,
        "predicting would take {} for the model's work, and the machine or cgroup allows {}: lower "
        "--batch-size or --fanout",
        FormatBytes(bytes), FormatBytes(MemoryLimitBytes()));
  }

  // --steps: all places at once, from the database's files.
  Result<PredictReport> RollOutAll(uint32_t feature_dim) {
    Database* const database = store_->database();
    if (database == nullptr) {
      return MakeStatus(
          Code::kUsage,
          "{}: --steps reads the database's files, and a server has them open: give its folder once "
          "the server is gone",
          arguments_.path);
    }
    QUARRY_RETURN_IF_ERROR(RolloutLag(manifest_, trained_, arguments_.rollout).status());
    spec_.batch_size = static_cast<uint32_t>(TimesOf(manifest_, spec_.topology).places);
    QUARRY_RETURN_IF_ERROR(CheckMemory(feature_dim));
    report_.nodes = arguments_.rollout.steps * spec_.batch_size;
    QUARRY_TRY(NpyFile out, NpyFile::Create(arguments_.out, ElementType::kFloat32, report_.nodes, width()));
    ProgressBar bar;
    QUARRY_TRY(report_.steps,
               RollOut(*database, trained_, spec_, *predictor_, arguments_.rollout, out, [&](uint64_t done) {
                 bar.Show("rolling out", done, arguments_.rollout.steps, " steps");
                 return Interrupted() ? Status(Code::kCancelled, "interrupted; nothing was written")
                                      : Status::Ok();
               }));
    QUARRY_RETURN_IF_ERROR(out.Finish());
    return report_;
  }

  Status OpenRoad() {
    QUARRY_TRY(snapshot_, store_->TakeSnapshot());
    QUARRY_TRY(NodeProperties properties, LookUpProperties(*store_, *snapshot_));
    wire::OpenStream request;
    request.road = spec_;
    request.snapshot = snapshot_->id();
    QUARRY_TRY(std::unique_ptr<client::Stream> stream, store_->OpenStream(request));
    road_ = std::make_unique<RemoteRoad>(std::move(stream), std::move(properties));
    return Status::Ok();
  }

  Result<std::vector<NodeId>> Nodes() const {
    if (!arguments_.nodes.empty()) return ReadNodes(arguments_.nodes, manifest_.node_count);
    if (!arguments_.split.empty()) {
      const Split split = arguments_.split == "train"   ? Split::kTrain
                          : arguments_.split == "valid" ? Split::kValid
                                                        : Split::kTest;
      std::vector<NodeId> nodes = road_ ? road_->SplitNodes(split) : properties_.SplitNodes(split);
      if (nodes.empty()) {
        return MakeStatus(Code::kInvalidArgument, "{}: no node is in the split {}", arguments_.path,
                          arguments_.split);
      }
      return nodes;
    }
    std::vector<NodeId> nodes(manifest_.node_count);
    std::iota(nodes.begin(), nodes.end(), NodeId{0});
    return nodes;
  }

  Status WriteIds(std::span<const NodeId> nodes) {
    if (arguments_.ids.empty()) return Status::Ok();
    QUARRY_TRY(NpyFile file, NpyFile::Create(arguments_.ids, ElementType::kInt64, nodes.size()));
    ids_.emplace(std::move(file));
    return Status::Ok();
  }

  Result<std::unique_ptr<PredictOutput>> OpenOutput(uint64_t rows) {
    if (arguments_.table.empty()) {
      const bool classes = what_ == What::kClasses;
      QUARRY_TRY(NpyFile file,
                 NpyFile::Create(arguments_.out, classes ? ElementType::kInt64 : ElementType::kFloat32, rows,
                                 classes ? 0 : width()));
      return std::unique_ptr<PredictOutput>(MakeArrayOutput(std::move(file), classes));
    }
    if (arguments_.overwrite && manifest_.FindEmbedding(arguments_.table) != nullptr) {
      QUARRY_RETURN_IF_ERROR(store_->DropEmbeddings(arguments_.table));
    }
    // Rows that nobody writes are zeros.
    QUARRY_RETURN_IF_ERROR(store_->CreateEmbeddings(arguments_.table, {.row_count = manifest_.node_count,
                                                                       .dim = static_cast<uint32_t>(width()),
                                                                       .optimizer = OptimizerKind::kSgd,
                                                                       .init_scale = 0}));
    return std::unique_ptr<PredictOutput>(MakeTableOutput(*store_, arguments_.table, arguments_.run));
  }

  // In pieces of whole batches, as large as a request of the store may be.
  Status PredictAll(std::span<const NodeId> nodes, PredictOutput& output) {
    QUARRY_TRY(const wire::Description description, store_->Describe());
    const bool by_name = !arguments_.split.empty();  // such a request names the split
    const uint64_t piece =
        by_name ? nodes.size()
                : std::max<uint64_t>(spec_.batch_size,
                                     description.limits.ids_max / spec_.batch_size * spec_.batch_size);
    ProgressBar bar;
    for (uint64_t begin = 0; begin < nodes.size(); begin += piece) {
      const auto part = nodes.subspan(begin, std::min<uint64_t>(piece, nodes.size() - begin));
      QUARRY_RETURN_IF_ERROR(predictor_->Predict(
          *road_, {part.begin(), part.end()}, Rows(),
          [&](std::span<const NodeId> told, std::span<const float> rows) { return Take(told, rows, output); },
          [&](uint64_t, uint64_t) -> Status {
            bar.Show("predicting", report_.nodes, nodes.size(), " nodes");
            if (!Interrupted()) return Status::Ok();
            return MakeStatus(Code::kCancelled, "interrupted after {} of {} nodes; nothing was written",
                              report_.nodes, nodes.size());
          }));
    }
    return Status::Ok();
  }

  // Rows come by ascending nodes; those of a list in another order stay in memory until all are there.
  Status PredictLayers(std::span<const NodeId> nodes, PredictOutput& output) {
    Database& database = *store_->database();
    const uint64_t width = predictor_->width(Rows());
    std::vector<size_t> order(nodes.size());
    std::iota(order.begin(), order.end(), 0);
    const bool ascends = std::ranges::is_sorted(nodes);
    if (!ascends) std::ranges::sort(order, {}, [&](size_t i) { return nodes[i]; });
    QUARRY_TRY(const auto reserved,
               database.budget().Reserve(ascends ? 0 : nodes.size() * width * sizeof(float),
                                         "rows in the order of --nodes, which does not ascend"));
    std::vector<float> held(ascends ? 0 : nodes.size() * width);
    std::vector<NodeId> some;
    std::vector<float> of_them;
    size_t next = 0;
    ProgressBar bar;
    QUARRY_TRY(report_.pass,
               predictor_->PredictGraph(
                   {.store = database.store(),
                    .budget = database.budget(),
                    .feature_table = spec_.feature_table,
                    .topology = spec_.topology,
                    .direction = spec_.direction},
                   Rows(),
                   [&](std::span<const NodeId> told, std::span<const float> rows) -> Status {
                     some.clear();
                     of_them.clear();
                     for (size_t i = 0; i < told.size() && next < order.size(); ++i) {
                       if (nodes[order[next]] != told[i]) continue;
                       const auto row = rows.subspan(i * width, width);
                       if (!ascends) std::ranges::copy(row, held.begin() + order[next] * width);
                       some.push_back(told[i]);
                       of_them.insert(of_them.end(), row.begin(), row.end());
                       ++next;
                     }
                     return ascends && !some.empty() ? Take(some, of_them, output) : Status::Ok();
                   },
                   [&](uint64_t done, uint64_t total) -> Status {
                     bar.Show("predicting", done, total, " rows");
                     if (!Interrupted()) return Status::Ok();
                     return MakeStatus(Code::kCancelled,
                                       "interrupted after {} of {} rows; nothing was written", done, total);
                   }));
    return ascends ? Status::Ok() : Take(nodes, held, output);
  }

  Status Take(std::span<const NodeId> nodes, std::span<const float> rows, PredictOutput& output) {
    report_.nodes += nodes.size();
    if (ids_) {
      const std::vector<int64_t> numbers(nodes.begin(), nodes.end());
      QUARRY_RETURN_IF_ERROR(ids_->Append(std::as_bytes(std::span(numbers))));
    }
    if (what_ == What::kEmbeddings) return output.Append(nodes, rows);
    if (trained_.train.task != NodeTask::kClasses) {
      TargetRows* const targets = trained_.train.targets.get();  // null: the table is gone
      if (targets != nullptr) QUARRY_RETURN_IF_ERROR(report_.errors.Add(*targets, nodes, rows));
      return output.Append(nodes, rows);
    }
    const std::span<const int64_t> labels = road_ ? road_->labels() : properties_.labels;
    const size_t width = predictor_->class_count();
    std::vector<float> classes;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto row = rows.subspan(i * width, width);
      classes.push_back(static_cast<float>(std::ranges::max_element(row) - row.begin()));
      if (labels.empty() || labels[nodes[i]] < 0) continue;
      ++report_.labelled;
      report_.correct += static_cast<int64_t>(classes.back()) == labels[nodes[i]] ? 1 : 0;
    }
    return output.Append(nodes, what_ == What::kClasses ? std::span<const float>(classes) : rows);
  }

  PredictArguments& arguments_;
  std::unique_ptr<client::Store> store_;  // goes last
  Manifest manifest_;
  std::unique_ptr<TrainingStates> states_;
  TrainedNode trained_;
  What what_ = What::kClasses;
  RoadSpec spec_;
  std::unique_ptr<Predictor> predictor_;
  std::unique_ptr<client::Snapshot> snapshot_;
  std::unique_ptr<RemoteRoad> road_;  // null by layers
  NodeProperties properties_;         // by layers
  std::optional<NpyFile> ids_;
  PredictReport report_;
};

Status CheckArguments(const PredictArguments& arguments) {
  if (arguments.out.empty() == arguments.table.empty()) {
    return Status(Code::kUsage, "predictions go to a file or to a table: give one of --out and --table");
  }
  if (arguments.overwrite && arguments.table.empty()) {
    return Status(Code::kUsage, "--overwrite is about tables: a file is replaced in any case; leave it out");
  }
  return ParseCache(arguments.road.cache, 1024 * kGiB).status();  // the features' size comes later
}

Status RunPredict(PredictArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckArguments(arguments));
  const double start = MonotonicSeconds();
  Prediction prediction(arguments);
  QUARRY_TRY(const PredictReport report, prediction.Run());
  const double seconds = MonotonicSeconds() - start;
  PrintPredictions(
      report,
      {.run = arguments.run, .path = arguments.out, .table = arguments.table, .columns = prediction.width()},
      seconds, arguments.json);
  return Status::Ok();
}

}  // namespace

void AddPredict(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("predict", kPredictDescription);
  auto arguments = std::make_shared<PredictArguments>();
  const auto sampled_only = std::make_shared<std::vector<CLI::Option*>>();
  verb->add_option("DB", arguments->path, kAddressHelp)->required();
  verb->add_option("--run", arguments->run, "the training run whose model predicts (quarry train --run)")
      ->type_name("NAME")
      ->capture_default_str();
  CLI::Option* const split =
      verb->add_option("--split", arguments->split, "its nodes, ascending (default: all nodes)")
          ->type_name("NAME")
          ->check(CLI::IsMember({"train", "valid", "test"}));
  verb->add_option("--nodes", arguments->nodes,
                   "file with the nodes, in the order of the rows: .npy, .npz, .csv")
      ->type_name("FILE")
      ->excludes(split);
  AddChoice<std::optional<What>>(
      verb, "--what", arguments->what,
      {{"classes", What::kClasses},
       {"scores", What::kScores},
       {"values", What::kValues},
       {"embeddings", What::kEmbeddings}},
      "the likeliest class (default), the probability of each class or label, the values of regression "
      "(default there), or what the last layer is given");
  AddChoice<Inference>(verb, "--inference", arguments->inference,
                       {{"sampled", Inference::kSampled}, {"layers", Inference::kLayers}},
                       "over sampled neighbors (default), or layer by layer over all nodes and all of their "
                       "neighbors, out of core");
  verb->add_option("--out", arguments->out,
                   ".npy to write, a row for each node; classes are a vector of int64")
      ->type_name("FILE");
  verb->add_option("--ids", arguments->ids, ".npy to write beside it: the node of each row")
      ->type_name("FILE");
  verb->add_option(
          "--table", arguments->table,
          "table of embeddings to make in the database, whose row is the node; the rows of others are zeros")
      ->type_name("NAME");
  verb->add_flag("--overwrite", arguments->overwrite, "replace the table where there is one");
  CLI::Option* const fanouts =
      verb->add_option("--fanout", arguments->road.road.fanouts,
                       "neighbors a hop, from the nodes outwards (default: the run's)")
          ->delimiter(',')
          ->check(FanoutRange());
  CLI::Option* const batch_size = verb->add_option("--batch-size", arguments->road.road.batch_size,
                                                   "nodes at a time (default: the run's)")
                                      ->check(WholeFrom(1, 1e12, "a number of nodes from 1 on", "1024"));
  CLI::Option* const cache =
      verb->add_option("--cache", arguments->road.cache,
                       "rows that stay in memory: a size, or a share of the feature bytes; auto: 10%")
          ->capture_default_str();
  for (CLI::Option* const sampled : {fanouts, batch_size, cache}) sampled_only->push_back(sampled);
  CLI::Option* const steps =
      verb->add_option(
              "--steps", arguments->rollout.steps,
              "of a database with times: predict all places so many times, each time from what was "
              "predicted before (--target TABLE@+LAG); rows are those of the first step, the second and "
              "so on")
          ->check(WholeFrom(1, 1e6, "a number of steps from 1 on", "8"));
  verb->add_option("--time", arguments->rollout.time, "that --steps begin at, from 0")
      ->capture_default_str()
      ->needs(steps);
  for (const char* const other :
       {"--split", "--nodes", "--what", "--inference", "--ids", "--table", "--batch-size", "--cache"}) {
    steps->excludes(verb->get_option(other));
  }
  verb->add_option("--memory", arguments->memory,
                   "cap on what the engine holds (default 80% of what the machine or cgroup allows)");
  verb->add_option("--torch-threads", arguments->torch_threads, "of LibTorch; default: processors");
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->footer(
      "Neighbors are sampled as in training's test, or, by layers, all of them. A run is kept by `quarry "
      "train --run NAME`; SQL searches "
      "a table:\n"
      "ORDER BY vec_l2(vector, ?).\n"
      "Example: quarry predict db/ --run sage --split test --out classes.npy --ids nodes.npy\n"
      "         quarry predict db/ --run sage --what embeddings --table sage-vectors\n"
      "         quarry predict weather.db --run forecast --time 1800 --steps 8 --out forecast.npy");
  verb->callback([arguments, fanouts, batch_size, sampled_only, &action] {
    arguments->has_fanouts = fanouts->count() > 0;
    arguments->has_batch_size = batch_size->count() > 0;
    action = [arguments, sampled_only]() -> Status {
      for (const CLI::Option* const option : *sampled_only) {
        if (arguments->inference == Inference::kSampled || option->count() == 0) continue;
        return MakeStatus(Code::kUsage, "{} is of --inference sampled: leave one of the two out",
                          option->get_name());
      }
      return RunPredict(*arguments);
    };
  });
}

}  // namespace quarry::cli
