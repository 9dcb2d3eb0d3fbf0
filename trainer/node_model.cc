#include "node_model.h"

#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "gnn_layers.h"
#include "matrix.h"
#include "quarry/base/log.h"
#include "targets.h"

namespace quarry {
namespace {

constexpr int64_t kIgnoredLabel = -1;

void SetThreads(unsigned threads, bool split_products) {
  if (!SetBlasThreads(split_products ? 1 : threads, threads) && !at::hasMKL()) {
    LogWarn(
        "LibTorch's BLAS is neither OpenBLAS nor MKL, and may be 30 times slower; install "
        "libopenblas0-pthread");
  }
}

GnnLayersOptions LayersOptions(const TrainOptions& options, uint32_t feature_dim, uint32_t class_count,
                               bool split_products) {
  GnnLayersOptions layers{.spec = options.spec,
                          .learning_rate = options.learning_rate,
                          .weight_decay = options.weight_decay,
                          .dropout = options.dropout,
                          .input_dropout = options.input_dropout,
                          .row_norm = options.row_norm,
                          .seed = options.seed,
                          .degrees = options.degrees,
                          .weights = options.weights,
                          .inputs = options.inputs,
                          .threads = options.torch_threads,
                          .split_products = split_products};
  layers.widths.assign(options.layers, options.hidden);
  if (options.spec.needs_relations()) {
    layers.inputs.types = options.inputs.TypesOr(feature_dim);
  } else {
    layers.widths.front() = feature_dim;
  }
  layers.widths.push_back(class_count);
  return layers;
}

class NodeModelImpl final : public NodeModel {
 public:
  NodeModelImpl(std::unique_ptr<GnnLayers> layers, const TrainOptions& options, uint32_t class_count)
      : layers_(std::move(layers)),
        task_(options.task),
        regression_loss_(options.regression_loss),
        class_count_(class_count) {}

  Result<float> ComputeGradients(const BatchView& batch, uint64_t dropout_seed,
                                 std::span<const float> targets) override {
    QUARRY_RETURN_IF_ERROR(layers_->Forward(batch, dropout_seed));
    float loss = 0;
    if (task_ != NodeTask::kClasses) {
      output_gradients_.resize(targets.size());
      loss = TargetLoss(task_, regression_loss_, layers_->output(), targets, class_count_, output_gradients_);
      QUARRY_RETURN_IF_ERROR(layers_->Backward(batch, output_gradients_.data()));
      return loss;
    }
    torch::Tensor gradient;
    QUARRY_RETURN_IF_ERROR(GuardTorch([&] {
      gradient = Loss(batch.labels, loss);
      return Status::Ok();
    }));
    QUARRY_RETURN_IF_ERROR(layers_->Backward(batch, gradient.data_ptr<float>()));
    return loss;
  }
  Status Step() override { return layers_->Step(); }
  void SetLearningRate(double rate) override { layers_->SetLearningRate(rate); }

  Result<std::span<const float>> Predict(const BatchView& batch) override {
    QUARRY_RETURN_IF_ERROR(layers_->Forward(batch, std::nullopt));
    return std::span<const float>(layers_->output());
  }

  std::span<const float> embeddings() override { return layers_->hidden(); }

  void Save() override { layers_->Save(); }
  void Restore() override { layers_->Restore(); }
  std::vector<std::byte> State() const override { return layers_->State(); }
  Status TakeState(std::span<const std::byte> state) override { return layers_->TakeState(state); }
  std::vector<NamedTensor> Weights() const override { return layers_->Weights(); }
  Status TakeWeights(std::span<const NamedTensor> weights) override { return layers_->TakeWeights(weights); }
  GnnLayers& layers() override { return *layers_; }
  std::vector<std::span<float>> Parameters() override { return layers_->Parameters(); }
  std::vector<std::span<float>> Gradients() override { return layers_->Gradients(); }
  uint64_t activation_bytes() const override { return layers_->activation_bytes(); }

 private:
  // Cross-entropy of the logits that Forward left; returns their gradient.
  torch::Tensor Loss(std::span<const int64_t> labels, float& loss) {
    const torch::Tensor target = torch::from_blob(const_cast<int64_t*>(labels.data()),
                                                  {static_cast<int64_t>(labels.size())}, torch::kInt64);
    torch::Tensor logits =
        torch::from_blob(layers_->output().data(), {static_cast<int64_t>(labels.size()), class_count_})
            .requires_grad_();
    torch::Tensor value = torch::nn::functional::cross_entropy(
        logits, target, torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kIgnoredLabel));
    value.backward();
    loss = value.item<float>();
    return logits.grad().contiguous();
  }

  const std::unique_ptr<GnnLayers> layers_;
  const NodeTask task_;
  const RegressionLoss regression_loss_;
  const uint32_t class_count_;  // columns of the output
  std::vector<float> output_gradients_;
};

}  // namespace

uint32_t CountLabelled(std::span<const int64_t> labels) {
  return static_cast<uint32_t>(std::ranges::count_if(labels, [](int64_t label) { return label >= 0; }));
}

Result<float> NodeModel::TrainStep(const BatchView& batch, uint64_t dropout_seed,
                                   std::span<const float> targets) {
  const bool learns =
      targets.empty() ? CountLabelled(batch.labels) > 0
                      : CountTargeted(targets, static_cast<uint32_t>(targets.size() / batch.seed_count)) > 0;
  if (!learns) return 0.0F;
  QUARRY_TRY(const float loss, ComputeGradients(batch, dropout_seed, targets));
  QUARRY_RETURN_IF_ERROR(Step());
  return loss;
}

Result<std::unique_ptr<NodeModel>> NodeModel::Make(const TrainOptions& options, uint32_t feature_dim,
                                                   uint32_t class_count, bool split_products) {
  QUARRY_RETURN_IF_ERROR(GuardTorch([&] {
    SetThreads(options.torch_threads, split_products);
    return Status::Ok();
  }));
  QUARRY_TRY(std::unique_ptr<GnnLayers> layers,
             GnnLayers::Make(LayersOptions(options, feature_dim, class_count, split_products)));
  return std::unique_ptr<NodeModel>(std::make_unique<NodeModelImpl>(std::move(layers), options, class_count));
}

}  // namespace quarry
