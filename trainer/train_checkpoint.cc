#include "train_checkpoint.h"

#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/storage/training_state.h"
#include "run_settings.h"
#include "state_bytes.h"
#include "stream_totals.h"

namespace quarry {
namespace {

constexpr uint32_t kVersion = 1;

// As states number them: link prediction's is 2.
uint32_t StateTaskOf(NodeTask task) {
  switch (task) {
    case NodeTask::kRegression:
      return 3;
    case NodeTask::kMultiLabel:
      return 4;
    case NodeTask::kClasses:
      break;
  }
  return 1;
}

// By the task's own metrics: regression has no accuracy, and of several labels it is a micro-F1.
double FirstMetricOf(const Evaluation& evaluation) {
  if (evaluation.rmse) return *evaluation.rmse;
  return evaluation.micro_f1.value_or(evaluation.accuracy);
}
std::optional<double> SecondMetricOf(const Evaluation& evaluation) {
  return evaluation.mae ? evaluation.mae : evaluation.auc;
}

void PutEvaluation(const std::optional<Evaluation>& evaluation, StateWriter& writer) {
  const Evaluation value = evaluation.value_or(Evaluation{});
  writer.Put(uint8_t{evaluation.has_value()});
  writer.Put(value.nodes);
  writer.Put(FirstMetricOf(value));
  writer.Put(uint8_t{SecondMetricOf(value).has_value()});
  writer.Put(SecondMetricOf(value).value_or(0));
}

std::optional<Evaluation> GetEvaluation(NodeTask task, StateReader& reader) {
  const bool there = reader.Get<uint8_t>() != 0;
  Evaluation value;
  value.nodes = reader.Get<uint64_t>();
  const double first = reader.Get<double>();
  const bool has_second = reader.Get<uint8_t>() != 0;
  const double second = reader.Get<double>();
  (task == NodeTask::kRegression ? value.mae : value.auc) = has_second ? std::optional(second) : std::nullopt;
  if (task == NodeTask::kRegression) value.rmse = first;
  if (task == NodeTask::kMultiLabel) value.micro_f1 = first;
  if (task == NodeTask::kClasses) value.accuracy = first;
  return there ? std::optional(value) : std::nullopt;
}

// What stands in front: the task, the version, and the number of classes, which comes back.
Result<uint32_t> ReadHead(StateReader& reader, NodeTask expected) {
  const auto task = reader.Get<uint32_t>();
  const auto version = reader.Get<uint32_t>();
  const auto class_count = reader.Get<uint32_t>();
  QUARRY_RETURN_IF_ERROR(reader.status());
  if (task != StateTaskOf(expected)) {
    return MakeStatus(Code::kCorruption, "the state is of task {}, not of {} ({})", task,
                      expected == NodeTask::kClasses ? "node classification" : NameOf(expected),
                      StateTaskOf(expected));
  }
  if (version != kVersion) {
    return MakeStatus(Code::kUnsupported, "the state has version {}; this Quarry reads version {}", version,
                      kVersion);
  }
  return class_count;
}

}  // namespace

std::vector<std::byte> EncodeTrainState(const TrainProgress& progress, const NodeModel& model) {
  const TrainSummary& summary = progress.summary;
  StateWriter writer;
  writer.Put(StateTaskOf(progress.task));
  writer.Put(kVersion);
  writer.Put(progress.class_count);
  if (progress.task == NodeTask::kRegression) {
    writer.PutFloats(progress.scale.mean);
    writer.PutFloats(progress.scale.deviation);
  }
  writer.Put(summary.epochs);
  writer.Put(summary.best_epoch);
  writer.Put(progress.epochs_since_best);
  writer.Put(summary.best_loss);
  PutEvaluation(summary.valid, writer);
  writer.Put(summary.seconds);
  writer.Put(summary.train_seconds);
  for (const auto count : kStreamCounts) writer.Put(summary.stats.*count);
  for (const auto seconds : kStreamSeconds) writer.Put(summary.stats.*seconds);
  writer.PutBytes(model.State());
  return writer.Take();
}

Result<uint32_t> ClassCountOf(std::span<const std::byte> bytes, NodeTask task) {
  StateReader reader(bytes);
  return ReadHead(reader, task);
}

Status DecodeTrainState(std::span<const std::byte> bytes, TrainProgress& progress, NodeModel& model) {
  StateReader reader(bytes);
  QUARRY_TRY(const uint32_t class_count, ReadHead(reader, progress.task));
  if (class_count != progress.class_count) {
    const bool classes = progress.task == NodeTask::kClasses;
    return MakeStatus(Code::kInvalidArgument, "the model tells {} {}, and the {} are of {} now", class_count,
                      classes ? "classes" : "columns", classes ? "labels" : "targets", progress.class_count);
  }
  if (progress.task == NodeTask::kRegression) {
    for (std::vector<float>* const values : {&progress.scale.mean, &progress.scale.deviation}) {
      values->resize(class_count);
      reader.GetFloats("a scale of targets", *values);
    }
  }
  TrainSummary& summary = progress.summary;
  summary.epochs = reader.Get<uint32_t>();
  summary.best_epoch = reader.Get<uint32_t>();
  progress.epochs_since_best = reader.Get<uint32_t>();
  summary.best_loss = reader.Get<double>();
  summary.valid = GetEvaluation(progress.task, reader);
  summary.seconds = reader.Get<double>();
  summary.train_seconds = reader.Get<double>();
  for (const auto count : kStreamCounts) summary.stats.*count = reader.Get<uint64_t>();
  for (const auto seconds : kStreamSeconds) summary.stats.*seconds = reader.Get<double>();
  QUARRY_RETURN_IF_ERROR(reader.status());
  return model.TakeState(reader.rest());
}

Status CheckTrainRun(const TrainRun& run) {
  if (run.states == nullptr) return Status::Ok();
  QUARRY_RETURN_IF_ERROR(CheckTrainingName(run.name));
  const Result<TrainingRecord> record = run.states->Find(run.name);
  if (!record.ok() && (run.resume || record.status().code() != Code::kNotFound)) return record.status();
  if (run.resume) return CheckSettings(run.name, record->settings, run.settings);
  if (!record.ok() || run.overwrite) return Status::Ok();
  return MakeStatus(Code::kAlreadyExists,
                    "{}: run \"{}\" has a checkpoint of {}: --resume goes on from it, --overwrite begins it "
                    "anew, --run names another",
                    run.states->path(), run.name, record->created_utc);
}

Status TrainCheckpoints::Start(TrainProgress& progress, NodeModel& model) {
  QUARRY_RETURN_IF_ERROR(CheckTrainRun(run_));
  if (run_.states == nullptr || !run_.resume) return Status::Ok();
  QUARRY_TRY(const TrainingRecord record, run_.states->Find(run_.name));
  QUARRY_TRY(const std::vector<std::byte> state, run_.states->Read(run_.name));
  if (const Status status = DecodeTrainState(state, progress, model); !status.ok()) {
    const std::string file = record.file.empty() ? "" : "/" + record.file;  // a server does not name it
    return MakeStatus(status.code(), "{}{}: run \"{}\": {}; --overwrite begins the run anew",
                      run_.states->path(), file, run_.name, status.message());
  }
  epoch_of_last_ = progress.summary.epochs;
  progress.summary.resumed_from_epoch = epoch_of_last_;
  LogInfo("run \"{}\" goes on from the end of epoch {} (checkpoint of {})", run_.name, *epoch_of_last_,
          record.created_utc);
  return Status::Ok();
}

bool TrainCheckpoints::Due(uint64_t batches, bool last_epoch) {
  if (run_.states == nullptr) return false;
  batches_since_ += batches;
  return last_epoch || (run_.checkpoint_every > 0 && batches_since_ >= run_.checkpoint_every);
}

Result<double> TrainCheckpoints::Take(TrainProgress& progress, const NodeModel& model) {
  const double start = MonotonicSeconds();
  QUARRY_RETURN_IF_ERROR(run_.states->Save({.name = run_.name,
                                            .settings = run_.settings,
                                            .config = run_.config,
                                            .state = EncodeTrainState(progress, model)}));
  const double seconds = MonotonicSeconds() - start;
  epoch_of_last_ = progress.summary.epochs;
  batches_since_ = 0;
  ++progress.summary.checkpoints;
  progress.summary.checkpoint_seconds += seconds;
  return seconds;
}

Status TrainCheckpoints::Explain(const Status& cancelled) const {
  if (run_.states == nullptr) return cancelled;
  const std::string what = epoch_of_last_
                               ? fmt::format("--resume goes on from the end of epoch {}", *epoch_of_last_)
                               : std::string("there is no checkpoint of this training yet");
  return MakeStatus(cancelled.code(), "{}; {}", cancelled.message(), what);
}

}  // namespace quarry
