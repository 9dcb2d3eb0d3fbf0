// NodeModel: a model of nodes' classes or targets: GnnLayers, the loss of the task on top, and a step.
//
// One thread drives a model; LibTorch's threads work under it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/named_tensor.h"
#include "quarry/trainer/train.h"

namespace quarry {

class GnnLayers;

// Seeds that have a label.
uint32_t CountLabelled(std::span<const int64_t> labels);

class NodeModel {
 public:
  // Weights are drawn from options.seed (Glorot uniform), biases are 0. Sets the process's LibTorch and BLAS
  // threads. `split_products`: as GnnLayersOptions'.
  static Result<std::unique_ptr<NodeModel>> Make(const TrainOptions& options, uint32_t feature_dim,
                                                 uint32_t class_count, bool split_products = false);
  virtual ~NodeModel() = default;

  // Forward and backward: leaves the gradients of the mean loss over the seeds whose label is not -1 or, where the task is
  // not that of classes, that have one of `targets` ([seeds, class_count]: targets.h), and returns it. The dropout masks
  // depend on `dropout_seed`. kUsage when the batch's hops are not the layers. REQUIRES: there is such a seed.
  virtual Result<float> ComputeGradients(const BatchView& batch, uint64_t dropout_seed,
                                         std::span<const float> targets = {}) = 0;
  // One step of Adam, against the gradients.
  virtual Status Step() = 0;
  virtual void SetLearningRate(double rate) = 0;  // as GnnLayers'
  // Both; 0 and no step when no seed has a label, or a target.
  Result<float> TrainStep(const BatchView& batch, uint64_t dropout_seed, std::span<const float> targets = {});

  // The logits [seeds, classes], or what targets are held against, without dropout; valid until the next call.
  virtual Result<std::span<const float>> Predict(const BatchView& batch) = 0;
  // What the last layer was given of the seeds by the last Predict, [seeds, hidden]; valid until the next call.
  // REQUIRES: more than one layer.
  virtual std::span<const float> embeddings() = 0;

  // Sets the weights aside, and takes them back. REQUIRES: Restore after Save.
  virtual void Save() = 0;
  virtual void Restore() = 0;

  // GnnLayers' state: with it, training goes on to the same bits. TakeState: kCorruption for bytes of a
  // model of other widths; then the weights mean nothing.
  virtual std::vector<std::byte> State() const = 0;
  virtual Status TakeState(std::span<const std::byte> state) = 0;

  // As GnnLayers'.
  virtual std::vector<NamedTensor> Weights() const = 0;
  virtual Status TakeWeights(std::span<const NamedTensor> weights) = 0;

  virtual GnnLayers& layers() = 0;
  // As GnnLayers'; gradients likewise, of the last ComputeGradients.
  virtual std::vector<std::span<float>> Parameters() = 0;
  virtual std::vector<std::span<float>> Gradients() = 0;

  virtual uint64_t activation_bytes() const = 0;  // held now
};

}  // namespace quarry
