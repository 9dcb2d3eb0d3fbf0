#include "quarry/trainer/predict.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "infer_layers.h"
#include "node_model.h"
#include "passes.h"
#include "quarry/base/trace.h"
#include "targets.h"
#include "train_checkpoint.h"

namespace quarry {
namespace {

void Softmax(std::span<float> row) {
  const float largest = *std::ranges::max_element(row);
  float sum = 0;
  for (float& value : row) sum += value = std::exp(value - largest);
  for (float& value : row) value /= sum;
}

class PredictorImpl final : public Predictor {
 public:
  PredictorImpl(std::unique_ptr<NodeModel> model, const TrainOptions& options, uint32_t class_count,
                TargetScale scale)
      : model_(std::move(model)),
        task_(options.task),
        scale_(std::move(scale)),
        class_count_(class_count),
        layers_(options.layers),
        norm_(options.row_norm),
        hidden_(options.layers > 1 ? options.hidden : 0) {}

  uint32_t class_count() const override { return class_count_; }
  uint32_t width(PredictedRows rows) const override {
    return rows == PredictedRows::kScores ? class_count_ : hidden_;
  }

  Status Predict(Road& road, std::vector<NodeId> nodes, PredictedRows rows, const PredictionSink& sink,
                 const std::function<Status(uint64_t, uint64_t)>& progress) override {
    QUARRY_TRY(
        const std::unique_ptr<BatchStream> stream,
        road.StartPass({.seeds = std::move(nodes), .shuffle = false, .pass = kTestPass, .ordered = true}));
    for (uint64_t done = 0;; done++) {
      if (progress) QUARRY_RETURN_IF_ERROR(progress(done, stream->batch_count()));
      QUARRY_TRY(const std::unique_ptr<Batch> batch, stream->Next());
      if (!batch) return Status::Ok();
      const ScopedSpan span("predict", batch->index());
      QUARRY_TRY(const std::span<const float> told, RowsOf(batch->view(), rows));
      QUARRY_RETURN_IF_ERROR(sink(batch->view().seeds(), told));
    }
  }

  Result<GraphPass> PredictGraph(
      const GraphSource& source, PredictedRows rows, const PredictionSink& sink,
      const std::function<Status(uint64_t done, uint64_t total)>& progress) override {
    const uint32_t layers = rows == PredictedRows::kEmbeddings ? layers_ - 1 : layers_;
    std::vector<NodeId> nodes;
    return InferLayers(
        model_->layers(), layers, source, norm_,
        [&](NodeId first, std::span<const float> told) {
          nodes.resize(told.size() / width(rows));
          std::iota(nodes.begin(), nodes.end(), first);
          return sink(nodes, rows == PredictedRows::kEmbeddings ? told : Scores(told));
        },
        [&](uint64_t done, uint64_t total) { return progress ? progress(done, total) : Status::Ok(); });
  }

 private:
  Result<std::span<const float>> RowsOf(const BatchView& batch, PredictedRows rows) {
    QUARRY_TRY(const std::span<const float> logits, model_->Predict(batch));
    if (rows == PredictedRows::kEmbeddings) return model_->embeddings();
    return Scores(logits);
  }

  // What the outputs of the last layer say, by the task.
  std::span<const float> Scores(std::span<const float> outputs) {
    scores_.assign(outputs.begin(), outputs.end());
    switch (task_) {
      case NodeTask::kClasses:
        for (size_t at = 0; at < scores_.size(); at += class_count_) {
          Softmax(std::span(scores_).subspan(at, class_count_));
        }
        break;
      case NodeTask::kRegression:
        scale_.Unscale(scores_);
        break;
      case NodeTask::kMultiLabel:
        for (float& score : scores_) score = 1 / (1 + std::exp(-score));
        break;
    }
    return scores_;
  }

  const std::unique_ptr<NodeModel> model_;
  const NodeTask task_;
  const TargetScale scale_;
  const uint32_t class_count_, layers_;
  const RowNorm norm_;
  const uint32_t hidden_;
  std::vector<float> scores_;
};

// A model with the weights of the run's last checkpoint that were tested.
struct TrainedModel {
  std::unique_ptr<NodeModel> model;
  uint32_t class_count = 0;
  TargetScale scale;
};

Result<TrainedModel> OpenModel(TrainingStates& states, std::string_view run, const TrainOptions& options,
                               uint32_t feature_dim, bool split_products = false) {
  QUARRY_TRY(const std::vector<std::byte> state, states.Read(run));
  const auto explain = [&](const Status& status) {
    return MakeStatus(status.code(), "{}: run \"{}\": {}", states.path(), run, status.message());
  };
  const Result<uint32_t> class_count = ClassCountOf(state, options.task);
  if (!class_count.ok()) return explain(class_count.status());
  TrainedModel trained{.model = nullptr, .class_count = *class_count, .scale = {}};
  QUARRY_TRY(trained.model, NodeModel::Make(options, feature_dim, *class_count, split_products));
  TrainProgress progress{.task = options.task, .class_count = *class_count};
  if (const Status taken = DecodeTrainState(state, progress, *trained.model); !taken.ok())
    return explain(taken);
  trained.model->Restore();
  trained.scale = std::move(progress.scale);
  return trained;
}

}  // namespace

Result<std::unique_ptr<Predictor>> Predictor::Open(TrainingStates& states, std::string_view run,
                                                   const TrainOptions& options, uint32_t feature_dim,
                                                   bool split_products) {
  QUARRY_TRY(TrainedModel trained, OpenModel(states, run, options, feature_dim, split_products));
  return std::unique_ptr<Predictor>(
      std::make_unique<PredictorImpl>(std::move(trained.model), options, trained.class_count, trained.scale));
}

Result<std::vector<NamedTensor>> ReadWeights(TrainingStates& states, std::string_view run,
                                             const TrainOptions& options, uint32_t feature_dim) {
  QUARRY_TRY(const TrainedModel trained, OpenModel(states, run, options, feature_dim));
  return trained.model->Weights();
}

}  // namespace quarry
