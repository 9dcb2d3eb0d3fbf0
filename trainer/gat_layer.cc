#include "gat_layer.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "attention.h"
#include "graph_kernels.h"
#include "source_tiles.h"

namespace quarry {
namespace {

// Sources whose part of the gradients of the weights of scores is summed together, whatever the number of threads.
constexpr uint32_t kPieceRows = 1024;
constexpr Gathering kWithItself = {.aggregator = Aggregator::kSum, .self_apart = false};

class GatLayer final : public Layer {
 public:
  GatLayer(LayerWork& work, uint32_t heads, bool averages, uint32_t in_width, uint32_t out_width, Rng& rng)
      : Layer(in_width, out_width),
        work_(work),
        heads_(heads),
        head_dim_(averages ? out_width : out_width / heads),
        averages_(averages),
        weight_({in_width, int64_t{heads} * head_dim_}),
        left_({heads, head_dim_}),
        right_({heads, head_dim_}) {
    DrawGlorot(rng, in_width + uint64_t{heads_} * head_dim_, Span(weight_.value));
    for (Parameter* const scored : {&left_, &right_})
      DrawGlorot(rng, heads_ + head_dim_, Span(scored->value));
  }

  std::vector<Parameter*> Parameters() override { return {&weight_, &left_, &right_, &bias()}; }
  std::vector<std::string_view> ParameterNames() const override {
    return {"weight", "attention.node", "attention.neighbor", "bias"};
  }
  Status Resize(const LayerInput& input) override {
    const uint64_t members = uint64_t{input.indptr[input.rows]} + input.rows;
    const uint64_t width = uint64_t{heads_} * head_dim_;
    QUARRY_RETURN_IF_ERROR(tile_.Resize(std::min(TileRows(in()), input.source_rows), in()));
    QUARRY_RETURN_IF_ERROR(z_.Resize(input.source_rows, width));
    QUARRY_RETURN_IF_ERROR(left_scores_.Resize(input.rows, heads_));
    QUARRY_RETURN_IF_ERROR(right_scores_.Resize(input.source_rows, heads_));
    QUARRY_RETURN_IF_ERROR(coefficients_.Resize(members, heads_));
    QUARRY_RETURN_IF_ERROR(score_gradients_.Resize(members, heads_));
    QUARRY_RETURN_IF_ERROR(left_gradients_.Resize(input.rows, heads_));
    return partial_weights_.Resize(CeilDiv(input.source_rows, kPieceRows), 2 * width);
  }
  void Forward(const LayerInput& input, const torch::Tensor& output) override {
    ForEachSourceTile(work_, input, in(), tile_,
                      [&](uint32_t begin, uint32_t end, const torch::Tensor& tile) {
                        work_.Multiply(tile, weight_.value, z_.Rows(begin, end), LayerWork::kProductRows);
                      });
    const float* const left = Span(left_.value).data();
    const float* const right = Span(right_.value).data();
    work_.ForRows(0, input.source_rows, [&](uint32_t begin, uint32_t end) {
      ScoreHeads(heads_, head_dim_, right, begin, end, z_.row(begin), right_scores_.row(begin));
      const uint32_t rows_end = std::min(end, input.rows);
      if (begin >= rows_end) return;
      ScoreHeads(heads_, head_dim_, left, begin, rows_end, z_.row(begin), left_scores_.row(begin));
    });
    const AttentionBlock block = BlockOf(input);
    float* const rows = output.data_ptr<float>();
    work_.ForRows(0, input.rows, [&](uint32_t begin, uint32_t end) {
      Attend(block, z_.row(0), begin, end, rows + uint64_t{begin} * out());
    });
  }
  void Backward(const LayerInput& input, const torch::Tensor& gradient,
                const SourceGradients* sources) override {
    const AttentionBlock block = BlockOf(input);
    const float* const gradients = gradient.data_ptr<float>();
    work_.ForRows(0, input.rows, [&](uint32_t begin, uint32_t end) {
      BackwardAttend(block, z_.row(0), gradients, begin, end, score_gradients_.row(0),
                     left_gradients_.row(0));
    });
    TransposedBlock& transposed = work_.transposed;
    Transpose(kWithItself, input.indptr, input.indices, input.rows, input.source_rows, transposed,
              /*with_edges=*/true);
    const AttentionWeights weights = {Span(left_.value).data(), Span(right_.value).data()};
    work_.ForPieces(0, input.source_rows, kPieceRows, [&](uint32_t piece, uint32_t begin, uint32_t end) {
      float* const partial = partial_weights_.row(piece);
      std::memset(partial, 0, partial_weights_.columns() * sizeof(float));
      BackwardSources(block, transposed, weights, gradients, score_gradients_.row(0), left_gradients_.row(0),
                      begin, end, z_.row(0), partial);
    });
    const torch::Tensor scored = partial_weights_.All().sum(0).view({2, heads_, head_dim_});
    left_.gradient.copy_(scored[0]);
    right_.gradient.copy_(scored[1]);
    // z has become its gradient.
    BackwardSourceTiles(work_, input, in(), tile_, z_, weight_, sources);
  }
  // Attention comes behind the product in either order, and the score of a node before those of its neighbors.
  GraphForm StartGraph(GraphOrder /*order*/) override {
    return {.state = graph_form().state(), .message = graph_form().message(), .own_first = true};
  }
  void StartStates(std::span<float> states) const override { StartAttention(graph_form(), states); }
  void MakeMessages(const torch::Tensor& rows, const torch::Tensor& messages) override {
    work_.Multiply(rows, weight_.value, messages.slice(1, 0, graph_form().width()), LayerWork::kProductRows);
    work_.ForRows(0, static_cast<uint32_t>(rows.size(0)), [&](uint32_t begin, uint32_t end) {
      ScoreMessages(graph_form(), Span(right_.value).data(), begin, end, messages.data_ptr<float>());
    });
  }
  void AddOwn(const torch::Tensor& rows, const torch::Tensor& messages,
              std::span<const uint64_t> /*list_sizes*/, const torch::Tensor& states) override {
    work_.ForRows(0, static_cast<uint32_t>(rows.size(0)), [&](uint32_t begin, uint32_t end) {
      AttendToItself(graph_form(), Span(left_.value).data(), messages.data_ptr<float>(), begin, end,
                     states.data_ptr<float>());
    });
  }
  void AddList(const GraphList& list, const float* messages, float* state) const override {
    AttendToList(graph_form(), list.sources, messages, state);
  }
  Status FinishStates(const torch::Tensor& states, const torch::Tensor& output) override {
    work_.ForRows(0, static_cast<uint32_t>(states.size(0)), [&](uint32_t begin, uint32_t end) {
      FinishAttention(graph_form(), states.data_ptr<float>(), begin, end, output.data_ptr<float>());
    });
    return Status::Ok();
  }
  uint64_t activation_bytes() const override {
    uint64_t bytes = 0;
    for (const Matrix* const matrix : {&tile_, &z_, &left_scores_, &right_scores_, &coefficients_,
                                       &score_gradients_, &left_gradients_, &partial_weights_}) {
      bytes += matrix->mapped_bytes();
    }
    return bytes;
  }

