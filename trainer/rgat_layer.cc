#include "rgat_layer.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "elementwise.h"
#include "kernel.h"
#include "quarry/base/units.h"
#include "quarry/trainer/model_spec.h"
#include "source_tiles.h"

namespace quarry {

namespace {

// A layer's edges, and what attention over them knows. Shares of edge e lie at row e, those of v itself at edge_count + v.
struct RelationBlock {
  RelationHeads shape;
  const uint32_t* indptr = nullptr;
  const uint32_t* indices = nullptr;
  const uint32_t* kinds = nullptr;  // by edge
  uint32_t rows = 0, edge_count = 0;
  const float* coefficients = nullptr;  // [kinds + 1, bases]
  uint32_t own_kind = 0;                // of a node itself
  const float* left = nullptr;          // [rows, bases * heads]
  const float* right = nullptr;         // [sources, bases * heads]
  float* shares = nullptr;              // [edge_count + rows, heads]

  const float* Counts(uint32_t kind) const { return coefficients + size_t{kind} * shape.bases; }
};

constexpr float kBelowScores = -3.4e38F;
constexpr Gathering kOverEdges = {.aggregator = Aggregator::kSum, .self_apart = false};

// The members of v's list one after the other: member(u, kind, where its share is), v itself the last.
template <typename Member>
QUARRY_INLINE void ForKindedMembers(const RelationBlock& block, uint32_t v, const Member& member) {
  for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; e++) {
    member(block.indices[e], block.kinds[e], size_t{e});
  }
  member(v, block.own_kind, size_t{block.edge_count} + v);
}

// The score of head h before the leaky ReLU: `left` and `right` are by basis and head.
QUARRY_INLINE float KindedScore(const RelationHeads& shape, const float* counts, const float* left,
                                const float* right, uint32_t h) {
  float score = 0;
  for (uint32_t b = 0; b < shape.bases; b++) {
    const size_t at = size_t{b} * shape.heads + h;
    score += counts[b] * (left[at] + right[at]);
  }
  return score;
}

QUARRY_INLINE float Leaky(float score) { return score > 0 ? score : kLeakySlope * score; }

// scores[v, b, h] = z[v, b, h] . weights[h], rows [begin, end); z and scores are those of row `begin`, so many floats
// apart from row to row.
QUARRY_KERNEL void ScoreBases(const RelationHeads& shape, const float* weights, uint32_t rows, const float* z,
                              size_t z_stride, float* scores, size_t score_stride) {
  for (uint32_t v = 0; v < rows; v++) {
    for (uint32_t i = 0; i < shape.scores(); i++) {
      scores[v * score_stride + i] = Dot(z + v * z_stride + size_t{i} * shape.head_dim,
                                         weights + size_t{i % shape.heads} * shape.head_dim, shape.head_dim);
    }
  }
}

// Adds scale[h] times the message of a row of z to `sum`, head by head.
QUARRY_INLINE void AddMessage(const RelationHeads& shape, const float* counts, const float* z,
                              const float* scale, float* sum) {
  for (uint32_t b = 0; b < shape.bases; b++) {
    for (uint32_t h = 0; h < shape.heads; h++) {
      const size_t at = size_t{h} * shape.head_dim;
      AddScaled(z + size_t{b} * shape.width() + at, counts[b] * scale[h], shape.head_dim, sum + at);
    }
  }
}

// Fills shares and rows [begin, end) of the output; `out` points at row `begin`, `sum` is scratch as wide as a message.
QUARRY_KERNEL void AttendRows(const RelationBlock& block, const float* z, uint32_t begin, uint32_t end,
                              float* out, float* sum) {
  const RelationHeads& shape = block.shape;
  const uint32_t heads = shape.heads;
  float largest[ModelSpec::kHeadsMax], total[ModelSpec::kHeadsMax];
  for (uint32_t v = begin; v < end; v++) {
    const float* const left = block.left + size_t{v} * shape.scores();
    std::fill_n(largest, heads, kBelowScores);
    std::fill_n(total, heads, 0.0F);
    ForKindedMembers(
        block, v, [&](uint32_t u, uint32_t kind, size_t at) __attribute__((always_inline)) {
          const float* const right = block.right + size_t{u} * shape.scores();
          for (uint32_t h = 0; h < heads; h++) {
            const float score = Leaky(KindedScore(shape, block.Counts(kind), left, right, h));
            block.shares[at * heads + h] = score;
            largest[h] = std::max(largest[h], score);
          }
        });
    ForKindedMembers(
        block, v, [&](uint32_t, uint32_t, size_t at) __attribute__((always_inline)) {
          float* const share = block.shares + at * heads;
          for (uint32_t h = 0; h < heads; h++) total[h] += share[h] = Exp(share[h] - largest[h]);
        });
    float* const to = shape.averages ? sum : out + size_t{v - begin} * shape.width();
    std::memset(to, 0, shape.width() * sizeof(float));
    ForKindedMembers(
        block, v, [&](uint32_t u, uint32_t kind, size_t at) __attribute__((always_inline)) {
          float* const share = block.shares + at * heads;
          for (uint32_t h = 0; h < heads; h++) share[h] /= total[h];
          AddMessage(shape, block.Counts(kind), z + size_t{u} * shape.z_width(), share, to);
        });
    if (!shape.averages) continue;
    float* const mean = out + size_t{v - begin} * shape.head_dim;
    std::memset(mean, 0, shape.head_dim * sizeof(float));
    for (uint32_t h = 0; h < heads; h++) {
      AddScaled(sum + size_t{h} * shape.head_dim, 1.0F / static_cast<float>(heads), shape.head_dim, mean);
    }
  }
}

// The part of head h in the gradient of an output; averaged heads have the same, `HeadPart` of it each.
QUARRY_INLINE const float* GradientOf(const RelationHeads& shape, const float* gradients, uint32_t v,
                                      uint32_t h) {
  return gradients + size_t{v} * shape.out_width() + (shape.averages ? 0 : size_t{h} * shape.head_dim);
}
QUARRY_INLINE float HeadPart(const RelationHeads& shape) {
  return shape.averages ? 1.0F / static_cast<float>(shape.heads) : 1.0F;
}

// From the gradients of the outputs (whole), those of scores before the leaky ReLU and of left scores of rows [begin, end);
// adds to those of the coefficients ([kinds + 1, bases]).
QUARRY_KERNEL void BackwardRows(const RelationBlock& block, const float* z, const float* gradients,
                                uint32_t begin, uint32_t end, float* scores, float* left_gradients,
                                float* of_kinds) {
  const RelationHeads& shape = block.shape;
  const uint32_t heads = shape.heads, bases = shape.bases;
  const float part = HeadPart(shape);
  float mean[ModelSpec::kHeadsMax];  // of the shares' gradients, by share
  for (uint32_t v = begin; v < end; v++) {
    std::fill_n(mean, heads, 0.0F);
    ForKindedMembers(
        block, v, [&](uint32_t u, uint32_t kind, size_t at) __attribute__((always_inline)) {
          const float* const row = z + size_t{u} * shape.z_width();
          const float* const counts = block.Counts(kind);
          float* const slopes = of_kinds + size_t{kind} * bases;
          for (uint32_t h = 0; h < heads; h++) {
            const float share = block.shares[at * heads + h];
            const float* const gradient = GradientOf(shape, gradients, v, h);
            float d = 0;
            for (uint32_t b = 0; b < bases; b++) {
              const float product = part * Dot(row + size_t{b} * shape.width() + size_t{h} * shape.head_dim,
                                               gradient, shape.head_dim);
              d += counts[b] * product;
              slopes[b] += share * product;
            }
            scores[at * heads + h] = d;
            mean[h] += share * d;
          }
        });
    const float* const left = block.left + size_t{v} * shape.scores();
    float* const to_left = left_gradients + size_t{v} * shape.scores();
    std::fill_n(to_left, shape.scores(), 0.0F);
    ForKindedMembers(
        block, v, [&](uint32_t u, uint32_t kind, size_t at) __attribute__((always_inline)) {
          const float* const right = block.right + size_t{u} * shape.scores();
          const float* const counts = block.Counts(kind);
          float* const slopes = of_kinds + size_t{kind} * bases;
          for (uint32_t h = 0; h < heads; h++) {
            const float slope = KindedScore(shape, counts, left, right, h) > 0 ? 1.0F : kLeakySlope;
            const float d = slope * block.shares[at * heads + h] * (scores[at * heads + h] - mean[h]);
            scores[at * heads + h] = d;
            for (uint32_t b = 0; b < bases; b++) {
              const size_t score = size_t{b} * heads + h;
              to_left[score] += d * counts[b];
              slopes[b] += d * (left[score] + right[score]);
            }
          }
        });
  }
}

struct ScoreWeights {
  const float* left;
  const float* right;
};

// Replaces z of sources [begin, end) by its gradient, and adds to those of the weights of scores ([2, heads * head_dim]).
// `sum` and `right` are scratch, as wide as a row of z and of its scores.
QUARRY_KERNEL void BackwardRowsOfZ(const RelationBlock& block, const TransposedBlock& transposed,
                                   const ScoreWeights& weights, const float* gradients, const float* scores,
                                   const float* left_gradients, uint32_t begin, uint32_t end, float* z,
                                   float* weight_gradients, float* sum, float* right) {
  const RelationHeads& shape = block.shape;
  const uint32_t heads = shape.heads, dim = shape.head_dim;
  const float part = HeadPart(shape);
  for (uint32_t u = begin; u < end; u++) {
    std::memset(sum, 0, shape.z_width() * sizeof(float));
    std::memset(right, 0, shape.scores() * sizeof(float));
    const auto add = [&](uint32_t v, uint32_t kind, size_t at) __attribute__((always_inline)) {
      const float* const counts = block.Counts(kind);
      for (uint32_t b = 0; b < shape.bases; b++) {
        for (uint32_t h = 0; h < heads; h++) {
          AddScaled(GradientOf(shape, gradients, v, h), part * block.shares[at * heads + h] * counts[b], dim,
                    sum + size_t{b} * shape.width() + size_t{h} * dim);
          right[size_t{b} * heads + h] += scores[at * heads + h] * counts[b];
        }
      }
    };
    for (uint32_t i = transposed.offsets[u]; i < transposed.offsets[u + 1]; i++) {
      const uint32_t e = transposed.edges[i];
      add(transposed.destinations[i], block.kinds[e], e);
    }
    if (u < block.rows) add(u, block.own_kind, size_t{block.edge_count} + u);
    float* const row = z + size_t{u} * shape.z_width();
    for (uint32_t i = 0; i < shape.scores(); i++) {
      const size_t at = size_t{i} * dim, of_head = size_t{i % heads} * dim;
      AddScaled(row + at, right[i], dim, weight_gradients + shape.width() + of_head);
      AddScaled(weights.right + of_head, right[i], dim, sum + at);
      if (u >= block.rows) continue;
      const float of_left = left_gradients[size_t{u} * shape.scores() + i];
      AddScaled(row + at, of_left, dim, weight_gradients + of_head);
      AddScaled(weights.left + of_head, of_left, dim, sum + at);
    }
    std::memcpy(row, sum, shape.z_width() * sizeof(float));
  }
}

// Adds a message of a kind with these counts to a state: a score that is larger than all before scales what was summed.
QUARRY_KERNEL void AddToState(const RelationHeads& shape, const float* counts, const float* message,
                              float* state) {
  float* const largest = state + shape.width();
  float* const totals = largest + shape.heads;
  const float* const left = totals + shape.heads;
  float share[ModelSpec::kHeadsMax];
  for (uint32_t h = 0; h < shape.heads; h++) {
    const float score = Leaky(KindedScore(shape, counts, left, message + shape.z_width(), h));
    if (score > largest[h]) {
      const float kept = Exp(largest[h] - score);
      float* const sum = state + size_t{h} * shape.head_dim;
      for (uint32_t c = 0; c < shape.head_dim; c++) sum[c] *= kept;
      totals[h] *= kept;
      largest[h] = score;
    }
    share[h] = Exp(score - largest[h]);
    totals[h] += share[h];
  }
  AddMessage(shape, counts, message, share, state);
}

class RgatLayer final : public Layer {
 public:
  RgatLayer(LayerWork& work, uint32_t kinds, uint32_t bases, uint32_t heads, bool averages, uint32_t in_width,
            uint32_t out_width, Rng& rng)
      : Layer(in_width, out_width),
        work_(work),
        kinds_(kinds),
        shape_{.bases = bases,
               .heads = heads,
               .head_dim = averages ? out_width : out_width / heads,
               .averages = averages},
        weight_({in_width, shape_.z_width()}),
        left_({heads, shape_.head_dim}),
        right_({heads, shape_.head_dim}),
        coefficients_({int64_t{kinds} + 1, bases}) {
    DrawGlorot(rng, in_width + uint64_t{shape_.width()},
               Span(weight_.value));  // each basis is a matrix of its own
    for (Parameter* const scored : {&left_, &right_}) {
      DrawGlorot(rng, heads + uint64_t{shape_.head_dim}, Span(scored->value));
    }
    DrawGlorot(rng, 2 * uint64_t{bases}, Span(coefficients_.value));
  }

