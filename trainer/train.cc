#include "quarry/trainer/train.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "gradient_exchange.h"
#include "infer_layers.h"
#include "node_model.h"
#include "passes.h"
#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/sampling/sampler.h"
#include "scores.h"
#include "stream_totals.h"
#include "targets.h"
#include "train_checkpoint.h"

namespace quarry {
namespace {

Status CheckOptions(const TrainOptions& options) {
  const auto check = [](bool good, std::string_view name, double value, std::string_view range) {
    if (good) return Status::Ok();
    return MakeStatus(Code::kUsage, "{} is {}, but must be {}", name, value, range);
  };
  const auto share = [](double p) { return p >= 0 && p < 1; };
  const auto finite_from = [](double x, double low) { return std::isfinite(x) && x >= low; };
  QUARRY_RETURN_IF_ERROR(check(options.layers >= 1 && options.layers <= NeighborSampler::kHopsMax, "layers",
                               options.layers, fmt::format("1 to {}", NeighborSampler::kHopsMax)));
  QUARRY_RETURN_IF_ERROR(
      check(options.hidden >= 1 && options.hidden <= 65536, "hidden", options.hidden, "1 to 65536"));
  QUARRY_RETURN_IF_ERROR(check(options.epochs >= 1, "epochs", options.epochs, "at least 1"));
  QUARRY_RETURN_IF_ERROR(check(share(options.dropout), "dropout", options.dropout, "from 0 to below 1"));
  QUARRY_RETURN_IF_ERROR(
      check(share(options.input_dropout), "input dropout", options.input_dropout, "from 0 to below 1"));
  QUARRY_RETURN_IF_ERROR(check(finite_from(options.learning_rate, 0) && options.learning_rate > 0,
                               "learning rate", options.learning_rate, "above 0"));
  if (options.schedule != LearningSchedule::kConstant) {
    QUARRY_RETURN_IF_ERROR(
        check(options.schedule_epochs >= 1, "schedule epochs", options.schedule_epochs, "at least 1"));
  }
  QUARRY_RETURN_IF_ERROR(
      check(finite_from(options.weight_decay, 0), "weight decay", options.weight_decay, "0 or more"));
  if ((options.task == NodeTask::kClasses) != (options.targets == nullptr)) {
    return MakeStatus(Code::kUsage, "task {} is trained {} targets", NameOf(options.task),
                      options.targets == nullptr ? "on" : "on labels, and not on");
  }
  QUARRY_RETURN_IF_ERROR(CheckModel(options.spec, options.layers, options.hidden));
  if (options.spec.needs_relations() && options.inputs.kind_count == 0) {
    return MakeStatus(Code::kUsage, "model {} tells relations apart, and has been told of none",
                      NameOf(options.spec.model));
  }
  return check(options.torch_threads >= 1 && options.torch_threads <= 1024, "torch threads",
               options.torch_threads, "1 to 1024");
}

class Trainer {
 public:
  Trainer(Road& road, const TrainOptions& options, const TrainCallbacks& callbacks, const TrainRun& run,
          Communicator* trainers)
      : road_(road),
        options_(options),
        callbacks_(callbacks),
        run_(run),
        checkpoints_(run),
        trainers_(trainers) {
    if (trainers != nullptr) exchange_.emplace(*trainers);
  }

  Result<TrainSummary> Run() {
    start_ = MonotonicSeconds();
    QUARRY_RETURN_IF_ERROR(Agree(trainers_, Prepare()));
    QUARRY_RETURN_IF_ERROR(ShareCheckpoint());
    const Status status = RunAll();
    if (status.code() == Code::kCancelled) return checkpoints_.Explain(status);
    QUARRY_RETURN_IF_ERROR(status);
    return progress_.summary;
  }

 private:
  Status RunAll() {
    TrainSummary& summary = progress_.summary;
    QUARRY_RETURN_IF_ERROR(Agree(trainers_, SkipToCheckpoint()));
    while (summary.epochs < options_.epochs && !StopsEarly()) {
      QUARRY_RETURN_IF_ERROR(RunEpoch(summary.epochs + 1));
    }
    summary.stopped_early = StopsEarly();
    model_->Restore();
    StreamStats test_stats;
    QUARRY_TRY(summary.test, Evaluate(Split::kTest, kTestPass, "test", test_stats));
    summary.seconds = Seconds();
    return Status::Ok();
  }

