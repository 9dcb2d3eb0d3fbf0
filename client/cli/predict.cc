// quarry predict DB: what a trained model says of nodes, as an array or as a table of the database.
#include <algorithm>
#include <nlohmann/json.hpp>
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
#include "print_json.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/import/dataset.h"
#include "quarry/trainer/predict.h"
#include "remote_road.h"
#include "remote_states.h"
#include "server_address.h"
#include "train_node.h"
#include "train_run.h"

namespace quarry::cli {
namespace {

enum class What : uint8_t { kClasses, kScores, kEmbeddings };

struct PredictArguments {
  std::string path, run = "node", split, nodes, out, ids, table, memory;
  LayoutFlags road;  // what differs from the run's
  bool has_fanouts = false, has_batch_size = false;
  What what = What::kClasses;
  unsigned torch_threads = 0;
  bool overwrite = false;
  bool json = false;
};

struct PredictReport {
  uint64_t nodes = 0;
  uint64_t labelled = 0;  // nodes among them that have a label
  uint64_t correct = 0;   // labelled nodes whose likeliest class it is
};

// The nodes of a file, in its order; each of them once.
Result<std::vector<NodeId>> ReadNodes(const std::string& path, uint64_t node_count) {
  SourceHints hints;
  hints.train = path;  // a list of ids, or a mask
  QUARRY_TRY(const Dataset source, OpenArrays(hints));
  std::vector<NodeId> nodes;
  std::vector<bool> seen(node_count);
  std::vector<int64_t> piece(65536);
  for (;;) {
    QUARRY_TRY(const size_t count, source.train->Read(piece));
    if (count == 0) return nodes;
    for (size_t i = 0; i < count; ++i) {
      const int64_t node = piece[i];
      if (node < 0 || static_cast<uint64_t>(node) >= node_count) {
        return MakeStatus(Code::kInvalidArgument, "{}: node {} is not one of the database's {}",
                          source.train->Position(nodes.size()), node, node_count);
      }
      if (seen[static_cast<size_t>(node)]) {
        return MakeStatus(Code::kInvalidArgument, "{}: node {} occurs twice; name each node once",
                          source.train->Position(nodes.size()), node);
      }
      seen[static_cast<size_t>(node)] = true;
      nodes.push_back(static_cast<NodeId>(node));
    }
  }
}

// Where predictions go, row by row, in the order of the nodes.
class Output {
 public:
  virtual ~Output() = default;
  virtual Status Append(std::span<const NodeId> nodes, std::span<const float> rows) = 0;
  virtual Status Finish() = 0;
};

class ArrayOutput final : public Output {
 public:
  ArrayOutput(NpyFile file, bool classes) : file_(std::move(file)), classes_(classes) {}
  Status Append(std::span<const NodeId> /*nodes*/, std::span<const float> rows) override {
    if (!classes_) return file_.Append(std::as_bytes(rows));
    const std::vector<int64_t> numbers(rows.begin(), rows.end());
    return file_.Append(std::as_bytes(std::span(numbers)));
  }
  Status Finish() override { return file_.Finish(); }

 private:
  NpyFile file_;
  const bool classes_;
};

// Rows become durable together with the run that made them, in the checkpoint that names both.
class TableOutput final : public Output {
 public:
  TableOutput(client::Store& store, std::string table, std::string run)
      : store_(store), table_(std::move(table)), run_(std::move(run)) {}
  // A part of the predictions is worth nothing, and would be kept when the store closes.
  ~TableOutput() override {
    if (finished_) return;
    if (const Status dropped = store_.DropEmbeddings(table_); !dropped.ok()) {
      LogWarn("table \"{}\" is left behind with a part of the rows: {}", table_, dropped.message());
    }
  }

