#include "train_run.h"

#include "layout_options.h"

namespace quarry::cli {
namespace {

// Settings are compared as texts, and those of older states name a cache on the GPU, which none had.
std::string LayoutSettings(const LayoutRecord& record) {
  return fmt::format(
      "--layout {} (seed {}, batches of {}) --cache {} rows --gpu-cache 0 rows --disk {} batches a segment "
      "--policy {} --epochs-planned {} --seed-order {}",
      record.name, record.spec.seed, record.spec.batch_size, record.cache_rows, record.batches_per_segment,
      quarry::NameOf(record.policy), record.epochs, quarry::NameOf(record.spec.seed_order));
}

std::string LayoutSettings(const LayoutSpec& spec, bool resample) {
  const std::string epochs = resample ? "--resample every-epoch"
                                      : fmt::format("--plan {} --epochs-planned {}", spec.name, spec.epochs);
  // What the cache holds decides the order of a batch's nodes, and so last bits and dropout.
  return fmt::format("{}{} --cache {} --gpu-cache 0 --disk {} --policy {} --seed-order {}", epochs,
                     spec.batches > 0 ? fmt::format(" --superbatch {}", spec.batches) : "",
                     spec.road.cache_bytes, spec.disk_bytes, quarry::NameOf(spec.policy),
                     quarry::NameOf(spec.road.seed_order));
}

// Which nodes a batch sees depends on what is held with them. The parts are those of one build.
std::string PartSettings(const wire::OpenedParts& parts) {
  return fmt::format("--road partitioned --partitioning {} --partition-order {} --buffer {} --logical {}",
                     parts.directory, PartitionOrderName(PartitionOrder::kNode), parts.buffer, parts.logical);
}

// The name of a file may hold what separates settings.
std::string SettingOfName(std::string_view name) {
  std::string setting(name);
  for (char& c : setting) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && std::string_view("._-/").find(c) == std::string_view::npos) c = '_';
  }
  return setting;
}

}  // namespace

void RunFlags::AddTo(CLI::App* verb) {
  constexpr const char* kGroup = "Checkpoints";
  verb->add_option("--run", name,
                   "keep the model under this name, for `quarry predict` and --resume (default: the task)")
      ->type_name("NAME")
      ->group(kGroup);
  verb->add_option("--checkpoint-every", checkpoint_every,
                   "batches from one checkpoint to the next; node: rounded up to the end of an epoch; the "
                   "last one is taken at the end of training")
      ->type_name("BATCHES")
      ->check(CLI::PositiveNumber)
      ->group(kGroup);
  CLI::Option* const goes_on =
      verb->add_flag("--resume", resume, "go on from the run's last checkpoint, with the same settings")
          ->group(kGroup);
  verb->add_flag("--overwrite", overwrite, "begin anew, although the run has a checkpoint")
      ->excludes(goes_on)
      ->group(kGroup);
  verb->add_option(
          "--from", from,
          "begin with the weights of this run of the database, or of this .safetensors file, instead of "
          "drawn ones; the model must have the same layers and widths")
      ->type_name("RUN|FILE");
}

Result<std::optional<TrainRun>> RunFlags::NodeRun() const {
  if (name.empty() && checkpoint_every == 0 && !resume && !overwrite) return std::optional<TrainRun>();
  return std::optional(TrainRun{.name = name.empty() ? "node" : name,
                                .checkpoint_every = checkpoint_every,
                                .resume = resume,
                                .overwrite = overwrite});
}

Status TakeTunedParts(std::string_view run, const std::string& settings, PartitionedRoadOptions& parts) {
  PartitionedRoadOptions tuned;
  CLI::App parser;
  parser.allow_extras();
  parser.add_option("--buffer", tuned.buffer);
  parser.add_option("--logical", tuned.logical);
  try {
    parser.parse(settings, /*program_name_included=*/false);
  } catch (const CLI::ParseError& error) {
    return MakeStatus(Code::kCorruption, "the settings of run \"{}\" cannot be read: {}", run, error.what());
  }
  if (parts.buffer == 0) parts.buffer = tuned.buffer;
  if (parts.logical == 0) parts.logical = tuned.logical;
  return Status::Ok();
}

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
  parser.add_option("--superbatch", road.superbatch);
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

std::string NodeSettings::ToString() const {
  std::string text = fmt::format(
      "--task {}{} {} --layers {} --hidden {} {} --lr {} --dropout {} --input-dropout {} "
      "--weight-decay {} --normalize-features {} --seed {} --ordered {}",
      quarry::NameOf(train.task), target.empty() ? "" : fmt::format(" --target {}", target),
      quarry::ToSettings(train.spec), train.layers, train.hidden, SampleFlags(road), train.learning_rate,
      train.dropout, train.input_dropout, train.weight_decay, NameOf(RowNorms(), train.row_norm), train.seed,
      train.ordered);
  // How BLAS shares out a product decides its last bits.
  if (train.ordered) text += fmt::format(" --torch-threads {}", train.torch_threads);
  // The number of trainers decides what a step is.
  if (trainers > 1) text += fmt::format(" --workers {}", trainers);
  if (const std::string rates = ScheduleSettings(train.schedule, train.schedule_epochs); !rates.empty()) {
    text += " " + rates;
  }
  if (train.regression_loss != RegressionLoss::kMse) {  // as runs from before there was a choice have it
    text += fmt::format(" --loss {}", quarry::NameOf(train.regression_loss));
  }
  if (train.whole_graph != nullptr) text += " --eval layers";  // which decides what the best epoch is
  if (!from.empty()) text += " --from " + SettingOfName(from);
  if (built != nullptr) text += " " + LayoutSettings(*built);
  if (planned != nullptr) text += " " + LayoutSettings(*planned, resample);
  if (parts != nullptr) text += " " + PartSettings(*parts);
  return text;
}

}  // namespace quarry::cli