  Status Prepare() {
    width_ = OutputsOf(options_, road_.class_count());
    if (!on_targets() && width_ < 2) {
      return MakeStatus(Code::kInvalidArgument,
                        "the database has labels of {} classes; training needs at least 2", width_);
    }
    const std::vector<InputType> types = options_.inputs.TypesOr(road_.feature_dim());
    if (std::ranges::none_of(types, [](const InputType& type) { return type.dim > 0; })) {
      return MakeStatus(Code::kInvalidArgument, "the database has no node features to train on");
    }
    if (road_.CountNodes(Split::kTrain) == 0) {
      return MakeStatus(Code::kInvalidArgument,
                        "the database's split has no labelled training node; import one with --train");
    }
    QUARRY_RETURN_IF_ERROR(CheckJudging());
    QUARRY_TRY(model_, NodeModel::Make(options_, road_.feature_dim(), width_));
    QUARRY_RETURN_IF_ERROR(CheckWholeGraph());
    progress_.task = options_.task;
    progress_.class_count = width_;
    QUARRY_RETURN_IF_ERROR(checkpoints_.Start(progress_, *model_));
    const bool first = trainers_ == nullptr || trainers_->rank() == 0;
    if (options_.task == NodeTask::kRegression && !run_.resume && first) {
      QUARRY_RETURN_IF_ERROR(MeasureTargets());
    }
    QUARRY_RETURN_IF_ERROR(TakeFirstWeights());
    seconds_before_ = progress_.summary.seconds;
    return Status::Ok();
  }

  bool on_targets() const { return options_.task != NodeTask::kClasses; }

  // Areas under curves ask for all outputs of a pass at once.
  Status CheckJudging() const {
    const uint64_t nodes = std::max(road_.CountNodes(Split::kValid), road_.CountNodes(Split::kTest));
    const uint64_t bytes = on_targets() ? JudgingBytes(options_, width_, nodes) : 0;
    if (bytes <= MemoryLimitBytes()) return Status::Ok();
    return MakeStatus(Code::kOutOfBudget,
                      "judging {} labels of {} nodes would take {}, and the machine or cgroup allows {}: "
                      "put fewer nodes into the validation and test splits",
                      width_, nodes, FormatBytes(bytes), FormatBytes(MemoryLimitBytes()));
  }

  // Refused here rather than behind the first epoch.
  Status CheckWholeGraph() const {
    if (options_.whole_graph == nullptr) return Status::Ok();
    if (trainers_ != nullptr) {
      return Status(Code::kUsage,
                    "whole graphs are gone through by one trainer, and there are several: let them judge by "
                    "samples");
    }
    const Status fits =
        CheckInferLayers(model_->layers(), options_.layers, *options_.whole_graph, options_.row_norm);
    if (fits.code() != Code::kOutOfBudget) return fits;
    return MakeStatus(Code::kOutOfBudget,
                      "validation and test by all neighbors have a part of the memory alone, and {}; or let "
                      "them go by samples",
                      fits.message());
  }

  Status MeasureTargets() {
    const std::vector<NodeId> nodes = road_.TrainNodes();
    const auto progress = [&](uint64_t done) { return Progress("reading targets", done, nodes.size()); };
    QUARRY_TRY(progress_.scale, TargetScale::Measure(*options_.targets, nodes, progress));
    return Status::Ok();
  }

  Status TakeFirstWeights() {
    if (run_.resume || !run_.read_weights) return Status::Ok();
    QUARRY_TRY(const std::vector<NamedTensor> weights, run_.read_weights());
    const Status taken = model_->TakeWeights(weights);
    if (taken.ok()) return taken;
    return MakeStatus(taken.code(), "the weights of \"{}\" are another model's: {}", run_.from,
                      taken.message());
  }

  // All go on from what rank 0 has read.
  Status ShareCheckpoint() {
    if (trainers_ == nullptr) return Status::Ok();
    if (!run_.resume && run_.from.empty() && options_.task != NodeTask::kRegression) return Status::Ok();
    const bool first = trainers_->rank() == 0;
    std::vector<std::byte> state;
    if (first) state = EncodeTrainState(progress_, *model_);
    std::array<uint64_t, 1> bytes = {state.size()};
    QUARRY_RETURN_IF_ERROR(trainers_->Broadcast(std::as_writable_bytes(std::span(bytes)), 0));
    state.resize(bytes[0]);
    QUARRY_RETURN_IF_ERROR(trainers_->Broadcast(state, 0));
    return Agree(trainers_, first ? Status::Ok() : DecodeTrainState(state, progress_, *model_));
  }

