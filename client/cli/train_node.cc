#include "train_node.h"

#include "option_values.h"
#include "quarry/pipeline/batch_stream.h"

namespace quarry::cli {

// The settings are written as options of `quarry train`, and so they are read. What else stands there, of the road and of
// the layout, does not change what a model says.
Result<TrainedNode> ReadNodeSettings(std::string_view run, const std::string& settings) {
  std::string task;
  NodeArguments arguments;
  CLI::App parser;
  parser.allow_extras();
  parser.add_option("--task", task);
  AddModelOptions(&parser, arguments);
  parser.add_option("--fanout", arguments.plan_flags.road.fanouts)->delimiter(',');
  arguments.plan_flags.AddRoadOptions(&parser);
  try {
    parser.parse(settings, /*program_name_included=*/false);
  } catch (const CLI::ParseError& error) {
    return MakeStatus(Code::kCorruption, "the settings of run \"{}\" cannot be read: {}", run, error.what());
  }
  if (task != "node") {
    return MakeStatus(Code::kInvalidArgument,
                      "run \"{}\" trained the task {}: only runs of node classification predict", run, task);
  }
  return TrainedNode{arguments.train, arguments.plan_flags.road};
}

Status TrainReported(Road& road, const NodeArguments& arguments, const TrainSetup& setup,
                     Communicator* trainers, StreamStats& last_epoch) {
  const bool reports = trainers == nullptr || trainers->rank() == 0;
  TrainReport report(setup, arguments.json);
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
  QUARRY_TRY(const TrainSummary summary, Train(road, arguments.train, callbacks, setup.run, trainers));
  bar.Clear();
  if (reports) report.Summary(summary);
  return Status::Ok();
}

}  // namespace quarry::cli