  Status Append(std::span<const NodeId> nodes, std::span<const float> rows) override {
    const size_t width = rows.size() / nodes.size();
    std::vector<size_t> order(nodes.size());  // a block's ids ascend
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](size_t i) { return nodes[i]; });
    std::vector<uint64_t> ids;
    for (const size_t i : order) ids.push_back(nodes[i]);
    QUARRY_TRY(const std::unique_ptr<client::EmbeddingRows> block, store_.ReadEmbeddings(table_, ids));
    float* to = block->arrays().values.data();
    for (const size_t i : order) to = std::ranges::copy(rows.subspan(i * width, width), to).out;
    const client::Store::Update update{.table = table_, .rows = block.get()};
    QUARRY_TRY(const wire::EmbeddingsCommitted committed, store_.CommitEmbeddings(std::span(&update, 1)));
    if (committed.stale_rows == 0) return Status::Ok();
    return MakeStatus(Code::kBusy, "table \"{}\": somebody else writes to it; drop it, and predict again",
                      table_);
  }

  Status Finish() override {
    QUARRY_TRY(const client::Training run, store_.ReadTraining(run_));
    const Status saved = store_
                             .SaveTraining({.name = run_,
                                            .settings = run.settings,
                                            .config = run.config,
                                            .state = run.state,
                                            .with_embeddings = true})
                             .status();
    finished_ = saved.ok();
    return saved;
  }

 private:
  client::Store& store_;
  const std::string table_, run_;
  bool finished_ = false;
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
    QUARRY_RETURN_IF_ERROR(Merge());
    QUARRY_RETURN_IF_ERROR(TakeDegrees(*store_, manifest_.node_count, spec_.direction, trained_.train));
    QUARRY_TRY(predictor_, Predictor::Open(*states_, arguments_.run, trained_.train, shape.feature_dim));
    if (arguments_.what == What::kEmbeddings && predictor_->width(PredictedRows::kEmbeddings) == 0) {
      return MakeStatus(Code::kUsage,
                        "run \"{}\" has one layer, and below it are the features themselves: there are "
                        "no embeddings",
                        arguments_.run);
    }
    QUARRY_RETURN_IF_ERROR(CheckMemory(shape.feature_dim));
    QUARRY_RETURN_IF_ERROR(OpenRoad());
    QUARRY_TRY(std::vector<NodeId> nodes, Nodes());
    QUARRY_RETURN_IF_ERROR(WriteIds(nodes));
    QUARRY_TRY(const std::unique_ptr<Output> output, OpenOutput(nodes.size()));
    QUARRY_RETURN_IF_ERROR(PredictAll(nodes, *output));
    QUARRY_RETURN_IF_ERROR(output->Finish());
    if (ids_) QUARRY_RETURN_IF_ERROR(ids_->Finish());
    return report_;
  }

  uint64_t width() const { return arguments_.what == What::kClasses ? 1 : predictor_->width(Rows()); }

 private:
  PredictedRows Rows() const {
    return arguments_.what == What::kEmbeddings ? PredictedRows::kEmbeddings : PredictedRows::kScores;
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
    QUARRY_TRY(const uint64_t feature_bytes, FeatureBytes(manifest_, spec_.feature_table));
    QUARRY_TRY(spec_.cache_bytes, ParseCache(arguments_.road.cache, feature_bytes));
    trained_.train.torch_threads = arguments_.torch_threads > 0 ? arguments_.torch_threads : ProcessorCount();
    return Status::Ok();
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
      std::vector<NodeId> nodes = road_->SplitNodes(arguments_.split == "train"   ? Split::kTrain
                                                    : arguments_.split == "valid" ? Split::kValid
                                                                                  : Split::kTest);
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

  Result<std::unique_ptr<Output>> OpenOutput(uint64_t rows) {
    if (arguments_.table.empty()) {
      const bool classes = arguments_.what == What::kClasses;
      QUARRY_TRY(NpyFile file,
                 NpyFile::Create(arguments_.out, classes ? ElementType::kInt64 : ElementType::kFloat32, rows,
                                 classes ? 0 : width()));
      return std::unique_ptr<Output>(std::make_unique<ArrayOutput>(std::move(file), classes));
    }
    if (arguments_.overwrite && manifest_.FindEmbedding(arguments_.table) != nullptr) {
      QUARRY_RETURN_IF_ERROR(store_->DropEmbeddings(arguments_.table));
    }
    // Rows that nobody writes are zeros.
    QUARRY_RETURN_IF_ERROR(store_->CreateEmbeddings(arguments_.table, {.row_count = manifest_.node_count,
                                                                       .dim = static_cast<uint32_t>(width()),
                                                                       .optimizer = OptimizerKind::kSgd,
                                                                       .init_scale = 0}));
    return std::unique_ptr<Output>(std::make_unique<TableOutput>(*store_, arguments_.table, arguments_.run));
  }

  // In pieces of whole batches, as large as a request of the store may be.
  Status PredictAll(std::span<const NodeId> nodes, Output& output) {
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

  Status Take(std::span<const NodeId> nodes, std::span<const float> rows, Output& output) {
    report_.nodes += nodes.size();
    if (ids_) {
      const std::vector<int64_t> numbers(nodes.begin(), nodes.end());
      QUARRY_RETURN_IF_ERROR(ids_->Append(std::as_bytes(std::span(numbers))));
    }
    if (arguments_.what == What::kEmbeddings) return output.Append(nodes, rows);
    const std::span<const int64_t> labels = road_->labels();
    const size_t width = predictor_->class_count();
    std::vector<float> classes;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto row = rows.subspan(i * width, width);
      classes.push_back(static_cast<float>(std::ranges::max_element(row) - row.begin()));
      if (labels.empty() || labels[nodes[i]] < 0) continue;
      ++report_.labelled;
      report_.correct += static_cast<int64_t>(classes.back()) == labels[nodes[i]] ? 1 : 0;
    }
    return output.Append(nodes, arguments_.what == What::kClasses ? std::span<const float>(classes) : rows);
  }

  PredictArguments& arguments_;
  std::unique_ptr<client::Store> store_;  // goes last
  Manifest manifest_;
  std::unique_ptr<TrainingStates> states_;
  TrainedNode trained_;
  RoadSpec spec_;
  std::unique_ptr<Predictor> predictor_;
  std::unique_ptr<client::Snapshot> snapshot_;
  std::unique_ptr<RemoteRoad> road_;
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
  const std::string& where = arguments.out.empty() ? arguments.table : arguments.out;
  const bool scored = report.labelled > 0;
  const double accuracy =
      scored ? static_cast<double>(report.correct) / static_cast<double>(report.labelled) : 0;
  if (arguments.json) {
    nlohmann::ordered_json json = {{"run", arguments.run},
                                   {arguments.out.empty() ? "table" : "path", where},
                                   {"rows", report.nodes},
                                   {"columns", prediction.width()},
                                   {"labelled_nodes", report.labelled}};
    if (scored) json["accuracy"] = accuracy;
    json["seconds"] = seconds;
    json["peak_rss_bytes"] = PeakRssBytes();
    PrintJson(json);
    return Status::Ok();
  }
  Print("{}: {} rows of {} in {:.2f} s{}\n", where, report.nodes, prediction.width(), seconds,
        scored ? fmt::format("; accuracy {:.4f} on {} labelled nodes", accuracy, report.labelled) : "");
  return Status::Ok();
}

}  // namespace