 private:
  AttentionBlock BlockOf(const LayerInput& input) {
    return {.indptr = input.indptr.data(),
            .indices = input.indices.data(),
            .rows = input.rows,
            .edge_count = input.indptr[input.rows],
            .heads = heads_,
            .head_dim = head_dim_,
            .averages = averages_,
            .left = left_scores_.row(0),
            .right = right_scores_.row(0),
            .coefficients = coefficients_.row(0),
            .mask = input.attention_mask};
  }
  AttentionForm graph_form() const { return {heads_, head_dim_, averages_}; }

  LayerWork& work_;
  const uint32_t heads_, head_dim_;
  const bool averages_;
  Parameter weight_;        // [in, heads * head_dim]
  Parameter left_, right_;  // [heads, head_dim]: what scores a node, and a neighbor
  Matrix tile_;             // of sources, or of their gradients
  Matrix z_;
  Matrix left_scores_, right_scores_;
  Matrix coefficients_, score_gradients_;  // [edges + rows, heads]
  Matrix left_gradients_;                  // [rows, heads]
  Matrix partial_weights_;                 // [pieces of sources, 2 * heads * head_dim]
};

}  // namespace

std::unique_ptr<Layer> MakeGatLayer(LayerWork& work, uint32_t heads, bool averages, uint32_t in_width,
                                    uint32_t out_width, Rng& rng) {
  return std::make_unique<GatLayer>(work, heads, averages, in_width, out_width, rng);
}

}  // namespace quarry
