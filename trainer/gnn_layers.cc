#include "gnn_layers.h"

#include <torch/types.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <exception>
#include <utility>

#include "gat_layer.h"
#include "gathered_layer.h"
#include "gin_layer.h"
#include "input_layer.h"
#include "layer.h"
#include "message_weights.h"
#include "quarry/base/random.h"
#include "quarry/trainer/aggregate.h"
#include "resize_void.h"
#include "rgat_layer.h"
#include "rgcn_layer.h"
#include "state_bytes.h"

namespace quarry {
namespace {

// Streams of the dropout seed, behind those of the layers.
constexpr uint32_t kInputMask = 63, kAttentionMasks = 64;
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;  // Adam's

FeatureView HiddenView(const Matrix& hidden) {
  return {.rows = hidden.bytes(),
          .stride_bytes = hidden.columns() * sizeof(float),
          .dim = static_cast<uint32_t>(hidden.columns())};
}

// A layer, and what it gave of the current batch.
struct Level {
  std::unique_ptr<Layer> layer;
  Matrix output;
  uint32_t rows = 0;
};

std::unique_ptr<Layer> MakeLayer(LayerWork& work, const GnnLayersOptions& options, bool last, uint32_t in,
                                 uint32_t out, Rng& rng) {
  const ModelSpec& spec = options.spec;
  switch (spec.model) {
    case GnnKind::kGat:
      return MakeGatLayer(work, spec.heads, last, in, out, rng);
    case GnnKind::kGin:
      return MakeGinLayer(work, in, out, rng);
    case GnnKind::kRgcn:
      return MakeRgcnLayer(work, options.inputs.kind_count, spec.bases, in, out, rng);
    case GnnKind::kRgat:
      return MakeRgatLayer(work, options.inputs.kind_count, spec.bases, spec.heads, last, in, out, rng);
    case GnnKind::kGcn:
      return MakeGatheredLayer(
          work, Gathering{spec.weighs_messages() ? Aggregator::kSum : Aggregator::kMean, false}, in, out,
          rng);
    case GnnKind::kSage:
      break;
  }
  const Aggregator aggregator = spec.weighs_messages() ? Aggregator::kSum : spec.aggregator;
  return MakeGatheredLayer(work, Gathering{aggregator, true}, in, out, rng);
}

class GnnLayersImpl final : public GnnLayers {
 public:
  explicit GnnLayersImpl(const GnnLayersOptions& options)
      : options_(options),
        learning_rate_(options.learning_rate),
        work_(std::max(1U, options.threads), options.split_products) {
    assert(options.widths.size() >= 2);
    Rng rng(MixSeed(options.seed, 0x5a6e));
    const size_t count = options.widths.size() - 1;
    for (size_t l = 0; l < count; l++) {
      levels_.push_back(
          {MakeLayer(work_, options, l + 1 == count, options.widths[l], options.widths[l + 1], rng)});
    }
    if (!options.inputs.types.empty()) {
      inputs_ = std::make_unique<InputLayer>(work_, options.inputs, options.widths[0], rng);
      no_bias_ = torch::zeros({int64_t{options.widths[0]}});
      parameters_ = inputs_->Parameters();
      names_ = inputs_->ParameterNames();
    }
    for (size_t l = 0; l < count; l++) {
      for (Parameter* const parameter : levels_[l].layer->Parameters()) parameters_.push_back(parameter);
      for (const std::string_view name : levels_[l].layer->ParameterNames()) {
        names_.push_back(fmt::format("layers.{}.{}", l, name));
      }
    }
  }

  Status Forward(const BatchView& batch, std::optional<uint64_t> dropout_seed) override {
    dropout_seed_ = dropout_seed;
    return GuardTorch([&] { return ForwardBlock(batch); });
  }

  std::span<float> output() override {
    Level& last = levels_.back();
    return {last.output.row(0), size_t{last.rows} * last.layer->out()};
  }

  std::span<const float> hidden() override {
    Level& below = levels_[levels_.size() - 2];
    return {below.output.row(0), size_t{levels_.back().rows} * below.layer->out()};
  }

