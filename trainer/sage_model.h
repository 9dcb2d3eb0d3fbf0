// SageModel: GraphSAGE-mean with an explicit forward and backward pass over preallocated buffers.
//
// Layer l of k turns the rows of hop k-l+1's prefix into those of hop k-l's (engine/sampling/block.h):
//
//   input_l  = [h | mean of sampled neighbors' h]      [n_l, 2 * width_{l-1}]   AggregateMean
//   output_l = dropout(relu(input_l W_l + b_l))        [n_l, width_l]           one GEMM, ActivateRows
//
// The last layer has no activation. Why no autograd below the loss: with the buffers in our own hands the
// gradient of an activation overwrites it, and the gradient of a layer's input overwrites that input, so a
// step holds each activation once (two to three times less than a tape) and allocates nothing after the first
// batch.
//
// One thread drives a model; LibTorch's threads work under it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/trainer/train.h"

namespace quarry {

class SageModel {
 public:
  // Weights are drawn from options.seed (Glorot uniform), biases are 0. Sets the process's LibTorch and BLAS
  // threads.
  static Result<std::unique_ptr<SageModel>> Make(const TrainOptions& options, uint32_t feature_dim,
                                                 uint32_t class_count);
  virtual ~SageModel() = default;

  // Forward, backward and one step of Adam; the mean loss over the seeds whose label is not -1 (0 and no step
  // when there is none). The dropout masks depend on `dropout_seed`. kUsage when the block's hops are not the
  // layers.
  virtual Result<float> TrainStep(const Block& block, const FeatureView& features,
                                  std::span<const int64_t> labels, uint64_t dropout_seed) = 0;

  // The logits [seeds, classes], without dropout; valid until the next call.
  virtual Result<std::span<const float>> Predict(const Block& block, const FeatureView& features) = 0;

  // Sets the weights aside, and takes them back. REQUIRES: Restore after Save.
  virtual void Save() = 0;
  virtual void Restore() = 0;

  // By layer: weight [2 * in, out] row-major, bias [out]; gradients likewise, of the last TrainStep.
  virtual std::vector<std::span<float>> Parameters() = 0;
  virtual std::vector<std::span<const float>> Gradients() const = 0;

  virtual uint64_t activation_bytes() const = 0;  // held now
};

// Activations are reused from batch to batch. The first layer's input is kept for the backward pass up to
// this size and gathered again beyond it: wide rows (thousands of columns) would otherwise need gigabytes.
inline constexpr uint64_t kKeptInputBytes = uint64_t{256} << 20;
// A tile of the first layer's input: aggregated, then multiplied while it is in the last-level cache.
inline constexpr uint64_t kTileBytes = uint64_t{8} << 20;
inline constexpr uint32_t kTileRowsMin = 512;

}  // namespace quarry