  std::vector<Parameter*> Parameters() override {
    return {&weight_, &left_, &right_, &coefficients_, &bias()};
  }
  std::vector<std::string_view> ParameterNames() const override {
    return {"weight", "attention.node", "attention.neighbor", "coefficients", "bias"};
  }
  Status Resize(const LayerInput& input) override {
    const uint64_t members = uint64_t{input.indptr[input.rows]} + input.rows;
    QUARRY_RETURN_IF_ERROR(tile_.Resize(std::min(TileRows(in()), input.source_rows), in()));
    QUARRY_RETURN_IF_ERROR(z_.Resize(input.source_rows, shape_.z_width()));
    QUARRY_RETURN_IF_ERROR(left_scores_.Resize(input.rows, shape_.scores()));
    QUARRY_RETURN_IF_ERROR(right_scores_.Resize(input.source_rows, shape_.scores()));
    QUARRY_RETURN_IF_ERROR(shares_.Resize(members, shape_.heads));
    QUARRY_RETURN_IF_ERROR(score_gradients_.Resize(members, shape_.heads));
    QUARRY_RETURN_IF_ERROR(left_gradients_.Resize(input.rows, shape_.scores()));
    QUARRY_RETURN_IF_ERROR(
        partial_weights_.Resize(CeilDiv(input.source_rows, kRgatPieceSources), 2 * uint64_t{shape_.width()}));
    return partial_coefficients_.Resize(CeilDiv(input.rows, kKindPieceRows),
                                        (uint64_t{kinds_} + 1) * shape_.bases);
  }
  void Forward(const LayerInput& input, const torch::Tensor& output) override {
    ForEachSourceTile(work_, input, in(), tile_,
                      [&](uint32_t begin, uint32_t end, const torch::Tensor& tile) {
                        work_.Multiply(tile, weight_.value, z_.Rows(begin, end), LayerWork::kProductRows);
                      });
    const auto score = [&](const Parameter& weights, Matrix& scores, uint32_t begin, uint32_t end) {
      if (begin >= end) return;
      ScoreBases(shape_, Span(weights.value).data(), end - begin, z_.row(begin), shape_.z_width(),
                 scores.row(begin), shape_.scores());
    };
    work_.ForRows(0, input.source_rows, [&](uint32_t begin, uint32_t end) {
      score(right_, right_scores_, begin, end);
      score(left_, left_scores_, begin, std::min(end, input.rows));
    });
    const RelationBlock block = BlockOf(input);
    float* const rows = output.data_ptr<float>();
    work_.ForRows(0, input.rows, [&](uint32_t begin, uint32_t end) {
      std::vector<float> sum(shape_.averages ? shape_.width() : 0);
      AttendRows(block, z_.row(0), begin, end, rows + uint64_t{begin} * out(), sum.data());
    });
  }
  // Pieces are summed by themselves and then in their order, so that the bits are the same for any number of threads.
  void Backward(const LayerInput& input, const torch::Tensor& gradient,
                const SourceGradients* sources) override {
    const RelationBlock block = BlockOf(input);
    const float* const gradients = gradient.data_ptr<float>();
    partial_coefficients_.All().zero_();
    work_.ForPieces(0, input.rows, kKindPieceRows, [&](uint32_t piece, uint32_t begin, uint32_t end) {
      BackwardRows(block, z_.row(0), gradients, begin, end, score_gradients_.row(0), left_gradients_.row(0),
                   partial_coefficients_.row(piece));
    });
    SumRowsInOrder(partial_coefficients_, Span(coefficients_.gradient));
    TransposedBlock& transposed = work_.transposed;
    Transpose(kOverEdges, input.indptr, input.indices, input.rows, input.source_rows, transposed,
              /*with_edges=*/true);
    const ScoreWeights weights = {Span(left_.value).data(), Span(right_.value).data()};
    partial_weights_.All().zero_();
    work_.ForPieces(0, input.source_rows, kRgatPieceSources,
                    [&](uint32_t piece, uint32_t begin, uint32_t end) {
                      std::vector<float> sum(shape_.z_width()), right(shape_.scores());
                      BackwardRowsOfZ(block, transposed, weights, gradients, score_gradients_.row(0),
                                      left_gradients_.row(0), begin, end, z_.row(0),
                                      partial_weights_.row(piece), sum.data(), right.data());
                    });
    std::vector<float> scored(2 * size_t{shape_.width()});
    SumRowsInOrder(partial_weights_, scored);
    std::copy_n(scored.begin(), shape_.width(), Span(left_.gradient).begin());
    std::copy_n(scored.begin() + shape_.width(), shape_.width(), Span(right_.gradient).begin());
    BackwardSourceTiles(work_, input, in(), tile_, z_, weight_, sources);
  }
  // Attention comes behind the product in either order, and the score of a node before those of its neighbors.
  GraphForm StartGraph(GraphOrder /*order*/) override {
    return {.state = shape_.graph_state(), .message = shape_.graph_message(), .own_first = true};
  }
  void StartStates(std::span<float> states) const override {
    std::ranges::fill(states, 0.0F);
    for (size_t at = shape_.width(); at < states.size(); at += shape_.graph_state()) {
      std::fill_n(states.begin() + static_cast<ptrdiff_t>(at), shape_.heads, kBelowScores);
    }
  }
  void MakeMessages(const torch::Tensor& rows, const torch::Tensor& messages) override {
    work_.Multiply(rows, weight_.value, messages.slice(1, 0, shape_.z_width()), LayerWork::kProductRows);
    work_.ForRows(0, static_cast<uint32_t>(rows.size(0)), [&](uint32_t begin, uint32_t end) {
      const size_t stride = shape_.graph_message();
      float* const first = messages.data_ptr<float>() + begin * stride;
      ScoreBases(shape_, Span(right_.value).data(), end - begin, first, stride, first + shape_.z_width(),
                 stride);
    });
  }
  void AddOwn(const torch::Tensor& rows, const torch::Tensor& messages,
              std::span<const uint64_t> /*list_sizes*/, const torch::Tensor& states) override {
    const float* const own_counts = Span(coefficients_.value).data() + size_t{kinds_} * shape_.bases;
    work_.ForRows(0, static_cast<uint32_t>(rows.size(0)), [&](uint32_t begin, uint32_t end) {
      const size_t message = shape_.graph_message(), state = shape_.graph_state();
      const float* const first = messages.data_ptr<float>() + begin * message;
      float* const to = states.data_ptr<float>() + begin * state;
      ScoreBases(shape_, Span(left_.value).data(), end - begin, first, message,
                 to + shape_.width() + size_t{2} * shape_.heads, state);
      for (uint32_t v = 0; v < end - begin; v++) {
        AddToState(shape_, own_counts, first + v * message, to + v * state);
      }
    });
  }
  void AddList(const GraphList& list, const float* messages, float* state) const override {
    const float* const coefficients = Span(coefficients_.value).data();
    for (size_t i = 0; i < list.sources.size(); i++) {
      AddToState(shape_, coefficients + size_t{list.kinds[i]} * shape_.bases,
                 messages + size_t{list.sources[i]} * shape_.graph_message(), state);
    }
  }
  Status FinishStates(const torch::Tensor& states, const torch::Tensor& output) override {
    work_.ForRows(0, static_cast<uint32_t>(states.size(0)), [&](uint32_t begin, uint32_t end) {
      for (uint32_t v = begin; v < end; v++) {
        const float* const state = states.data_ptr<float>() + size_t{v} * shape_.graph_state();
        const float* const totals = state + shape_.width() + shape_.heads;
        float* const row = output.data_ptr<float>() + size_t{v} * out();
        std::fill_n(row, out(), 0.0F);
        for (uint32_t h = 0; h < shape_.heads; h++) {
          const size_t at = size_t{h} * shape_.head_dim;
          AddScaled(state + at, HeadPart(shape_) / totals[h], shape_.head_dim,
                    row + (shape_.averages ? 0 : at));
        }
      }
    });
    return Status::Ok();
  }
  uint64_t activation_bytes() const override {
    uint64_t bytes = 0;
    for (const Matrix* const matrix :
         {&tile_, &z_, &left_scores_, &right_scores_, &shares_, &score_gradients_, &left_gradients_,
          &partial_weights_, &partial_coefficients_}) {
      bytes += matrix->mapped_bytes();
    }
    return bytes;
  }