  // The time of the run, including the part before it was resumed.
  double Seconds() const { return seconds_before_ + MonotonicSeconds() - start_; }

  bool StopsEarly() const {
    return options_.patience > 0 && progress_.epochs_since_best >= options_.patience;
  }

  // Brings a road whose batches repeat to where the checkpoint was taken.
  Status SkipToCheckpoint() {
    const uint32_t behind = progress_.summary.epochs % run_.epochs_of_cycle;
    for (uint32_t i = 1; i <= behind; i++) {
      QUARRY_TRY(
          const std::unique_ptr<BatchStream> stream,
          road_.StartSplit(Split::kTrain, {.pass = progress_.summary.epochs - behind + i, .ordered = true}));
      for (uint64_t done = 0;; done++) {
        QUARRY_RETURN_IF_ERROR(Progress("skipping trained batches", done, stream->batch_count()));
        QUARRY_TRY(const std::unique_ptr<Batch> batch, stream->Next());
        if (!batch) break;
      }
    }
    return Status::Ok();
  }

  Status Progress(std::string_view phase, uint64_t done, uint64_t total) const {
    return callbacks_.progress ? callbacks_.progress(phase, done, total) : Status::Ok();
  }

  Status RunEpoch(uint32_t epoch) {
    EpochReport report;
    report.epoch = epoch;
    report.learning_rate =
        ScheduledRate(options_.learning_rate, options_.schedule, options_.schedule_epochs, epoch);
    model_->SetLearningRate(report.learning_rate);
    QUARRY_RETURN_IF_ERROR(TrainPass(report));
    const double valid_start = MonotonicSeconds();
    QUARRY_TRY(report.valid, Evaluate(Split::kValid, kValidPass, "validation", report.valid_stats));
    report.valid_seconds = MonotonicSeconds() - valid_start;
    Account(report);
    const Status taken = TakeCheckpoint(report);
    return Agree(trainers_, taken.ok() && callbacks_.epoch ? callbacks_.epoch(report) : taken);
  }

  // Where one is due behind the epoch.
  Status TakeCheckpoint(EpochReport& report) {
    if (!checkpoints_.Due(report.stats.batches, report.epoch == options_.epochs || StopsEarly())) {
      return Status::Ok();
    }
    progress_.summary.seconds = Seconds();
    QUARRY_TRY(report.checkpoint_seconds, checkpoints_.Take(progress_, *model_));
    return Status::Ok();
  }

  // What the epoch changes in the progress of the run.
  void Account(EpochReport& report) {
    TrainSummary& summary = progress_.summary;
    AddStats(report.stats, summary.stats);
    summary.epochs = report.epoch;
    summary.train_seconds += report.seconds;
    report.best = !report.valid || !summary.valid ||
                  report.valid->selection_metric() > summary.valid->selection_metric();
    progress_.epochs_since_best = report.best ? 0 : progress_.epochs_since_best + 1;
    if (!report.best) return;
    model_->Save();
    summary.best_epoch = report.epoch;
    summary.best_loss = report.loss;
    summary.valid = report.valid;
  }

  // The targets of a batch's seeds; none of classes.
  Result<std::span<const float>> TargetsOf(const BatchView& view) {
    if (!on_targets()) return std::span<const float>();
    const ScopedSpan span("targets", view.index);
    QUARRY_RETURN_IF_ERROR(ReadTargets(*options_.targets, options_.task, view.seeds(), targets_));
    return std::span<const float>(targets_);
  }

