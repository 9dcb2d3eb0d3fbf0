#include "sage_layers.h"

#include <torch/types.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <exception>
#include <utility>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "quarry/trainer/aggregate.h"
#include "state_bytes.h"
#include "task_pool.h"

namespace quarry {
namespace {

constexpr uint32_t kRowsPerTask = 64;    // least work worth handing to another thread
constexpr uint32_t kTasksPerThread = 8;  // so that a thread that is held up does not hold up the others
// Rows of a piece of a product: of nodes, and of a weight's gradient, whose rows are few and long.
constexpr int64_t kProductRows = 512;
constexpr int64_t kWeightRows = 32;
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;  // Adam's

// A matrix whose memory is kept and grows with the largest batch so far. Huge pages, since the kernels gather
// random rows from it.
class Matrix {
 public:
  // The slack for later, larger batches goes no further than `slack_bytes_max`.
  Status Resize(uint64_t rows, uint64_t columns, uint64_t slack_bytes_max = UINT64_MAX) {
    rows_ = rows;
    columns_ = columns;
    const uint64_t bytes = rows * columns * sizeof(float);
    if (bytes <= buffer_.size()) return Status::Ok();
    buffer_ = IoBuffer();  // the contents are void: do not hold both at once
    QUARRY_TRY(buffer_, IoBuffer::Allocate(std::max(bytes, std::min(bytes + bytes / 8, slack_bytes_max))));
    return Status::Ok();
  }
  float* row(uint64_t i) { return reinterpret_cast<float*>(buffer_.data()) + i * columns_; }
  // A view of rows [begin, end); valid until Resize.
  torch::Tensor Rows(uint64_t begin, uint64_t end) {
    return torch::from_blob(row(begin), {static_cast<int64_t>(end - begin), static_cast<int64_t>(columns_)});
  }
  torch::Tensor All() { return Rows(0, rows_); }
  std::span<const std::byte> bytes() const { return buffer_.span().first(rows_ * columns_ * sizeof(float)); }
  uint64_t columns() const { return columns_; }
  uint64_t mapped_bytes() const { return buffer_.mapped_bytes(); }

 private:
  IoBuffer buffer_;
  uint64_t rows_ = 0;
  uint64_t columns_ = 0;
};

struct Parameter {
  torch::Tensor value, gradient;
  torch::Tensor mean, square;  // Adam's moments
  torch::Tensor saved;         // undefined until Save

  explicit Parameter(const std::vector<int64_t>& shape)
      : value(torch::zeros(shape)),
        gradient(torch::zeros(shape)),
        mean(torch::zeros(shape)),
        square(torch::zeros(shape)) {}
};

struct Layer {
  uint32_t in = 0;  // width of h; the layer's input is twice as wide
  uint32_t out = 0;
  Parameter weight, bias;  // [2 * in, out], [out]
  Matrix input, output;
  uint32_t rows = 0;  // rows in the current batch

