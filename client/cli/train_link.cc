#include "train_link.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config_file.h"
#include "option_values.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "server_address.h"
#include "train_link_report.h"
#include "train_node.h"

namespace quarry::cli {
namespace {

constexpr std::string_view kSharedOptions[] = {
    "DB",       "--task",       "--epochs",    "--patience",         "--lr",       "--seed",
    "--json",   "--batch-size", "--memory",    "--threads",          "--ordered",  "--fanout",
    "--run",    "--resume",     "--overwrite", "--checkpoint-every", "--trace",    "--inline",
    "--newest", "--road",       "--heads",     "--aggregator",       "--schedule", "--schedule-epochs",
    "--bases",  "--loss"};
// In help: the options of the road, which both tasks have.
constexpr const char* kPartsGroup = "Part by part (--road partitioned)";

template <typename Value>
Value SharedOption(const CLI::App& verb, const std::string& name, Value value) {
  const CLI::Option* option = verb.get_option(name);
  return option->count() > 0 ? option->as<Value>() : value;
}

// The decoder runs on all of the threads; half as many prepare batches and write them back.
Status TakeSharedOptions(const CLI::App& verb, LinkTrainOptions& train) {
  train.epochs = SharedOption(verb, "--epochs", train.epochs);
  train.patience = SharedOption(verb, "--patience", train.patience);
  train.batch_edges = SharedOption(verb, "--batch-size", train.batch_edges);
  const double rate = SharedOption<double>(verb, "--lr", train.optimizer_options.learning_rate);
  train.optimizer_options.learning_rate = static_cast<float>(rate);
  train.seed = SharedOption(verb, "--seed", train.seed);
  train.ordered = verb.count("--ordered") > 0;
  const unsigned threads = SharedOption(verb, "--threads", 0U);
  train.compute_threads = threads > 0 ? threads : ProcessorCount();
  train.workers = std::max(1U, train.compute_threads / 2);
  if (verb.count("--loss") > 0) {
    QUARRY_TRY(train.spec.loss, ParseLinkLoss(verb.get_option("--loss")->as<std::string>()));
  }
  return Status::Ok();
}

// One layer by default, as the dissertation's link prediction has it (§3.4).
Status TakeEncoder(const CLI::App& verb, LinkArguments& arguments) {
  LinkTrainOptions& train = arguments.train;
  if (arguments.encoder) {
    train.encoder.model = *arguments.encoder;
    train.encoder_fanouts = SharedOption(verb, "--fanout", std::vector<uint32_t>{20});
  } else if (verb.count("--fanout") > 0) {
    return Status(Code::kUsage, "--fanout is of an encoder, and there is none: give --encoder sage too");
  }
  for (const ModelField& field : ModelFields()) {
    const std::string option = fmt::format("--{}", field.name);
    if (field.only_of.empty() || verb.count(option) == 0) continue;
    if (!arguments.encoder || !field.IsOf(*arguments.encoder)) {
      return MakeStatus(Code::kUsage, "{} is of --encoder {}, and this is --encoder {}", option,
                        field.Owners(), arguments.encoder ? quarry::NameOf(*arguments.encoder) : "none");
    }
    field.take(verb.get_option(option)->as<std::string>(), train.encoder);
  }
  return Status::Ok();
}

Result<HeldOutShares> ParseShares(const LinkArguments& arguments) {
  HeldOutShares shares{.seed = arguments.train.seed};
  QUARRY_TRY(shares.valid, ParseShare("--valid-share", arguments.valid_share));
  QUARRY_TRY(shares.test, ParseShare("--test-share", arguments.test_share));
  return shares;
}

// As databases are opened with: --memory, or 80 % of what the machine allows.
Result<uint64_t> BudgetBytes(const CLI::App& verb) {
  const auto memory = SharedOption<std::string>(verb, "--memory", "");
  return memory.empty() ? MemoryLimitBytes() / 10 * 8 : ParseSize("--memory", memory, MemoryLimitBytes());
}

// What the run is filed under, how it begins and when it takes checkpoints: `keep` where it takes any.
Result<LinkRunOptions> RunOptions(const CLI::App& verb, const LinkArguments& arguments) {
  using Start = LinkRunOptions::Start;
  LinkRunOptions run{.name = SharedOption<std::string>(verb, "--run", "link"),
                     .config = EffectiveConfig(*verb.get_parent()),
                     .checkpoint_every = SharedOption<uint64_t>(verb, "--checkpoint-every", 0)};
  if (verb.count("--overwrite") > 0) run.start = Start::kOverwrite;
  if (verb.count("--resume") > 0) run.start = Start::kResume;
  run.keep = arguments.save || run.checkpoint_every > 0 || run.start == Start::kResume;
  if (!run.keep && (verb.count("--run") > 0 || run.start == Start::kOverwrite)) {
    return MakeStatus(Code::kUsage,
                      "{} is of runs with checkpoints: give {}--checkpoint-every or --resume too",
                      run.start == Start::kOverwrite ? "--overwrite" : "--run",
                      IsServerAddress(arguments.path) ? "" : "--save, ");
  }
  return run;
}

// Reports what `start` trains by the callbacks that it is given. `run` is null where vectors are in memory, without
// checkpoints.
template <typename Start>
Status TrainAndReport(const CLI::App& verb, const LinkTrainOptions& train, MemoryBudget& budget, LinkRun* run,
                      const Start& start) {
  LogInfo("threads: {} computing, {} preparing, {} writing back", train.compute_threads, train.workers,
          train.workers);
  LinkReport report(train, budget, run, EffectiveConfig(*verb.get_parent()), verb.count("--json") > 0);
  ProgressBar bar;
  LinkTrainCallbacks callbacks;
  callbacks.progress = [&](std::string_view phase, uint64_t done, uint64_t total) -> Status {
    if (Interrupted()) {
      return MakeStatus(Code::kCancelled, "interrupted in {} after {} of {} edges", phase, done, total);
    }
    bar.Show(phase, done, total, " edges");
    return Status::Ok();
  };
  callbacks.epoch = [&](const LinkEpochReport& epoch) {
    bar.Clear();
    report.Epoch(epoch);
    return Status::Ok();
  };
  QUARRY_TRY(const LinkTrainSummary summary, start(callbacks));
  bar.Clear();
  report.Summary(summary);
  return Status::Ok();
}

// What goes with the edges of one time is refused.
Status CheckNewest(const CLI::App& verb, const LinkArguments& arguments) {
  if (!arguments.newest) return Status::Ok();
  if (!IsServerAddress(arguments.path)) {
    return Status(
        Code::kUsage,
        "--newest is of a server's database (unix:SOCKET), which others write to meanwhile; nobody writes to "
        "one that this process has open: leave it out");
  }
  for (const char* const option : {"--patience", "--checkpoint-every", "--resume", "--run", "--overwrite"}) {
    if (verb.count(option) == 0) continue;
    return MakeStatus(
        Code::kUsage,
        "--newest trains on other edges from epoch to epoch, and {} is of runs whose edges stay: "
        "leave one of them out",
        option);
  }
  return Status::Ok();
}

// kUsage for what cannot be had of the database at this address, or on this road.
Status CheckOrigin(const CLI::App& verb, const LinkArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckInlineFlag(arguments.inline_only, arguments.path));
  if (arguments.partitioned) {
    if (arguments.encoder && arguments.train.encoder.needs_relations()) {
      return MakeStatus(
          Code::kUsage,
          "--encoder {} asks for the relations of neighbors, which lists by parts do not have: leave "
          "--road out",
          quarry::NameOf(*arguments.encoder));
    }
    if (IsServerAddress(arguments.path)) {
      return Status(
          Code::kUsage,
          "--road partitioned trains on the database itself: stop the server and give the database's "
          "folder, or leave --road out");
    }
    for (const char* const name : {"--valid-share", "--test-share"}) {
      if (verb.count(name) == 0) continue;
      return MakeStatus(
          Code::kUsage,
          "{} holds out edges that the partitioning has: with --road partitioned, import valid and test "
          "edges of their own",
          name);
    }
  }
  if (!arguments.features.empty()) {
    if (!arguments.encoder) {
      return Status(Code::kUsage,
                    "--features is given to an encoder, and there is none: give --encoder sage too");
    }
    if (arguments.partitioned || IsServerAddress(arguments.path)) {
      return Status(
          Code::kUsage,
          "--features holds the rows of all nodes of a database that this process opens: leave --road "
          "out, and give its folder");
    }
  }
  if (!arguments.save || !IsServerAddress(arguments.path)) return Status::Ok();
  return Status(Code::kUsage,
                "--save makes tables of the database itself: give --checkpoint-every here, and `quarry train "
                "DB --task link --resume` makes them of the run's vectors");
}

}  // namespace

