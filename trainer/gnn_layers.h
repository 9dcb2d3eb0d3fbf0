// GnnLayers: the layers of a graph neural network, with an explicit forward and backward pass over preallocated
// buffers, and their optimizer. NodeModel puts a loss on them, LinkEncoder a decoder.
//
// Layer l of k turns the rows of hop k-l+1's prefix into those of hop k-l's (quarry/sampling/block.h). What a layer
// computes is its own (layer.h: gathered_layer.h, gin_layer.h, gat_layer.h, rgcn_layer.h, rgat_layer.h); then all have
//
//   output_l = dropout(activation(output_l + b_l))        ReLU, or GAT's ELU; the last layer has no activation
//
// Why no autograd below the loss: with the buffers in our own hands the gradient of an activation overwrites it, and the
// gradient of a layer's input overwrites that input, so a step holds each activation once (two to three times less than a
// tape) and allocates nothing after the first batch.
//
// One thread drives it; `threads - 1` of its own work under it. LibTorch's faults come back as kInternal, and
// kOutOfBudget where it finds no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph_layer.h"
#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/named_tensor.h"
#include "quarry/trainer/model_inputs.h"
#include "quarry/trainer/train.h"
#include "tiles.h"

namespace quarry {

struct GnnLayersOptions {
  ModelSpec spec;
  std::vector<uint32_t> widths;  // width of what the first layer is given, then of each layer's output
  double learning_rate = 0;      // Adam's
  double weight_decay = 0;       // L2, as Adam takes it
  double dropout = 0;            // rate for hidden activations
  double input_dropout = 0;      // rate for the first layer's inputs
  RowNorm row_norm = RowNorm::kNone;
  uint64_t seed = 0;  // determines the first weights
  // By node of the graph; of models that need them (ModelSpec::needs_degrees).
  std::shared_ptr<const std::vector<uint32_t>> degrees = nullptr;
  // By edge, in the order of edge ids; of models that need them (ModelSpec::needs_weights).
  std::shared_ptr<const std::span<const float>> weights = nullptr;
  // For models that need relations. Where it has types, an InputLayer takes their rows to the first width, activated and
  // dropped as hidden rows are.
  ModelInputs inputs = {};
  unsigned threads = 1;
  // Backward also gives the gradients of the input rows; the first layer's input is then kept whole.
  bool input_gradients = false;
  // A product is cut into pieces that the threads share out, and the results are the same bits for any number
  // of them. BLAS must then be set to one thread. Else a product is one call, and BLAS's threads share it
  // out as they like.
  bool split_products = false;
};

class GnnLayers {
 public:
  // Weights are Glorot uniform, biases 0. kUsage as CheckModel; kInternal for input gradients together with input dropout,
  // a row norm or types of rows, through which they are not carried. REQUIRES: two widths at least, none of them 0.
  static Result<std::unique_ptr<GnnLayers>> Make(const GnnLayersOptions& options);
  virtual ~GnnLayers() = default;

  // Leaves output(). With a seed, dropout by masks that depend on it; without one, none. kUsage when the
  // batch's hops are not the layers.
  virtual Status Forward(const BatchView& batch, std::optional<uint64_t> dropout_seed) = 0;
  // [seeds, last width] of the last Forward; valid until the next one.
  virtual std::span<float> output() = 0;
  // [seeds, the width before] of the last Forward: what the last layer was given of the seeds themselves; valid until
  // the next Forward or Backward. REQUIRES: more than one layer.
  virtual std::span<const float> hidden() = 0;
  // Leaves the gradients of the parameters, for `output_gradients` (as output()); the batch is that of the
  // last Forward. The input rows' too, where the options ask for it: node i's goes to row
  // batch.features.slots[i] of `input_gradients` ([rows, first width]); rows of no node stay as they are.
  virtual Status Backward(const BatchView& batch, float* output_gradients,
                          float* input_gradients = nullptr) = 0;
  // Moves the parameters against the gradients (Kingma, Ba 2015).
  virtual Status Step() = 0;
  // The rate of all steps from now on; until it is called, the options' holds.
  virtual void SetLearningRate(double rate) = 0;

  // kUnsupported of layers that a whole graph does not go through: those that weigh messages, and those above rows by type.
  virtual Status CheckGraph() const = 0;
  // Layer `l` of a whole graph, without dropout. REQUIRES: CheckGraph, and as GraphLayer's.
  virtual GraphLayer ForGraph(uint32_t l, GraphOrder order) = 0;
  virtual uint32_t layer_count() const = 0;

  // Sets the weights aside, and takes them back. REQUIRES: Restore after Save.
  virtual void Save() = 0;
  virtual void Restore() = 0;

  // Weights, Adam's moments and its steps, and the weights set aside, as bytes: with them, training goes on
  // to the same bits. TakeState: kCorruption for bytes of other widths; then the weights mean nothing.
  virtual std::vector<std::byte> State() const = 0;
  virtual Status TakeState(std::span<const std::byte> state) = 0;

  // The weights by their names, "layers.0.weight" and so on (docs/cli.md, "quarry export"), and those that stand there
  // taken instead. kInvalidArgument names the first tensor that is missing, too many or of another shape; then nothing
  // is changed.
  virtual std::vector<NamedTensor> Weights() const = 0;
  virtual Status TakeWeights(std::span<const NamedTensor> weights) = 0;

  // By layer: its weights, row-major, and its bias [out] the last of them; SAGE's weight is [2 * in, out]. Those of the
  // rows' types, where there are any, come first. Gradients likewise, of the last Backward.
  virtual std::vector<std::span<float>> Parameters() = 0;
  virtual std::vector<std::span<float>> Gradients() = 0;

  virtual uint64_t activation_bytes() const = 0;  // held now
};

// Runs `work`, and returns what it returns or, as a Status, what LibTorch throws in it.
Status GuardTorch(const std::function<Status()>& work);

}  // namespace quarry