  Status TrainPass(EpochReport& report) {
    const double start = MonotonicSeconds();
    Result<std::unique_ptr<BatchStream>> started =
        road_.StartSplit(Split::kTrain, {.pass = report.epoch, .ordered = options_.ordered});
    QUARRY_RETURN_IF_ERROR(Agree(trainers_, started.status()));
    const std::unique_ptr<BatchStream> stream = std::move(started).value();
    std::array<double, 1> loss_sum = {0};
    uint64_t seeds = 0;
    for (uint64_t done = 0;; done++) {
      StepShare share;
      const Status made = MakeShare(*stream, done, share, loss_sum[0], report);
      QUARRY_TRY(const StepShare total, Average(made, share));
      if (total.batches == 0) break;
      seeds += total.seeds;
      const ScopedSpan span("step", done);
      const double step_start = MonotonicSeconds();
      if (total.seeds > 0) QUARRY_RETURN_IF_ERROR(model_->Step());
      report.compute_seconds += MonotonicSeconds() - step_start;
    }
    if (trainers_ != nullptr) QUARRY_RETURN_IF_ERROR(trainers_->AllReduceSum(loss_sum));
    if (seeds == 0) {
      return MakeStatus(Code::kInvalidArgument, "none of the {} training nodes has a {}",
                        road_.CountNodes(Split::kTrain), on_targets() ? "target" : "label");
    }
    report.loss = loss_sum[0] / static_cast<double>(seeds);
    if (!std::isfinite(report.loss)) {
      return MakeStatus(
          Code::kInvalidArgument,
          "the loss of epoch {} is {}: lower the learning rate ({}), or scale the features (they may hold "
          "NaN or very large values)",
          report.epoch, report.loss, options_.learning_rate);
    }
    report.stats = stream->stats();
    report.seconds = MonotonicSeconds() - start;
    return Status::Ok();
  }

  // The next batch, if there is one: leaves its gradients in the model. The batch itself is gone when others
  // are waited for: they may need its room for theirs.
  Status MakeShare(BatchStream& stream, uint64_t done, StepShare& share, double& loss_sum,
                   EpochReport& report) {
    QUARRY_RETURN_IF_ERROR(Progress(fmt::format("epoch {}", report.epoch), done, stream.batch_count()));
    QUARRY_TRY(const std::unique_ptr<Batch> batch, stream.Next());
    if (!batch) return Status::Ok();
    const ScopedSpan span("compute", batch->index());
    const double start = MonotonicSeconds();
    const BatchView& view = batch->view();
    QUARRY_TRY(const std::span<const float> targets, TargetsOf(view));
    share = {.batches = 1,
             .seeds = on_targets() ? CountTargeted(targets, width_) : CountLabelled(view.labels)};
    if (share.seeds == 0) return Status::Ok();
    progress_.scale.Scale(targets_);
    const uint64_t dropout_seed = MixSeed(options_.seed, report.epoch, view.index);
    QUARRY_TRY(const float loss, model_->ComputeGradients(view, dropout_seed, targets));
    loss_sum += static_cast<double>(loss) * static_cast<double>(share.seeds);
    report.compute_seconds += MonotonicSeconds() - start;
    return Status::Ok();
  }

  // The gradients of all trainers' shares of a step.
  Result<StepShare> Average(const Status& made, const StepShare& share) {
    if (exchange_) return exchange_->Average(made, share, model_->Gradients());
    QUARRY_RETURN_IF_ERROR(made);
    return share;
  }

  // Nothing when none of the split's nodes has a label, or a target. Trainers share the nodes, and all have the result.
  Result<std::optional<Evaluation>> Evaluate(Split split, uint64_t pass, std::string_view phase,
                                             StreamStats& stats) {
    if (road_.CountNodes(split) == 0) return std::optional<Evaluation>();
    if (options_.whole_graph != nullptr) return EvaluateGraph(split, phase, stats);
    if (!road_.Serves(split)) return std::optional<Evaluation>();
    Scores scores(options_.task, width_);
    QUARRY_RETURN_IF_ERROR(Agree(trainers_, ScoreAll(split, pass, phase, scores, stats)));
    if (trainers_ != nullptr) QUARRY_RETURN_IF_ERROR(scores.Gather(*trainers_));
    return scores.Evaluate();
  }

