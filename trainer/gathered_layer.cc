#include "gathered_layer.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "graph_kernels.h"
#include "resize_void.h"

namespace quarry {
namespace {

constexpr float kBelowAll = -3.4e38F;  // what the first of the largest elements is held against

class GatheredLayer final : public Layer {
 public:
  GatheredLayer(LayerWork& work, Gathering gathering, uint32_t in_width, uint32_t out_width, Rng& rng)
      : Layer(in_width, out_width),
        work_(work),
        gathering_(gathering),
        width_(gathering.width(in_width)),
        weight_({width_, out_width}) {
    DrawGlorot(rng, uint64_t{width_} + out_width, Span(weight_.value));
  }

  std::vector<Parameter*> Parameters() override { return {&weight_, &bias()}; }
  Status Resize(const LayerInput& input) override {
    uint64_t rows = input.rows;
    if (input.first) {
      kept_ = input.keeps || rows * width_ * sizeof(float) <= kKeptInputBytes;
      if (!kept_) rows = std::min<uint64_t>(TileRows(width_), rows);
    }
    QUARRY_RETURN_IF_ERROR(input_.Resize(rows, width_, input.first ? kKeptInputBytes : UINT64_MAX));
    const bool asks_sources = gathering_.aggregator == Aggregator::kMax && (!input.first || input.keeps);
    ResizeVoid(source_of_, asks_sources ? uint64_t{input.rows} * in() : 0);
    return Status::Ok();
  }
  void Forward(const LayerInput& input, const torch::Tensor& output) override {
    if (!input.first) {
      Gather(input, 0, input.rows, input_.row(0));
      work_.Multiply(input_.All(), weight_.value, output, LayerWork::kProductRows);
      return;
    }
    ForEachTile(input, [&](uint32_t begin, uint32_t end, const torch::Tensor& tile) {
      work_.Multiply(tile, weight_.value, output.slice(0, begin, end), LayerWork::kProductRows);
    });
  }
  void Backward(const LayerInput& input, const torch::Tensor& gradient,
                const SourceGradients* sources) override {
    if (!kept_ && input.first) {
      weight_.gradient.zero_();
      ForEachTile(input, [&](uint32_t begin, uint32_t end, const torch::Tensor& tile) {
        work_.MultiplyAdd(tile.t(), gradient.slice(0, begin, end), weight_.gradient, LayerWork::kWeightRows);
      });
      return;
    }
    const torch::Tensor gathered = input_.All();
    work_.Multiply(gathered.t(), gradient, weight_.gradient, LayerWork::kWeightRows);
    if (sources == nullptr) return;
    work_.Multiply(gradient, weight_.value.t(), gathered, LayerWork::kProductRows);  // its gradient, over it
    Scatter(input, *sources);
  }
  // A sum of rows times a weight is a sum of products: by linearity, states are outputs or what is multiplied.
  GraphForm StartGraph(GraphOrder order) override {
    graph_adds_products_ =
        order == GraphOrder::kLeastState && gathering_.aggregator != Aggregator::kMax && out() < width_;
    if (graph_adds_products_) return {.state = out(), .message = out()};
    return {.state = width_, .message = in(), .raw = true};
  }
  void StartStates(std::span<float> states) const override {
    std::ranges::fill(states, gathering_.aggregator == Aggregator::kMax ? kBelowAll : 0.0F);
  }
  void MakeMessages(const torch::Tensor& rows, const torch::Tensor& messages) override {
    const int64_t first = gathering_.self_apart ? in() : 0;
    work_.Multiply(rows, weight_.value.slice(0, first, width_), messages, LayerWork::kProductRows);
  }
  void AddOwn(const torch::Tensor& rows, const torch::Tensor& messages, std::span<const uint64_t> list_sizes,
              const torch::Tensor& states) override {
    if (graph_adds_products_ && gathering_.self_apart) {
      work_.MultiplyAdd(rows, weight_.value.slice(0, 0, in()), states, LayerWork::kProductRows);
      return;
    }
    const float* const own = messages.data_ptr<float>();
    float* const to = states.data_ptr<float>();
    const auto message = static_cast<uint32_t>(messages.size(1)),
               state = static_cast<uint32_t>(states.size(1));
    work_.ForRows(0, static_cast<uint32_t>(rows.size(0)), [&](uint32_t begin, uint32_t end) {
      for (uint32_t v = begin; v < end; v++) {
        float* const sum = to + uint64_t{v} * state;
        if (!gathering_.self_apart) {
          AddMessages({&v, 1}, own, message, ShareOf(list_sizes[v]), sum);
          continue;
        }
        std::memcpy(sum, own + uint64_t{v} * message, message * sizeof(float));
        if (list_sizes[v] == 0) std::memset(sum + in(), 0, in() * sizeof(float));
      }
    });
  }
  void AddList(const GraphList& list, const float* messages, float* state) const override {
    const float share = ShareOf(list.size);
    if (graph_adds_products_) return AddMessages(list.sources, messages, out(), share, state);
    float* const told = state + (gathering_.self_apart ? in() : 0);
    if (gathering_.aggregator == Aggregator::kMax) {
      return KeepLargestMessages(list.sources, messages, in(), told);
    }
    AddMessages(list.sources, messages, in(), share, told);
  }
  Status FinishStates(const torch::Tensor& states, const torch::Tensor& output) override {
    if (graph_adds_products_) {
      output.copy_(states);
    } else {
      work_.Multiply(states, weight_.value, output, LayerWork::kProductRows);
    }
    return Status::Ok();
  }
  uint64_t activation_bytes() const override {
    return input_.mapped_bytes() + source_of_.capacity() * sizeof(uint32_t);
  }