  Status Backward(const BatchView& batch, float* output_gradients, float* input_gradients) override {
    return GuardTorch([&] {
      BackwardBlock(batch, output_gradients, input_gradients);
      return Status::Ok();
    });
  }

  // By hand, as LibTorch's own Adam computes: that one files its state under keys that change from version
  // to version.
  Status Step() override {
    return GuardTorch([&] {
      steps_++;
      for (Parameter* parameter : parameters_) StepParameter(*parameter);
      return Status::Ok();
    });
  }

  void SetLearningRate(double rate) override { learning_rate_ = rate; }

  Status CheckGraph() const override {
    if (!options_.spec.weighs_messages() && inputs_ == nullptr) return Status::Ok();
    return MakeStatus(Code::kUnsupported, "a whole graph does not go through layers that are \"{}\"",
                      ToSettings(options_.spec));
  }

  GraphLayer ForGraph(uint32_t l, GraphOrder order) override {
    Layer& layer = *levels_[l].layer;
    return GraphLayer(layer, work_, order, [this, l, &layer](std::span<float> rows) {
      Activate(l, {},
               torch::from_blob(rows.data(), {static_cast<int64_t>(rows.size() / layer.out()), layer.out()}));
    });
  }
  uint32_t layer_count() const override { return static_cast<uint32_t>(levels_.size()); }

  void Save() override {
    for (Parameter* parameter : parameters_) parameter->saved = parameter->value.clone();
  }

  void Restore() override {
    for (Parameter* parameter : parameters_) parameter->value.copy_(parameter->saved);
  }

  std::vector<std::byte> State() const override {
    StateWriter writer;
    writer.Put(steps_);
    writer.Put(uint8_t{parameters_.front()->saved.defined()});
    for (const Parameter* parameter : parameters_) {
      for (const torch::Tensor* tensor : TensorsOf(*parameter)) writer.PutFloats(Span(*tensor));
    }
    return writer.Take();
  }

  Status TakeState(std::span<const std::byte> state) override {
    StateReader reader(state);
    steps_ = reader.Get<uint64_t>();
    const bool has_saved = reader.Get<uint8_t>() != 0;
    for (Parameter* parameter : parameters_) {
      parameter->saved = has_saved ? torch::zeros_like(parameter->value) : torch::Tensor();
      for (const torch::Tensor* tensor : TensorsOf(*parameter)) reader.GetFloats("weights", Span(*tensor));
    }
    const Status status = reader.Finish();
    if (status.ok()) return status;
    return MakeStatus(status.code(), "{}; the model's layers have the widths {}", status.message(),
                      fmt::join(options_.widths, ", "));
  }

  std::vector<NamedTensor> Weights() const override {
    std::vector<NamedTensor> weights;
    for (size_t p = 0; p < parameters_.size(); p++) {
      const torch::Tensor& value = parameters_[p]->value;
      const std::span<float> values = Span(value);
      weights.push_back(
          {names_[p], {value.sizes().begin(), value.sizes().end()}, {values.begin(), values.end()}});
    }
    return weights;
  }

  Status TakeWeights(std::span<const NamedTensor> weights) override {
    std::vector<const NamedTensor*> taken;
    for (size_t p = 0; p < parameters_.size(); p++) {
      const auto found = std::ranges::find(weights, names_[p], &NamedTensor::name);
      if (found == weights.end()) {
        return MakeStatus(Code::kInvalidArgument, "there is no {}, which this model has", names_[p]);
      }
      const at::IntArrayRef sizes = parameters_[p]->value.sizes();
      const NamedTensor mine{names_[p], {sizes.begin(), sizes.end()}, {}};
      if (found->shape != mine.shape) {
        return MakeStatus(Code::kInvalidArgument, "{} is {}, and of this model {}", found->name,
                          found->ShapeText(), mine.ShapeText());
      }
      taken.push_back(&*found);
    }
    for (const NamedTensor& tensor : weights) {
      if (std::ranges::count(names_, tensor.name) > 0) continue;
      return MakeStatus(Code::kInvalidArgument, "there is {}, which this model has not", tensor.name);
    }
    for (size_t p = 0; p < parameters_.size(); p++) {
      std::ranges::copy(taken[p]->values, Span(parameters_[p]->value).begin());
    }
    return Status::Ok();
  }