  Status ScoreAll(Split split, uint64_t pass, std::string_view phase, Scores& scores, StreamStats& stats) {
    QUARRY_TRY(const std::unique_ptr<BatchStream> stream,
               road_.StartSplit(split, {.shuffle = false, .pass = pass, .ordered = options_.ordered}));
    for (uint64_t done = 0;; done++) {
      QUARRY_RETURN_IF_ERROR(Progress(phase, done, stream->batch_count()));
      QUARRY_TRY(const std::unique_ptr<Batch> batch, stream->Next());
      if (!batch) break;
      const ScopedSpan span("evaluate", batch->index());
      QUARRY_TRY(const std::span<const float> outputs, model_->Predict(batch->view()));
      if (!on_targets()) {
        scores.Add(outputs, batch->view().labels);
        continue;
      }
      QUARRY_RETURN_IF_ERROR(TargetsOf(batch->view()).status());
      outputs_.assign(outputs.begin(), outputs.end());
      QUARRY_RETURN_IF_ERROR(ScoreTargets(split, batch->view().seeds(), scores));
    }
    stats = stream->stats();
    return Status::Ok();
  }

  // Scores the nodes of the split, as all nodes pass by in their order.
  Result<std::optional<Evaluation>> EvaluateGraph(Split split, std::string_view phase, StreamStats& stats) {
    std::vector<NodeId> nodes = road_.SplitNodes(split);
    std::ranges::sort(nodes);
    Scores scores(options_.task, width_);
    size_t next = 0;
    std::vector<NodeId> some;
    const auto take = [&](NodeId first, std::span<const float> rows) -> Status {
      const uint64_t end = first + rows.size() / width_;
      while (next < nodes.size() && nodes[next] < end) {
        some.clear();
        outputs_.clear();
        for (; next < nodes.size() && nodes[next] < end && some.size() < kScoredAtOnce; next++) {
          const auto row = rows.subspan((nodes[next] - first) * width_, width_);
          some.push_back(nodes[next]);
          outputs_.insert(outputs_.end(), row.begin(), row.end());
        }
        QUARRY_RETURN_IF_ERROR(Score(split, some, scores));
      }
      return Status::Ok();
    };
    QUARRY_TRY(const GraphPass pass,
               InferLayers(model_->layers(), options_.layers, *options_.whole_graph, options_.row_norm, take,
                           [&](uint64_t done, uint64_t total) { return Progress(phase, done, total); }));
    const LayerPass sum = pass.Sum();
    stats.feature_bytes_read = sum.row_bytes;
    stats.topology_bytes_read = sum.edge_bytes + pass.sample_bytes;
    return scores.Evaluate();
  }

  // The outputs of these nodes are in outputs_.
  Status Score(Split split, std::span<const NodeId> nodes, Scores& scores) {
    if (!on_targets()) {
      labels_.clear();
      for (const NodeId node : nodes) labels_.push_back(road_.labels()[node]);
      scores.Add(outputs_, labels_);
      return Status::Ok();
    }
    QUARRY_RETURN_IF_ERROR(ReadTargets(*options_.targets, options_.task, nodes, targets_));
    return ScoreTargets(split, nodes, scores);
  }

  // So are their targets in targets_. The test tells persistence, too, where targets are later rows.
  Status ScoreTargets(Split split, std::span<const NodeId> nodes, Scores& scores) {
    progress_.scale.Unscale(outputs_);
    scores.AddTargets(outputs_, targets_);
    if (split != Split::kTest) return Status::Ok();
    present_.resize(targets_.size());
    QUARRY_TRY(const bool later, options_.targets->ReadPresent(nodes, present_));
    if (later) scores.AddPresent(present_, targets_);
    return Status::Ok();
  }

  static constexpr size_t kScoredAtOnce = 4096;  // nodes, whose targets are read together

  Road& road_;
  const TrainOptions& options_;
  const TrainCallbacks& callbacks_;
  const TrainRun& run_;
  TrainCheckpoints checkpoints_;
  Communicator* const trainers_;  // null: alone
  std::optional<GradientExchange> exchange_;
  TrainProgress progress_;
  double start_ = 0;
  double seconds_before_ = 0;  // this call
  uint32_t width_ = 0;         // classes, or columns of the targets
  std::unique_ptr<NodeModel> model_;
  std::vector<float> targets_, outputs_,
      present_;  // of the current batch, or of nodes that are scored together
  std::vector<int64_t> labels_;
};

}  // namespace

Result<TrainSummary> Train(Road& road, const TrainOptions& options, const TrainCallbacks& callbacks,
                           const TrainRun& run, Communicator* trainers) {
  QUARRY_RETURN_IF_ERROR(CheckOptions(options));
  return Trainer(road, options, callbacks, run, trainers).Run();
}

}  // namespace quarry