 private:
  RelationBlock BlockOf(const LayerInput& input) {
    return {.shape = shape_,
            .indptr = input.indptr.data(),
            .indices = input.indices.data(),
            .kinds = input.kinds.data(),
            .rows = input.rows,
            .edge_count = input.indptr[input.rows],
            .coefficients = Span(coefficients_.value).data(),
            .own_kind = kinds_,
            .left = left_scores_.row(0),
            .right = right_scores_.row(0),
            .shares = shares_.row(0)};
  }

  LayerWork& work_;
  const uint32_t kinds_;  // of edges
  const RelationHeads shape_;
  Parameter weight_;        // [in, bases * heads * head_dim]
  Parameter left_, right_;  // [heads, head_dim]: what scores a node, and a message
  Parameter coefficients_;  // [kinds + 1, bases], a node's own the last
  Matrix tile_;             // of sources, or of their gradients
  Matrix z_;
  Matrix left_scores_, right_scores_;  // [rows, bases * heads], [sources, bases * heads]
  Matrix shares_, score_gradients_;    // [edges + rows, heads]
  Matrix left_gradients_;              // [rows, bases * heads]
  Matrix partial_weights_;             // [pieces of sources, 2 * heads * head_dim]
  Matrix partial_coefficients_;        // [pieces of rows, (kinds + 1) * bases]
};

}  // namespace

std::unique_ptr<Layer> MakeRgatLayer(LayerWork& work, uint32_t kinds, uint32_t bases, uint32_t heads,
                                     bool averages, uint32_t in_width, uint32_t out_width, Rng& rng) {
  return std::make_unique<RgatLayer>(work, kinds, bases, heads, averages, in_width, out_width, rng);
}

}  // namespace quarry