  std::vector<std::span<float>> Parameters() override {
    std::vector<std::span<float>> spans;
    for (Parameter* parameter : parameters_) spans.push_back(Span(parameter->value));
    return spans;
  }

  std::vector<std::span<float>> Gradients() override {
    std::vector<std::span<float>> spans;
    for (const Parameter* parameter : parameters_) spans.push_back(Span(parameter->gradient));
    return spans;
  }

  uint64_t activation_bytes() const override {
    uint64_t bytes = work_.transposed.held_bytes() + block_weights_.held_bytes() +
                     block_kinds_.capacity() * sizeof(uint32_t) +
                     (inputs_ == nullptr ? 0 : inputs_->activation_bytes());
    for (const Level& level : levels_) bytes += level.layer->activation_bytes() + level.output.mapped_bytes();
    return bytes;
  }

 private:
  // Those that are part of the state.
  static std::vector<const torch::Tensor*> TensorsOf(const Parameter& parameter) {
    std::vector<const torch::Tensor*> tensors = {&parameter.value, &parameter.mean, &parameter.square};
    if (parameter.saved.defined()) tensors.push_back(&parameter.saved);
    return tensors;
  }

  void StepParameter(Parameter& parameter) const {
    torch::Tensor gradient = parameter.gradient;
    if (options_.weight_decay != 0) gradient = gradient.add(parameter.value, options_.weight_decay);
    parameter.mean.mul_(kBeta1).add_(gradient, 1 - kBeta1);
    parameter.square.mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
    const auto steps = static_cast<double>(steps_);
    const double correction1 = 1 - std::pow(kBeta1, steps);
    const double correction2 = 1 - std::pow(kBeta2, steps);
    const torch::Tensor length = (parameter.square.sqrt() / std::sqrt(correction2)).add_(kEpsilon);
    parameter.value.addcdiv_(parameter.mean, length, -learning_rate_ / correction1);
  }

  DropoutMask Mask(double rate, uint64_t stream) const {
    return {dropout_seed_ ? rate : 0, MixSeed(dropout_seed_.value_or(0), stream)};
  }
  DropoutMask HiddenMask(uint32_t l) const { return Mask(options_.dropout, l + 1); }
  DropoutMask InputMask() const { return Mask(options_.dropout, kInputMask); }
  DropoutMask FeatureMask() const { return Mask(options_.input_dropout, 0); }

  Status CheckBatch(const BatchView& batch) const {
    if (batch.hops() != levels_.size()) {
      return MakeStatus(
          Code::kUsage,
          "the model has {} layers, but batches are sampled over {} hops; give one fanout per layer",
          levels_.size(), batch.hops());
    }
    if (inputs_ != nullptr) return inputs_->CheckBatch(batch);
    if (batch.features.dim != levels_[0].layer->in()) {
      return MakeStatus(Code::kInternal, "a batch has features of width {} for a model of width {}",
                        batch.features.dim, levels_[0].layer->in());
    }
    return Status::Ok();
  }

  // What layer l is given of the batch; for one above the first, the outputs of the layer below.
  LayerInput InputOf(const BatchView& batch, uint32_t l) const {
    const bool reads_features = l == 0 && inputs_ == nullptr;
    LayerInput input{.sources = reads_features ? batch.features
                                : l == 0       ? HiddenView(inputs_->output())
                                               : HiddenView(levels_[l - 1].output),
                     .indptr = batch.indptr,
                     .indices = batch.indices,
                     .rows = levels_[l].rows,
                     .source_rows = l == 0 ? static_cast<uint32_t>(batch.nodes.size()) : levels_[l - 1].rows,
                     .weights = block_weights_.view(),
                     .kinds = block_kinds_,
                     .attention_mask = Mask(options_.spec.attention_dropout, kAttentionMasks + l),
                     .first = reads_features,
                     .keeps = options_.input_gradients};
    if (!reads_features) return input;
    input.norm = options_.row_norm;
    input.mask = FeatureMask();
    return input;
  }

