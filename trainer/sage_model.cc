#include "sage_model.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>

#include "matrix.h"
#include "quarry/base/log.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "quarry/trainer/aggregate.h"
#include "task_pool.h"

namespace quarry {
namespace {

constexpr uint32_t kRowsPerTask = 64;    // least work worth handing to another thread
constexpr uint32_t kTasksPerThread = 8;  // so that a thread that is held up does not hold up the others
constexpr int64_t kIgnoredLabel = -1;

// LibTorch's faults end here: whatever it throws becomes a Status.
template <typename Function>
Status Guard(Function&& function) {
  try {
    return function();
  } catch (const c10::Error& error) {
    return MakeStatus(Code::kInternal, "LibTorch: {}", error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return MakeStatus(Code::kOutOfBudget,
                      "LibTorch found no memory for a batch; use a smaller batch or fewer hidden units");
  } catch (const std::exception& error) {
    return MakeStatus(Code::kInternal, "LibTorch: {}", error.what());
  }
}

void SetThreads(unsigned threads) {
  if (!SetBlasThreads(threads) && !at::hasMKL()) {
    LogWarn(
        "LibTorch's BLAS is neither OpenBLAS nor MKL, and may be 30 times slower; install "
        "libopenblas0-pthread");
  }
}

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
  uint64_t columns() const { return columns_; }
  uint64_t mapped_bytes() const { return buffer_.mapped_bytes(); }

 private:
  IoBuffer buffer_;
  uint64_t rows_ = 0;
  uint64_t columns_ = 0;
};

struct Layer {
  uint32_t in = 0;  // width of h; the layer's input is twice as wide
  uint32_t out = 0;
  torch::Tensor weight;  // [2 * in, out]
  torch::Tensor bias;    // [out]
  torch::Tensor saved_weight, saved_bias;
  Matrix input;
  Matrix output;
  uint32_t rows = 0;  // of the current batch
};

FeatureView HiddenView(Matrix& hidden) {
  FeatureView view;
  view.base = reinterpret_cast<const std::byte*>(hidden.row(0));
  view.dim = static_cast<uint32_t>(hidden.columns());
  view.stride_bytes = hidden.columns() * sizeof(float);
  return view;
}

std::span<float> Span(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

class SageModelImpl final : public SageModel {
 public:
  SageModelImpl(const TrainOptions& options, uint32_t feature_dim, uint32_t class_count)
      : options_(options), pool_(std::max(1U, options.torch_threads)) {
    const torch::NoGradGuard no_grad;
    Rng rng(MixSeed(options.seed, 0x5a6e));
    std::vector<torch::Tensor> parameters;
    layers_.resize(options.layers);
    for (uint32_t l = 0; l < options.layers; l++) {
      Layer& layer = layers_[l];
      layer.in = l == 0 ? feature_dim : options.hidden;
      layer.out = l + 1 == options.layers ? class_count : options.hidden;
      layer.weight = torch::empty({2 * int64_t{layer.in}, layer.out});
      layer.bias = torch::zeros({layer.out});
      // Glorot and Bengio 2010, drawn by our own generator: the same weights under every LibTorch.
      const double bound = std::sqrt(6.0 / (2.0 * layer.in + layer.out));
      for (float& w : Span(layer.weight)) w = static_cast<float>((2 * rng.Unit() - 1) * bound);
      for (torch::Tensor* parameter : {&layer.weight, &layer.bias}) {
        parameter->mutable_grad() = torch::zeros_like(*parameter);
        parameters.push_back(*parameter);
      }
    }
    optimizer_ = std::make_unique<torch::optim::Adam>(
        parameters, torch::optim::AdamOptions(options.learning_rate).weight_decay(options.weight_decay));
  }

  Result<float> TrainStep(const Block& block, const FeatureView& features, std::span<const int64_t> labels,
                          uint64_t dropout_seed) override {
    float loss = 0;
    const Status status = Guard([&]() -> Status {
      if (std::all_of(labels.begin(), labels.end(), [](int64_t label) { return label < 0; }))
        return Status::Ok();
      dropout_seed_ = dropout_seed;
      QUARRY_RETURN_IF_ERROR(Forward(block, features, true));
      const torch::Tensor logit_grad = Loss(labels, loss);
      Backward(block, features, logit_grad);
      optimizer_->step();
      return Status::Ok();
    });
    if (!status.ok()) return status;
    return loss;
  }

  Result<std::span<const float>> Predict(const Block& block, const FeatureView& features) override {
    QUARRY_RETURN_IF_ERROR(Guard([&] { return Forward(block, features, false); }));
    Layer& last = layers_.back();
    return std::span<const float>(last.output.row(0), size_t{last.rows} * last.out);
  }

  void Save() override {
    for (Layer& layer : layers_) {
      layer.saved_weight = layer.weight.clone();
      layer.saved_bias = layer.bias.clone();
    }
  }

  void Restore() override {
    for (Layer& layer : layers_) {
      layer.weight.copy_(layer.saved_weight);
      layer.bias.copy_(layer.saved_bias);
    }
  }

  std::vector<std::span<float>> Parameters() override {
    std::vector<std::span<float>> spans;
    for (Layer& layer : layers_) {
      spans.push_back(Span(layer.weight));
      spans.push_back(Span(layer.bias));
    }
    return spans;
  }

  std::vector<std::span<const float>> Gradients() const override {
    std::vector<std::span<const float>> spans;
    for (const Layer& layer : layers_) {
      spans.push_back(Span(layer.weight.grad()));
      spans.push_back(Span(layer.bias.grad()));
    }
    return spans;
  }

  uint64_t activation_bytes() const override {
    uint64_t bytes = 0;
    for (const Layer& layer : layers_) bytes += layer.input.mapped_bytes() + layer.output.mapped_bytes();
    return bytes;
  }

 private:
  DropoutMask HiddenMask(uint32_t l, bool training) const {
    return {training ? options_.dropout : 0, MixSeed(dropout_seed_, l + 1)};
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

  // Fills rows [begin, end) of the first layer's input; row `begin` goes to `out`.
  void GatherInput(const Block& block, const FeatureView& features, bool training, uint32_t begin,
                   uint32_t end, float* out) {
    const DropoutMask mask{training ? options_.input_dropout : 0, MixSeed(dropout_seed_, 0)};
    const uint32_t width = 2 * layers_[0].in;
    ForRows(begin, end, [&](uint32_t first, uint32_t last) {
      float* rows = out + uint64_t{first - begin} * width;
      AggregateMean(features, options_.row_norm, block.indptr, block.indices, first, last, rows);
      DropRows(width, mask, first, last, rows);
    });
  }

  // Runs `multiply(begin, end, input rows)` over the tiles of the first layer's input, each gathered first
  // unless `gathered` and the whole input was kept.
  template <typename Multiply>
  void ForEachTile(const Block& block, const FeatureView& features, bool training, bool gathered,
                   const Multiply& multiply) {
    Layer& layer = layers_[0];
    if (gathered && input_kept_) return multiply(0, layer.rows, layer.input.All());
    for (uint32_t begin = 0; begin < layer.rows; begin += tile_rows_) {
      const uint32_t end = std::min(layer.rows, begin + tile_rows_);
      const uint32_t at = input_kept_ ? begin : 0;
      GatherInput(block, features, training, begin, end, layer.input.row(at));
      multiply(begin, end, layer.input.Rows(at, at + end - begin));
    }
  }

  Status SizeBuffers(const Block& block) {
    const auto depth = static_cast<uint32_t>(layers_.size());
    for (uint32_t l = 0; l < depth; l++) {
      Layer& layer = layers_[l];
      layer.rows = block.hop_offsets[depth - 1 - l];
      uint64_t input_rows = layer.rows;
      if (l == 0) {
        const uint64_t row_bytes = 2 * sizeof(float) * layer.in;
        tile_rows_ = static_cast<uint32_t>(std::max<uint64_t>(kTileRowsMin, kTileBytes / row_bytes));
        input_kept_ = layer.rows * row_bytes <= kKeptInputBytes;
        if (!input_kept_) input_rows = std::min<uint64_t>(tile_rows_, layer.rows);
      }
      QUARRY_RETURN_IF_ERROR(
          layer.input.Resize(input_rows, 2 * uint64_t{layer.in}, l == 0 ? kKeptInputBytes : UINT64_MAX));
      QUARRY_RETURN_IF_ERROR(layer.output.Resize(layer.rows, layer.out));
    }
    return Status::Ok();
  }

  Status Forward(const Block& block, const FeatureView& features, bool training) {
    const auto depth = static_cast<uint32_t>(layers_.size());
    if (block.hops() != depth) {
      return MakeStatus(
          Code::kUsage,
          "the model has {} layers, but batches are sampled over {} hops; give one fanout per layer", depth,
          block.hops());
    }
    if (features.dim != layers_[0].in) {
      return MakeStatus(Code::kInternal, "a batch has features of width {} for a model of width {}",
                        features.dim, layers_[0].in);
    }
    QUARRY_RETURN_IF_ERROR(SizeBuffers(block));
    const torch::NoGradGuard no_grad;
    for (uint32_t l = 0; l < depth; l++) {
      Layer& layer = layers_[l];
      if (l == 0) {
        ForEachTile(block, features, training, false,
                    [&](uint32_t begin, uint32_t end, const torch::Tensor& input) {
                      torch::Tensor output = layer.output.Rows(begin, end);
                      at::mm_out(output, input, layer.weight);
                    });
      } else {
        const FeatureView hidden = HiddenView(layers_[l - 1].output);
        ForRows(0, layer.rows, [&](uint32_t begin, uint32_t end) {
          AggregateMean(hidden, RowNorm::kNone, block.indptr, block.indices, begin, end,
                        layer.input.row(begin));
        });
        torch::Tensor output = layer.output.All();
        at::mm_out(output, layer.input.All(), layer.weight);
      }
      if (l + 1 == depth) {
        layer.output.All().add_(layer.bias);
        break;
      }
      const DropoutMask mask = HiddenMask(l, training);
      ForRows(0, layer.rows, [&](uint32_t begin, uint32_t end) {
        ActivateRows(Span(layer.bias), mask, begin, end, layer.output.row(begin));
      });
    }
    return Status::Ok();
  }

  // Cross-entropy of the logits that Forward left; returns their gradient.
  torch::Tensor Loss(std::span<const int64_t> labels, float& loss) {
    const torch::Tensor target = torch::from_blob(const_cast<int64_t*>(labels.data()),
                                                  {static_cast<int64_t>(labels.size())}, torch::kInt64);
    torch::Tensor logits = layers_.back().output.All().requires_grad_();
    torch::Tensor value = torch::nn::functional::cross_entropy(
        logits, target, torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kIgnoredLabel));
    value.backward();
    loss = value.item<float>();
    return logits.grad();
  }

  void Backward(const Block& block, const FeatureView& features, const torch::Tensor& logit_grad) {
    const torch::NoGradGuard no_grad;
    for (auto l = static_cast<uint32_t>(layers_.size()); l-- > 0;) {
      Layer& layer = layers_[l];
      const torch::Tensor grad = l + 1 == layers_.size() ? logit_grad : layer.output.All();
      at::sum_out(layer.bias.mutable_grad(), grad, {0});
      torch::Tensor weight_grad = layer.weight.mutable_grad();
      if (l == 0) {
        weight_grad.zero_();
        ForEachTile(block, features, true, true,
                    [&](uint32_t begin, uint32_t end, const torch::Tensor& input) {
                      weight_grad.addmm_(input.t(), grad.slice(0, begin, end));
                    });
        continue;
      }
      torch::Tensor input = layer.input.All();
      at::mm_out(weight_grad, input.t(), grad);
      at::mm_out(input, grad, layer.weight.t());  // the gradient of the input, over the input
      Layer& below = layers_[l - 1];
      Transpose(block.indptr, block.indices, layer.rows, below.rows, transposed_);
      const float keep_scale = HiddenMask(l - 1, true).keep_scale();
      ForRows(0, below.rows, [&](uint32_t begin, uint32_t end) {
        BackwardMean(transposed_, layer.input.row(0), layer.in, keep_scale, begin, end,
                     below.output.row(begin));
      });
    }
  }

  const TrainOptions options_;
  TaskPool pool_;
  std::vector<Layer> layers_;
  std::unique_ptr<torch::optim::Adam> optimizer_;
  TransposedBlock transposed_;
  uint64_t dropout_seed_ = 0;
  uint32_t tile_rows_ = 0;
  bool input_kept_ = true;  // the first layer's input of this batch is whole in memory
};

}  // namespace

Result<std::unique_ptr<SageModel>> SageModel::Make(const TrainOptions& options, uint32_t feature_dim,
                                                   uint32_t class_count) {
  std::unique_ptr<SageModel> model;
  QUARRY_RETURN_IF_ERROR(Guard([&] {
    SetThreads(options.torch_threads);
    model = std::make_unique<SageModelImpl>(options, feature_dim, class_count);
    return Status::Ok();
  }));
  return model;
}

}  // namespace quarry