void AddLinkOptions(CLI::App* verb, LinkArguments& arguments) {
  LinkTrainOptions& train = arguments.train;
  const auto add = [verb](const std::string& name, auto& value, const std::string& help) {
    verb->add_option(name, value, help)->capture_default_str()->group(kLinkGroup);
  };
  AddChoice<DecoderKind>(verb, "--decoder", train.spec.decoder,
                         {{"dot", DecoderKind::kDot},
                          {"distmult", DecoderKind::kDistMult},
                          {"complex", DecoderKind::kComplEx},
                          {"transe", DecoderKind::kTransE},
                          {"rotate", DecoderKind::kRotatE}},
                         "what scores an edge (default distmult); dot has no vectors for relations")
      ->group(kLinkGroup);
  add("--dim", train.spec.dim, "floats of a node's vector");
  AddChoice<std::optional<GnnKind>>(verb, "--encoder", arguments.encoder,
                                    {{"none", std::nullopt},
                                     {"sage", GnnKind::kSage},
                                     {"gcn", GnnKind::kGcn},
                                     {"gat", GnnKind::kGat},
                                     {"gin", GnnKind::kGin},
                                     {"rgcn", GnnKind::kRgcn},
                                     {"rgat", GnnKind::kRgat}},
                                    "layers between vectors and decoder, as --model has them, over --fanout "
                                    "neighbors (default 20) by training edges (default none)")
      ->group(kLinkGroup);
  add("--encoder-lr", train.encoder_learning_rate, "of the encoder's weights, which Adam steps");
  verb->add_option(
          "--features", arguments.features,
          "of --encoder: it is given the rows of this table, which stay as they are, in the place of "
          "learned vectors of nodes")
      ->type_name("TABLE")
      ->group(kLinkGroup);
  add("--margin", train.spec.margin, "of --loss margin");
  AddChoice<Regularization>(
      verb, "--regularization", train.spec.regularization,
      {{"none", Regularization::kNone}, {"l2", Regularization::kL2}, {"n3", Regularization::kN3}},
      "what each edge's loss has for the size of its vectors: nothing, squares or cubes (default none)")
      ->group(kLinkGroup);
  add("--regularization-weight", train.spec.regularization_weight, "of --regularization l2 or n3");
  add("--negatives", train.negatives, "nodes that take the place of each end of the edges of a chunk");
  add("--chunk", train.chunk_edges, "edges that share negatives");
  add("--degree-share", train.degree_share, "of the negatives: drawn by degree, from 0 to 1");
  AddChoice(verb, "--optimizer", train.optimizer, Optimizers(), "of the vectors (default adagrad)")
      ->group(kLinkGroup);
  AddChoice(
      verb, "--embedding-mode", train.mode, AsyncModes(),
      "one batch at a time; several, whose updates may be lost; at most --staleness of them; or several "
      "with the result of one at a time (default oac)")
      ->group(kLinkGroup);
  add("--batches-in-flight", train.batches_in_flight, "batches between reading and having written");
  add("--staleness", train.staleness, "the same, of async-bounded");
  add("--valid-every", train.valid_every, "epochs from one validation to the next; 0: none");
  verb->add_flag("--save", arguments.save, "keep the vectors in the database, as a checkpoint at the end")
      ->group(kLinkGroup);
  verb->add_option("--partitioning", arguments.partitioning, "which, of those that the database has")
      ->capture_default_str()
      ->group(kPartsGroup);
  AddChoice<PartitionOrder>(verb, "--partition-order", arguments.road.order,
                            {{"beta", PartitionOrder::kBeta},
                             {"comet", PartitionOrder::kComet},
                             {"euler", PartitionOrder::kEuler},
                             {"node", PartitionOrder::kNode}},
                            "in which parts follow one another (default comet; --task node has node alone)")
      ->group(kPartsGroup);
  verb->add_option("--buffer", arguments.road.buffer,
                   "parts that are held at once; 0: as many as --memory has room for")
      ->capture_default_str()
      ->group(kPartsGroup);
  verb->add_option("--logical", arguments.road.logical,
                   "logical parts; 0: of comet and euler so many that two are held, of node as many as parts")
      ->capture_default_str()
      ->group(kPartsGroup);
  add("--valid-share", arguments.valid_share, "edges to hold out where the database has no valid edges: 5%");
  add("--test-share", arguments.test_share, "the same, of test edges");
}