  // Looks the kinds of a batch's edges up, or takes those that it says.
  Status TellKinds(const BatchView& batch) {
    if (!options_.spec.needs_relations()) return Status::Ok();
    if (options_.inputs.kinds == nullptr) return TakeRelations(batch);
    const std::vector<uint32_t>& kinds = *options_.inputs.kinds;
    const auto beyond = [&](uint64_t edge) { return edge >= kinds.size(); };
    if (batch.edge_ids.size() != batch.indices.size() || std::ranges::any_of(batch.edge_ids, beyond)) {
      return MakeStatus(Code::kInternal, "a batch of {} edges has {} edge ids, of edges below {}",
                        batch.indices.size(), batch.edge_ids.size(), kinds.size());
    }
    ResizeVoid(block_kinds_, batch.edge_ids.size());
    std::ranges::transform(batch.edge_ids, block_kinds_.begin(), [&](uint64_t edge) { return kinds[edge]; });
    return Status::Ok();
  }

  Status TakeRelations(const BatchView& batch) {
    const auto beyond = [&](uint16_t relation) { return relation >= options_.inputs.kind_count; };
    if (batch.relations.size() != batch.indices.size() || std::ranges::any_of(batch.relations, beyond)) {
      return MakeStatus(Code::kInternal, "a batch of {} edges has {} relations, of relations below {}",
                        batch.indices.size(), batch.relations.size(), options_.inputs.kind_count);
    }
    ResizeVoid(block_kinds_, batch.relations.size());
    std::ranges::copy(batch.relations, block_kinds_.begin());
    return Status::Ok();
  }

  Status ForwardBlock(const BatchView& batch) {
    QUARRY_RETURN_IF_ERROR(CheckBatch(batch));
    QUARRY_RETURN_IF_ERROR(TellKinds(batch));
    if (options_.spec.needs_degrees()) {
      if (options_.degrees == nullptr) return Status(Code::kInternal, "a model has not been told degrees");
      QUARRY_RETURN_IF_ERROR(block_weights_.Weigh(*options_.degrees, batch, work_));
    }
    if (options_.spec.needs_weights()) {
      if (options_.weights == nullptr)
        return Status(Code::kInternal, "a model has not been told weights of edges");
      const bool means =
          options_.spec.model == GnnKind::kGcn || options_.spec.aggregator == Aggregator::kMean;
      QUARRY_RETURN_IF_ERROR(block_weights_.WeighEdges(*options_.weights, means,
                                                       options_.spec.model == GnnKind::kGcn, batch, work_));
    }
    if (inputs_ != nullptr) QUARRY_RETURN_IF_ERROR(inputs_->Resize(batch));
    for (uint32_t l = 0; l < levels_.size(); l++) {
      Level& level = levels_[l];
      level.rows = batch.hop_offsets[levels_.size() - 1 - l];
      QUARRY_RETURN_IF_ERROR(level.layer->Resize(InputOf(batch, l)));
      QUARRY_RETURN_IF_ERROR(level.output.Resize(level.rows, level.layer->out()));
    }
    if (inputs_ != nullptr) {
      inputs_->Forward(batch, options_.row_norm, FeatureMask());
      ActivateHidden(no_bias_, InputMask(), inputs_->output().All());
    }
    for (uint32_t l = 0; l < levels_.size(); l++) {
      Level& level = levels_[l];
      level.layer->Forward(InputOf(batch, l), level.output.All());
      Activate(l, HiddenMask(l), level.output.All());
    }
    return Status::Ok();
  }

  void Activate(uint32_t l, const DropoutMask& mask, const torch::Tensor& output) {
    Layer& layer = *levels_[l].layer;
    if (l + 1 == levels_.size()) {
      output.add_(layer.bias().value);
      return;
    }
    ActivateHidden(layer.bias().value, mask, output);
  }

