#include "train_node.h"

#include "quarry/pipeline/batch_stream.h"

namespace quarry::cli {

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