Status CheckTaskOptions(const CLI::App& verb, std::string_view task) {
  const auto road = SharedOption<std::string>(verb, "--road", std::string(kAutoRoad));
  const bool links = task == "link";
  if (road != kAutoRoad && road != kPartitionedRoad && links) {
    return MakeStatus(Code::kUsage, "--road {} belongs to --task node, and this is --task {}", road, task);
  }
  for (const CLI::Option* option : verb.get_options()) {
    if (option->count() == 0 || std::ranges::count(kSharedOptions, option->get_name()) > 0) continue;
    if (option->get_group() == kPartsGroup) {
      if (road == kPartitionedRoad) continue;
      return MakeStatus(Code::kUsage, "{} is of --road partitioned: give that too", option->get_name());
    }
    const bool of_links = option->get_group() == kLinkGroup;
    if (of_links == links) continue;
    return MakeStatus(Code::kUsage, "{} belongs to --task {}, and this is --task {}", option->get_name(),
                      of_links ? "link" : "node", task);
  }
  return Status::Ok();
}

Status TrainLink(const CLI::App& verb, LinkArguments& arguments) {
  LinkTrainOptions& train = arguments.train;
  QUARRY_RETURN_IF_ERROR(CheckTaskOptions(verb, "link"));
  QUARRY_RETURN_IF_ERROR(TakeSharedOptions(verb, train));
  QUARRY_RETURN_IF_ERROR(FinishSchedule(train.schedule, train.epochs, train.schedule_epochs));
  QUARRY_RETURN_IF_ERROR(TakeEncoder(verb, arguments));
  QUARRY_TRY(arguments.shares, ParseShares(arguments));
  QUARRY_RETURN_IF_ERROR(CheckLinkTrainOptions(train));
  arguments.path = verb.get_option("DB")->as<std::string>();
  arguments.inline_only = verb.count("--inline") > 0;
  arguments.newest = verb.count("--newest") > 0;
  QUARRY_RETURN_IF_ERROR(CheckOrigin(verb, arguments));
  QUARRY_RETURN_IF_ERROR(CheckNewest(verb, arguments));
  QUARRY_TRY(arguments.run, RunOptions(verb, arguments));
  QUARRY_TRY(arguments.memory_bytes, BudgetBytes(verb));
  if (arguments.newest) {
    MemoryBudget budget(arguments.memory_bytes);
    QUARRY_TRY(const NewestLinks source, OpenNewestLinks(arguments, budget));
    return TrainAndReport(verb, train, budget, nullptr, [&](const LinkTrainCallbacks& callbacks) {
      return TrainNewestLinks(source, train, budget, callbacks);
    });
  }
  QUARRY_TRY(const std::unique_ptr<LinkOrigin> origin, OpenLinkOrigin(arguments));
  QUARRY_TRY(const LinkData data, origin->LoadData());
  QUARRY_TRY(const std::unique_ptr<LinkRun> run, origin->OpenRun(data));
  MemoryBudget& budget = origin->budget();
  LogInfo("{}", DescribeLinks(data));
  return TrainAndReport(verb, train, budget, run.get(), [&](const LinkTrainCallbacks& callbacks) {
    return run != nullptr ? TrainLinks(data, train, budget, callbacks, *run)
                          : TrainLinks(data, train, budget, callbacks);
  });
}

}  // namespace quarry::cli