  // Rows that a layer reads.
  void ActivateHidden(const torch::Tensor& bias, const DropoutMask& mask, const torch::Tensor& output) {
    float* const values = output.data_ptr<float>();
    const std::span<const float> added = Span(bias);
    const auto activate = options_.spec.has_heads() ? ActivateEluRows : ActivateRows;
    work_.ForRows(0, static_cast<uint32_t>(output.size(0)), [&](uint32_t begin, uint32_t end) {
      activate(added, mask, begin, end, values + uint64_t{begin} * added.size());
    });
  }

  // From the last layer to the first. A layer needs the outputs of the one below only until it has the gradients of its
  // weights: right after that, the gradients of what was activated there replace them.
  void BackwardBlock(const BatchView& batch, float* output_gradients, float* input_gradients) {
    for (auto l = static_cast<uint32_t>(levels_.size()); l-- > 0;) {
      Level& level = levels_[l];
      const torch::Tensor gradient =
          l + 1 == levels_.size() ? torch::from_blob(output_gradients, {level.rows, level.layer->out()})
                                  : level.output.All();
      at::sum_out(level.layer->bias().gradient, gradient, {0});
      SourceGradients sources;
      if (l > 0) {
        sources = {.rows = levels_[l - 1].output.row(0), .mask = HiddenMask(l - 1)};
      } else if (inputs_ != nullptr) {
        sources = {.rows = inputs_->output().row(0), .mask = InputMask()};
      } else {
        sources = {.rows = input_gradients, .slots = batch.features.slots};
      }
      const bool asked = l > 0 || inputs_ != nullptr || options_.input_gradients;
      level.layer->Backward(InputOf(batch, l), gradient, asked ? &sources : nullptr);
    }
    if (inputs_ != nullptr) inputs_->Backward(batch, options_.row_norm, FeatureMask());
  }

  const GnnLayersOptions options_;
  double learning_rate_;  // of the next step
  LayerWork work_;
  std::unique_ptr<InputLayer> inputs_;  // null: the first layer reads rows as they are
  torch::Tensor no_bias_;               // what is activated above it has been biased by type
  std::vector<Level> levels_;
  std::vector<Parameter*> parameters_;    // those of all layers, in the order of Parameters()
  std::vector<std::string> names_;        // of the same
  BlockWeights block_weights_;            // of the last Forward, where messages have weights
  std::vector<uint32_t> block_kinds_;     // of its edges, where relations are told apart
  uint64_t steps_ = 0;                    // Adam's
  std::optional<uint64_t> dropout_seed_;  // the last Forward's
};

}  // namespace

Status GuardTorch(const std::function<Status()>& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    return MakeStatus(Code::kInternal, "LibTorch: {}", error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return MakeStatus(Code::kOutOfBudget,
                      "LibTorch found no memory for a batch; use a smaller batch or fewer hidden units");
  } catch (const std::exception& error) {
    return MakeStatus(Code::kInternal, "LibTorch: {}", error.what());
  }
}

Result<std::unique_ptr<GnnLayers>> GnnLayers::Make(const GnnLayersOptions& options) {
  const auto layer_count = static_cast<uint32_t>(options.widths.size() - 1);
  QUARRY_RETURN_IF_ERROR(CheckModel(options.spec, layer_count, options.widths[1]));
  const bool carries =
      options.input_dropout == 0 && options.row_norm == RowNorm::kNone && options.inputs.types.empty();
  if (options.input_gradients && !carries) {
    return Status(Code::kInternal,
                  "gradients of input rows are not carried through input dropout, a row norm or types");
  }
  if (options.spec.needs_relations() && options.inputs.kind_count == 0) {
    return Status(Code::kInternal, "a model has not been told relations of edges");
  }
  std::unique_ptr<GnnLayers> layers;
  QUARRY_RETURN_IF_ERROR(GuardTorch([&] {
    layers = std::make_unique<GnnLayersImpl>(options);
    return Status::Ok();
  }));
  return layers;
}

}  // namespace quarry
