#include "rgcn_layer.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "elementwise.h"
#include "graph_kernels.h"
#include "kernel.h"
#include "quarry/base/units.h"
#include "source_tiles.h"

namespace quarry {
namespace {

// A layer's edges, and what their kinds count.
struct KindedBlock {
  const FeatureView& sources;
  const uint32_t* indptr;
  const uint32_t* indices;
  const uint32_t* kinds;  // by edge
  const float* coefficients;
  uint32_t bases, dim;

  const float* Source(uint32_t u) const { return reinterpret_cast<const float*>(sources.Row(u)); }
  float ShareOf(uint32_t v) const { return 1.0F / static_cast<float>(indptr[v + 1] - indptr[v]); }
};

// Rows [begin, end) of [h_v | gathered_1 | ..]; `out` points at row `begin`.
QUARRY_KERNEL void GatherByKind(const KindedBlock& block, uint32_t begin, uint32_t end, float* out) {
  const size_t width = size_t{block.bases + 1} * block.dim;
  for (uint32_t v = begin; v < end; v++, out += width) {
    std::memcpy(out, block.Source(v), block.dim * sizeof(float));
    std::memset(out + block.dim, 0, (width - block.dim) * sizeof(float));
    for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; e++) {
      const float* const row = block.Source(block.indices[e]);
      const float* const counts = block.coefficients + size_t{block.kinds[e]} * block.bases;
      for (uint32_t b = 0; b < block.bases; b++) {
        AddScaled(row, counts[b] * block.ShareOf(v), block.dim, out + size_t{b + 1} * block.dim);
      }
    }
  }
}

// Adds to `slopes` ([kinds, bases]) what the edges of rows [begin, end) carry; `gradient` is whole.
QUARRY_KERNEL void SlopesByKind(const KindedBlock& block, const float* gradient, uint32_t begin, uint32_t end,
                                float* slopes) {
  const size_t width = size_t{block.bases + 1} * block.dim;
  for (uint32_t v = begin; v < end; v++) {
    const float* const row = gradient + v * width;
    for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; e++) {
      const float* const source = block.Source(block.indices[e]);
      float* const of_kind = slopes + size_t{block.kinds[e]} * block.bases;
      for (uint32_t b = 0; b < block.bases; b++) {
        of_kind[b] += block.ShareOf(v) * Dot(row + size_t{b + 1} * block.dim, source, block.dim);
      }
    }
  }
}

// The gradient of source u, of `rows` of which the first are destinations too.
QUARRY_KERNEL void SumByKind(const KindedBlock& block, const TransposedBlock& transposed,
                             const float* gradient, uint32_t rows, uint32_t u, float* sum) {
  const size_t width = size_t{block.bases + 1} * block.dim;
  if (u < rows) {
    std::memcpy(sum, gradient + u * width, block.dim * sizeof(float));
  } else {
    std::memset(sum, 0, block.dim * sizeof(float));
  }
  for (uint32_t at = transposed.offsets[u]; at < transposed.offsets[u + 1]; at++) {
    const uint32_t v = transposed.destinations[at];
    const float* const counts = block.coefficients + size_t{block.kinds[transposed.edges[at]]} * block.bases;
    for (uint32_t b = 0; b < block.bases; b++) {
      AddScaled(gradient + v * width + size_t{b + 1} * block.dim, counts[b] * block.ShareOf(v), block.dim,
                sum);
    }
  }
}

class RgcnLayer final : public Layer {
 public:
  RgcnLayer(LayerWork& work, uint32_t kinds, uint32_t bases, uint32_t in_width, uint32_t out_width, Rng& rng)
      : Layer(in_width, out_width),
        work_(work),
        kinds_(kinds),
        bases_(bases),
        width_((bases + 1) * in_width),
        weight_({width_, out_width}),
        coefficients_({kinds, bases}) {
    DrawGlorot(rng, uint64_t{width_} + out_width, Span(weight_.value));
    DrawGlorot(rng, 2 * uint64_t{bases}, Span(coefficients_.value));
  }