  Layer(uint32_t in_width, uint32_t out_width)
      : in(in_width), out(out_width), weight({2 * int64_t{in_width}, out_width}), bias({out_width}) {}
};

FeatureView HiddenView(const Matrix& hidden) {
  return {.rows = hidden.bytes(),
          .stride_bytes = hidden.columns() * sizeof(float),
          .dim = static_cast<uint32_t>(hidden.columns())};
}

std::span<float> Span(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

uint32_t TileRows(uint32_t in_width) {
  const uint64_t row_bytes = 2 * sizeof(float) * in_width;
  return static_cast<uint32_t>(std::max<uint64_t>(kTileRowsMin, kTileBytes / row_bytes));
}

class SageLayersImpl final : public SageLayers {
 public:
  explicit SageLayersImpl(const SageLayersOptions& options)
      : options_(options), pool_(std::max(1U, options.threads)) {
    assert(options.widths.size() >= 2);
    Rng rng(MixSeed(options.seed, 0x5a6e));
    for (size_t l = 0; l + 1 < options.widths.size(); l++) {
      Layer& layer = layers_.emplace_back(options.widths[l], options.widths[l + 1]);
      // Glorot and Bengio 2010, drawn by our own generator: the same weights under every LibTorch.
      const double bound = std::sqrt(6.0 / (2.0 * layer.in + layer.out));
      for (float& w : Span(layer.weight.value)) w = static_cast<float>((2 * rng.Unit() - 1) * bound);
    }
    for (Layer& layer : layers_) parameters_.insert(parameters_.end(), {&layer.weight, &layer.bias});
  }

  Status Forward(const BatchView& batch, std::optional<uint64_t> dropout_seed) override {
    dropout_seed_ = dropout_seed;
    return GuardTorch([&] { return ForwardBlock(batch); });
  }

  std::span<float> output() override {
    Layer& last = layers_.back();
    return {last.output.row(0), size_t{last.rows} * last.out};
  }

  std::span<const float> hidden() override {
    Layer& below = layers_[layers_.size() - 2];
    return {below.output.row(0), size_t{layers_.back().rows} * below.out};
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

  Status ForwardGraph(std::span<const uint64_t> indptr, std::span<const NodeId> indices,
                      std::vector<float>& rows) override {
    return GuardTorch([&]() -> Status {
      for (uint32_t l = 0; l < layers_.size(); l++) {
        QUARRY_RETURN_IF_ERROR(ForwardGraphLayer(l, indptr, indices, rows));
      }
      return Status::Ok();
    });
  }

  Status ForwardTile(uint32_t l, std::span<const float> inputs, std::span<float> outputs) override {
    return GuardTorch([&] {
      const Layer& layer = layers_[l];
      const auto rows = static_cast<int64_t>(outputs.size() / layer.out);
      ApplyLayer(l, torch::from_blob(const_cast<float*>(inputs.data()), {rows, 2 * int64_t{layer.in}}),
                 torch::from_blob(outputs.data(), {rows, layer.out}));
      return Status::Ok();
    });
  }

  void Save() override {
    for (Parameter* parameter : parameters_) parameter->saved = parameter->value.clone();
  }

  void Restore() override {
    for (Parameter* parameter : parameters_) parameter->value.copy_(parameter->saved);
  }

  std::vector<std::byte> State() const override {
    StateWriter writer;
    writer.Put(steps_);
    writer.Put(uint8_t{layers_[0].weight.saved.defined()});
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
    uint64_t bytes = 0;
    for (const Layer& layer : layers_) bytes += layer.input.mapped_bytes() + layer.output.mapped_bytes();
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
    parameter.value.addcdiv_(parameter.mean, length, -options_.learning_rate / correction1);
  }

  DropoutMask HiddenMask(uint32_t l) const {
    return {dropout_seed_ ? options_.dropout : 0, MixSeed(dropout_seed_.value_or(0), l + 1)};
  }

  // Runs work(first, last) over parts of [begin, end), on all threads. (at::parallel_for is a serial loop in
  // code that is compiled without OpenMP.)
  template <typename Work>
  void ForRows(uint32_t begin, uint32_t end, const Work& work) {
    const auto part = static_cast<uint32_t>(
        std::max<uint64_t>(kRowsPerTask, CeilDiv(end - begin, pool_.threads() * kTasksPerThread)));
    pool_.Run(static_cast<uint32_t>(CeilDiv(end - begin, part)), [&](uint32_t task, unsigned) {
      const uint32_t first = begin + task * part;
      work(first, std::min(end, first + part));
    });
  }

  // out = a b. Pieces have `piece_rows` rows of a.
  void Multiply(const torch::Tensor& a, const torch::Tensor& b, torch::Tensor out, int64_t piece_rows) {
    if (!options_.split_products) {
      at::mm_out(out, a, b);
      return;
    }
    const auto pieces = CeilDiv(static_cast<uint64_t>(a.size(0)), static_cast<uint64_t>(piece_rows));
    pool_.Run(static_cast<uint32_t>(pieces), [&](uint32_t piece, unsigned) {
      const int64_t begin = piece * piece_rows;
      const int64_t end = std::min(a.size(0), begin + piece_rows);
      torch::Tensor part = out.slice(0, begin, end);
      at::mm_out(part, a.slice(0, begin, end), b);
    });
  }

  // Fills rows [begin, end) of the first layer's input; row `begin` goes to `out`.
  void GatherInput(const BatchView& batch, uint32_t begin, uint32_t end, float* out) {
    const DropoutMask mask{dropout_seed_ ? options_.input_dropout : 0, MixSeed(dropout_seed_.value_or(0), 0)};
    const uint32_t width = 2 * layers_[0].in;
    ForRows(begin, end, [&](uint32_t first, uint32_t last) {
      float* rows = out + uint64_t{first - begin} * width;
      AggregateMean(batch.features, options_.row_norm, batch.indptr, batch.indices, first, last, rows);
      DropRows(width, mask, first, last, rows);
    });
  }

  // Runs `multiply(begin, end, input rows)` over the tiles of the first layer's input, each gathered first
  // unless `gathered` and the whole input was kept.
  template <typename Work>
  void ForEachTile(const BatchView& batch, bool gathered, const Work& multiply) {
    Layer& layer = layers_[0];
    if (gathered && input_kept_) return multiply(0, layer.rows, layer.input.All());
    const uint32_t tile_rows = TileRows(layer.in);
    for (uint32_t begin = 0; begin < layer.rows; begin += tile_rows) {
      const uint32_t end = std::min(layer.rows, begin + tile_rows);
      const uint32_t at = input_kept_ ? begin : 0;
      GatherInput(batch, begin, end, layer.input.row(at));
      multiply(begin, end, layer.input.Rows(at, at + end - begin));
    }
  }

  Status CheckBatch(const BatchView& batch) const {
    if (batch.hops() != layers_.size()) {
      return MakeStatus(
          Code::kUsage,
          "the model has {} layers, but batches are sampled over {} hops; give one fanout per layer",
          layers_.size(), batch.hops());
    }
    if (batch.features.dim != layers_[0].in) {
      return MakeStatus(Code::kInternal, "a batch has features of width {} for a model of width {}",
                        batch.features.dim, layers_[0].in);
    }
    return Status::Ok();
  }

  Status SizeBuffers(const BatchView& batch) {
    for (size_t l = 0; l < layers_.size(); l++) {
      Layer& layer = layers_[l];
      layer.rows = batch.hop_offsets[layers_.size() - 1 - l];
      uint64_t input_rows = layer.rows;
      if (l == 0) {
        const uint64_t row_bytes = 2 * sizeof(float) * layer.in;
        input_kept_ = options_.input_gradients || layer.rows * row_bytes <= kKeptInputBytes;
        if (!input_kept_) input_rows = std::min(TileRows(layer.in), layer.rows);
      }
      QUARRY_RETURN_IF_ERROR(
          layer.input.Resize(input_rows, 2 * uint64_t{layer.in}, l == 0 ? kKeptInputBytes : UINT64_MAX));
      QUARRY_RETURN_IF_ERROR(layer.output.Resize(layer.rows, layer.out));
    }
    return Status::Ok();
  }

  Status ForwardBlock(const BatchView& batch) {
    QUARRY_RETURN_IF_ERROR(CheckBatch(batch));
    QUARRY_RETURN_IF_ERROR(SizeBuffers(batch));
    for (uint32_t l = 0; l < layers_.size(); l++) {
      Layer& layer = layers_[l];
      if (l == 0) {
        ForEachTile(batch, false, [&](uint32_t begin, uint32_t end, const torch::Tensor& input) {
          Multiply(input, layer.weight.value, layer.output.Rows(begin, end), kProductRows);
        });
      } else {
        const FeatureView hidden = HiddenView(layers_[l - 1].output);
        ForRows(0, layer.rows, [&](uint32_t begin, uint32_t end) {
          AggregateMean(hidden, RowNorm::kNone, batch.indptr, batch.indices, begin, end,
                        layer.input.row(begin));
        });
        Multiply(layer.input.All(), layer.weight.value, layer.output.All(), kProductRows);
      }
      Activate(l, HiddenMask(l), layer.output.All());
    }
    return Status::Ok();
  }

  void Activate(uint32_t l, const DropoutMask& mask, const torch::Tensor& output) {
    const Layer& layer = layers_[l];
    if (l + 1 == layers_.size()) {
      output.add_(layer.bias.value);
      return;
    }
    float* const values = output.data_ptr<float>();
    ForRows(0, static_cast<uint32_t>(output.size(0)), [&](uint32_t begin, uint32_t end) {
      ActivateRows(Span(layer.bias.value), mask, begin, end, values + uint64_t{begin} * layer.out);
    });
  }

  // Without dropout.
  void ApplyLayer(uint32_t l, const torch::Tensor& input, const torch::Tensor& output) {
    Multiply(input, layers_[l].weight.value, output, kProductRows);
    Activate(l, {}, output);
  }

  // Replaces the rows of all nodes, which layer l takes, by those that it gives. The first layer's buffer
  // holds the tiles of all layers.
  Status ForwardGraphLayer(uint32_t l, std::span<const uint64_t> indptr, std::span<const NodeId> indices,
                           std::vector<float>& rows) {
    const Layer& layer = layers_[l];
    Matrix& input = layers_[0].input;
    const auto node_count = static_cast<uint32_t>(indptr.size() - 1);
    const uint32_t tile_rows = std::min(TileRows(layer.in), node_count);
    QUARRY_RETURN_IF_ERROR(input.Resize(tile_rows, 2 * uint64_t{layer.in}));
    std::vector<float> results(uint64_t{node_count} * layer.out);
    const torch::Tensor output = torch::from_blob(results.data(), {node_count, layer.out});
    for (uint32_t begin = 0, end = 0; begin < node_count; begin = end) {
      end = begin + std::min(tile_rows, node_count - begin);
      ForRows(begin, end, [&](uint32_t first, uint32_t last) {
        AggregateGraph(rows.data(), layer.in, indptr, indices, first, last, input.row(first - begin));
      });
      ApplyLayer(l, input.Rows(0, end - begin), output.slice(0, begin, end));
    }
    rows = std::move(results);
    return Status::Ok();
  }

  // From the last layer to the first. A layer needs its input only for the gradient of its weight; right
  // after that, the gradient of the input overwrites it, and is then carried to the layer below. Where the
  // first layer's input was too wide to keep, its tiles are gathered again.
  void BackwardBlock(const BatchView& batch, float* output_gradients, float* input_gradients) {
    for (auto l = static_cast<uint32_t>(layers_.size()); l-- > 0;) {
      Layer& layer = layers_[l];
      const torch::Tensor grad = l + 1 == layers_.size()
                                     ? torch::from_blob(output_gradients, {layer.rows, layer.out})
                                     : layer.output.All();
      at::sum_out(layer.bias.gradient, grad, {0});
      if (l == 0 && !input_kept_) {
        layer.weight.gradient.zero_();
        ForEachTile(batch, true, [&](uint32_t begin, uint32_t end, const torch::Tensor& input) {
          layer.weight.gradient.addmm_(input.t(), grad.slice(0, begin, end));
        });
        continue;
      }
      const torch::Tensor input = layer.input.All();
      Multiply(input.t(), grad, layer.weight.gradient, kWeightRows);
      if (l == 0 && !options_.input_gradients) continue;
      Multiply(grad, layer.weight.value.t(), input, kProductRows);  // its gradient, over the input
      if (l == 0) {
        ScatterInput(batch, input_gradients);
      } else {
        ScatterHidden(batch, l);
      }
    }
  }

  void ScatterInput(const BatchView& batch, float* gradients) {
    Layer& layer = layers_[0];
    const auto node_count = static_cast<uint32_t>(batch.nodes.size());
    Transpose(batch.indptr, batch.indices, layer.rows, node_count, transposed_);
    ForRows(0, node_count, [&](uint32_t begin, uint32_t end) {
      BackwardMeanInput(transposed_, layer.input.row(0), layer.in, batch.features.slots, begin, end,
                        gradients);
    });
  }

  // To the layer below: its outputs become the gradients of what was activated.
  void ScatterHidden(const BatchView& batch, uint32_t l) {
    Layer& layer = layers_[l];
    Layer& below = layers_[l - 1];
    Transpose(batch.indptr, batch.indices, layer.rows, below.rows, transposed_);
    const float keep_scale = HiddenMask(l - 1).keep_scale();
    ForRows(0, below.rows, [&](uint32_t begin, uint32_t end) {
      BackwardMean(transposed_, layer.input.row(0), layer.in, keep_scale, begin, end,
                   below.output.row(begin));
    });
  }

  const SageLayersOptions options_;
  TaskPool pool_;
  std::vector<Layer> layers_;
  std::vector<Parameter*> parameters_;  // those of layers_, in the order of Parameters()
  TransposedBlock transposed_;
  uint64_t steps_ = 0;                    // Adam's
  std::optional<uint64_t> dropout_seed_;  // the last Forward's
  bool input_kept_ = true;                // the first layer's input of this batch is whole in memory
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

Result<std::unique_ptr<SageLayers>> SageLayers::Make(const SageLayersOptions& options) {
  std::unique_ptr<SageLayers> layers;
  QUARRY_RETURN_IF_ERROR(GuardTorch([&] {
    layers = std::make_unique<SageLayersImpl>(options);
    return Status::Ok();
  }));
  return layers;
}

}  // namespace quarry