 private:
  // Runs `multiply(begin, end, rows)` over the tiles of what the first layer multiplies, each gathered first.
  template <typename Work>
  void ForEachTile(const LayerInput& input, const Work& multiply) {
    const uint32_t tile_rows = TileRows(width_);
    for (uint32_t begin = 0; begin < input.rows; begin += tile_rows) {
      const uint32_t end = std::min(input.rows, begin + tile_rows);
      const uint32_t at = kept_ ? begin : 0;
      Gather(input, begin, end, input_.row(at));
      multiply(begin, end, input_.Rows(at, at + end - begin));
    }
  }
  // Rows [begin, end) of what is multiplied; row `begin` goes to `out`.
  void Gather(const LayerInput& input, uint32_t begin, uint32_t end, float* out) {
    work_.ForRows(begin, end, [&](uint32_t first, uint32_t last) {
      float* const rows = out + uint64_t{first - begin} * width_;
      uint32_t* const source_of = source_of_.empty() ? nullptr : source_of_.data() + uint64_t{first} * in();
      Aggregate(gathering_, input.sources, input.norm, input.indptr, input.indices, first, last, rows,
                source_of, input.weights);
      DropRows(width_, input.mask, first, last, rows);
    });
  }
  void Scatter(const LayerInput& input, const SourceGradients& sources) {
    TransposedBlock& transposed = work_.transposed;
    Transpose(gathering_, input.indptr, input.indices, input.rows, input.source_rows, transposed,
              /*with_edges=*/false, input.weights);
    const uint32_t* const source_of = source_of_.empty() ? nullptr : source_of_.data();
    const float keep_scale = sources.mask.keep_scale();
    work_.ForRows(0, input.source_rows, [&](uint32_t begin, uint32_t end) {
      if (input.first) {
        BackwardGatherInput(transposed, input_.row(0), in(), sources.slots, begin, end, sources.rows,
                            source_of);
      } else {
        BackwardGather(transposed, input_.row(0), in(), keep_scale, begin, end,
                       sources.rows + uint64_t{begin} * in(), source_of);
      }
    });
  }
  // What a neighbor's message counts, of a list of so many.
  float ShareOf(uint64_t list_size) const {
    if (gathering_.aggregator != Aggregator::kMean) return 1.0F;
    return 1.0F / static_cast<float>(gathering_.self_apart ? list_size : list_size + 1);
  }

  LayerWork& work_;
  const Gathering gathering_;
  const uint32_t width_;  // of what is multiplied
  Parameter weight_;      // [width, out]
  Matrix input_;
  std::vector<uint32_t> source_of_;  // [rows, in]: whose element is the largest; empty: none is asked for
  bool kept_ = true;                 // the input of this batch is whole in memory
  bool graph_adds_products_ = false;
};

}  // namespace

std::unique_ptr<Layer> MakeGatheredLayer(LayerWork& work, Gathering gathering, uint32_t in_width,
                                         uint32_t out_width, Rng& rng) {
  return std::make_unique<GatheredLayer>(work, gathering, in_width, out_width, rng);
}

}  // namespace quarry