  std::vector<Parameter*> Parameters() override { return {&weight_, &coefficients_, &bias()}; }
  std::vector<std::string_view> ParameterNames() const override { return {"weight", "coefficients", "bias"}; }
  Status Resize(const LayerInput& input) override {
    QUARRY_RETURN_IF_ERROR(input_.Resize(input.rows, width_));
    return partial_.Resize(CeilDiv(input.rows, kKindPieceRows), uint64_t{kinds_} * bases_);
  }
  void Forward(const LayerInput& input, const torch::Tensor& output) override {
    assert(input.sources.element_type == ElementType::kFloat32 && input.norm == RowNorm::kNone);
    const KindedBlock block{
        input.sources, input.indptr.data(), input.indices.data(), input.kinds.data(), Coefficients(), bases_,
        in()};
    work_.ForRows(0, input.rows,
                  [&](uint32_t begin, uint32_t end) { GatherByKind(block, begin, end, input_.row(begin)); });
    work_.Multiply(input_.All(), weight_.value, output, LayerWork::kProductRows);
  }
  void Backward(const LayerInput& input, const torch::Tensor& gradient,
                const SourceGradients* sources) override {
    const torch::Tensor gathered = input_.All();
    work_.Multiply(gathered.t(), gradient, weight_.gradient, LayerWork::kWeightRows);
    work_.Multiply(gradient, weight_.value.t(), gathered, LayerWork::kProductRows);  // its gradient, over it
    StepCoefficients(input);
    if (sources != nullptr) Scatter(input, *sources);
  }
  GraphForm StartGraph(GraphOrder /*order*/) override {
    return {.state = width_, .message = in(), .raw = true};
  }
  void MakeMessages(const torch::Tensor& /*rows*/, const torch::Tensor& /*messages*/) override {}  // raw
  void AddOwn(const torch::Tensor& rows, const torch::Tensor& /*messages*/,
              std::span<const uint64_t> /*list_sizes*/, const torch::Tensor& states) override {
    states.slice(1, 0, in()).copy_(rows);
  }
  void AddList(const GraphList& list, const float* messages, float* state) const override {
    const float share = 1.0F / static_cast<float>(list.size);
    for (size_t i = 0; i < list.sources.size(); i++) {
      const float* const counts = Coefficients() + uint64_t{list.kinds[i]} * bases_;
      for (uint32_t b = 0; b < bases_; b++) {
        AddMessages({&list.sources[i], 1}, messages, in(), counts[b] * share, state + uint64_t{b + 1} * in());
      }
    }
  }
  Status FinishStates(const torch::Tensor& states, const torch::Tensor& output) override {
    work_.Multiply(states, weight_.value, output, LayerWork::kProductRows);
    return Status::Ok();
  }
  uint64_t activation_bytes() const override { return input_.mapped_bytes() + partial_.mapped_bytes(); }

 private:
  const float* Coefficients() const { return coefficients_.value.data_ptr<float>(); }
  // Pieces are summed by themselves and then in their order, so that the bits are the same for any number of threads.
  void StepCoefficients(const LayerInput& input) {
    const KindedBlock block{
        input.sources, input.indptr.data(), input.indices.data(), input.kinds.data(), Coefficients(), bases_,
        in()};
    const torch::Tensor partial = partial_.All();
    partial.zero_();
    work_.ForPieces(0, input.rows, kKindPieceRows, [&](uint32_t piece, uint32_t begin, uint32_t end) {
      SlopesByKind(block, input_.row(0), begin, end, partial_.row(piece));
    });
    SumRowsInOrder(partial_, Span(coefficients_.gradient));
  }
  void Scatter(const LayerInput& input, const SourceGradients& sources) {
    const KindedBlock block{
        input.sources, input.indptr.data(), input.indices.data(), input.kinds.data(), Coefficients(), bases_,
        in()};
    TransposedBlock& transposed = work_.transposed;
    Transpose({}, input.indptr, input.indices, input.rows, input.source_rows, transposed,
              /*with_edges=*/true);
    const float keep_scale = sources.mask.keep_scale();
    work_.ForRows(0, input.source_rows, [&](uint32_t begin, uint32_t end) {
      std::vector<float> sum(in());
      for (uint32_t u = begin; u < end; u++) {
        SumByKind(block, transposed, input_.row(0), input.rows, u, sum.data());
        if (input.first) {
          std::ranges::copy(sum, sources.rows + uint64_t{sources.slots[u]} * in());
          continue;
        }
        float* const out = sources.rows + uint64_t{u} * in();
        for (uint32_t c = 0; c < in(); c++) out[c] = out[c] > 0 ? sum[c] * keep_scale : 0.0F;
      }
    });
  }

  LayerWork& work_;
  const uint32_t kinds_, bases_;
  const uint32_t width_;    // of what is multiplied
  Parameter weight_;        // [width, out]
  Parameter coefficients_;  // [kinds, bases]
  Matrix input_;            // [rows, width]: what was gathered, then its gradient
  Matrix partial_;          // [pieces, kinds * bases]: gradients of coefficients
};

}  // namespace

std::unique_ptr<Layer> MakeRgcnLayer(LayerWork& work, uint32_t kinds, uint32_t bases, uint32_t in_width,
                                     uint32_t out_width, Rng& rng) {
  return std::make_unique<RgcnLayer>(work, kinds, bases, in_width, out_width, rng);
}

}  // namespace quarry