void AddPredict(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("predict", kPredictDescription);
  auto arguments = std::make_shared<PredictArguments>();
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
  AddChoice<What>(
      verb, "--what", arguments->what,
      {{"classes", What::kClasses}, {"scores", What::kScores}, {"embeddings", What::kEmbeddings}},
      "the likeliest class (default), the probability of each class, or what the last layer is given");
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
  verb->add_option("--cache", arguments->road.cache,
                   "rows that stay in memory: a size, or a share of the feature bytes; auto: 10%")
      ->capture_default_str();
  verb->add_option("--memory", arguments->memory,
                   "cap on what the engine holds (default 80% of what the machine or cgroup allows)");
  verb->add_option("--torch-threads", arguments->torch_threads, "of LibTorch; default: processors");
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->footer(
      "Neighbors are sampled as in training's test. A run is kept by `quarry train --run NAME`; SQL searches "
      "a table:\n"
      "ORDER BY vec_l2(vector, ?).\n"
      "Example: quarry predict db/ --run sage --split test --out classes.npy --ids nodes.npy\n"
      "         quarry predict db/ --run sage --what embeddings --table sage-vectors");
  verb->callback([arguments, fanouts, batch_size, &action] {
    arguments->has_fanouts = fanouts->count() > 0;
    arguments->has_batch_size = batch_size->count() > 0;
    action = [arguments] { return RunPredict(*arguments); };
  });
}

}  // namespace quarry::cli
