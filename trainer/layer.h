// Layer: what turns the rows of a block's nodes into those of the nodes one hop further in. GnnLayers stacks them, and
// does what all have in common: bias, activation, dropout, Adam's steps.
//
// A layer owns its parameters and what its backward pass needs of the forward pass. One thread drives all layers of a
// stack; LayerWork shares out what they do between threads, so that the results are the same bits for any number of
// them, but for the products that LayerWork leaves to BLAS.
#pragma once

#include <ATen/core/ivalue.h>  // without which clang 14 cannot parse the next one
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "graph_layer.h"
#include "quarry/base/random.h"
#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "quarry/format/batch_view.h"
#include "quarry/io/buffer.h"
#include "quarry/trainer/aggregate.h"
#include "quarry/trainer/train.h"
#include "task_pool.h"
#include "tiles.h"

namespace quarry {

// A matrix whose memory is kept and grows with the largest batch so far. Huge pages, since the kernels gather
// random rows from it.
class Matrix {
 public:
  // The slack for later, larger batches goes no further than `slack_bytes_max`.
  Status Resize(uint64_t rows, uint64_t columns, uint64_t slack_bytes_max = UINT64_MAX);
  float* row(uint64_t i) { return reinterpret_cast<float*>(buffer_.data()) + i * columns_; }
  // A view of rows [begin, end); valid until Resize.
  torch::Tensor Rows(uint64_t begin, uint64_t end) {
    return torch::from_blob(row(begin), {static_cast<int64_t>(end - begin), static_cast<int64_t>(columns_)});
  }
  torch::Tensor All() { return Rows(0, rows_); }
  std::span<const std::byte> bytes() const { return buffer_.span().first(rows_ * columns_ * sizeof(float)); }
  uint64_t rows() const { return rows_; }
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
  torch::Tensor saved;         // undefined until GnnLayers::Save

  explicit Parameter(const std::vector<int64_t>& shape)
      : value(torch::zeros(shape)),
        gradient(torch::zeros(shape)),
        mean(torch::zeros(shape)),
        square(torch::zeros(shape)) {}
};

inline std::span<float> Span(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

// Uniform in [-bound, bound], bound = sqrt(6 / fans): Glorot and Bengio 2010, drawn by our own generator, so that the
// weights are the same under every LibTorch.
void DrawGlorot(Rng& rng, uint64_t fans, std::span<float> values);

// The threads of a stack, and how they share work.
class LayerWork {
 public:
  // Rows of a piece of a product: of nodes, and of a weight's gradient, whose rows are few and long.
  static constexpr int64_t kProductRows = 512;
  static constexpr int64_t kWeightRows = 32;

  // With `split_products`, products are cut into pieces that the threads share out; BLAS must then be set to one
  // thread. Else a product is one call, whose bits depend on how BLAS shares it out.
  LayerWork(unsigned threads, bool split_products) : pool_(threads), split_products_(split_products) {}

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
  // Runs work(piece, first, last) over pieces of `rows` rows each of [begin, end), whatever the number of threads.
  template <typename Work>
  void ForPieces(uint32_t begin, uint32_t end, uint32_t rows, const Work& work) {
    pool_.Run(static_cast<uint32_t>(CeilDiv(end - begin, rows)), [&](uint32_t piece, unsigned) {
      const uint32_t first = begin + piece * rows;
      work(piece, first, std::min(end, first + rows));
    });
  }

  // out = a b, and out += a b. Pieces have `piece_rows` rows of a.
  void Multiply(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& out, int64_t piece_rows);
  void MultiplyAdd(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& out,
                   int64_t piece_rows);

  TransposedBlock transposed;  // of the layer whose backward pass is under way

 private:
  static constexpr uint32_t kRowsPerTask = 64;  // least work worth handing to another thread
  static constexpr uint32_t kTasksPerThread =
      8;  // so that a thread that is held up does not hold up the others

  // Runs product(rows of a, the same rows of out): all of them at once, or by pieces.
  template <typename Product>
  void ForProducts(const torch::Tensor& a, const torch::Tensor& out, int64_t piece_rows,
                   const Product& product);

  TaskPool pool_;
  const bool split_products_;
};

// What a layer is given of a batch. Its nodes are the first `rows` of the sources.
struct LayerInput {
  FeatureView sources;  // a row for each node that the layer reads
  std::span<const uint32_t> indptr, indices;
  uint32_t rows = 0;
  uint32_t source_rows = 0;
  RowNorm norm = RowNorm::kNone;    // of the sources
  MessageWeights weights;           // of rows that are summed
  std::span<const uint32_t> kinds;  // by edge, of layers that tell relations apart
  DropoutMask mask;                 // of what the first layer is given
  DropoutMask attention_mask;       // of coefficients
  // The first layer's sources are features, wide and encoded: it decodes them by tiles, and may do so again for its
  // backward pass where it cannot keep them. `keeps` says that it must.
  bool first = false;
  bool keeps = false;
};

// Where the gradients of a layer's sources go.
struct SourceGradients {
  float* rows = nullptr;  // [.., width]
  // The first layer's sources: that of source u goes to row slots[u].
  std::span<const uint32_t> slots;
  // The others' are the outputs of the layer below, which the gradients of what was activated replace.
  DropoutMask mask;
};

class Layer {
 public:
  Layer(uint32_t in_width, uint32_t out_width) : in_(in_width), out_(out_width), bias_({out_width}) {}
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  uint32_t in() const { return in_; }
  uint32_t out() const { return out_; }
  // Added to what Forward gives; its gradient is for the owner to leave.
  Parameter& bias() { return bias_; }
  // In the order of GnnLayers::Parameters; the bias is the last.
  virtual std::vector<Parameter*> Parameters() = 0;
  // What they are called in files of weights, in the same order.
  virtual std::vector<std::string_view> ParameterNames() const { return {"weight", "bias"}; }

  // Grows the buffers. Before Forward, and once a batch.
  virtual Status Resize(const LayerInput& input) = 0;
  // Fills `output` ([rows, out]).
  virtual void Forward(const LayerInput& input, const torch::Tensor& output) = 0;
  // Leaves the gradients of the parameters but for the bias, for that of the output ([rows, out]). The input is that of
  // the last Forward. Null `sources`: nobody asks for theirs.
  virtual void Backward(const LayerInput& input, const torch::Tensor& gradient,
                        const SourceGradients* sources) = 0;

  // A whole graph, as graph_layer.h says, without bias. StartGraph comes before all else and decides the form. AddList is
  // for any thread.
  virtual GraphForm StartGraph(GraphOrder order) = 0;
  virtual void StartStates(std::span<float> states) const { std::ranges::fill(states, 0.0F); }
  virtual void MakeMessages(const torch::Tensor& rows, const torch::Tensor& messages) = 0;
  virtual void AddOwn(const torch::Tensor& rows, const torch::Tensor& messages,
                      std::span<const uint64_t> list_sizes, const torch::Tensor& states) = 0;
  virtual void AddList(const GraphList& list, const float* messages, float* state) const = 0;
  virtual Status FinishStates(const torch::Tensor& states, const torch::Tensor& output) = 0;

  virtual uint64_t activation_bytes() const = 0;  // held now

 private:
  const uint32_t in_, out_;
  Parameter bias_;
};

}  // namespace quarry
