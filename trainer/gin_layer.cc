#include "gin_layer.h"

namespace quarry {

GinLayer::GinLayer(LayerWork& work, uint32_t in_width, uint32_t out_width, Rng& rng)
    : Layer(in_width, out_width),
      work_(work),
      first_(work, {.aggregator = Aggregator::kSum, .self_apart = false}, in_width, out_width, rng),
      second_weight_({out_width, out_width}) {
  DrawGlorot(rng, 2 * uint64_t{out_width}, Span(second_weight_.value));
}

Status GinLayer::Resize(const LayerInput& input) {
  QUARRY_RETURN_IF_ERROR(first_.Resize(input));
  QUARRY_RETURN_IF_ERROR(middle_.Resize(input.rows, out()));
  return middle_gradient_.Resize(input.rows, out());
}

void GinLayer::Forward(const LayerInput& input, const torch::Tensor& output) {
  first_.Forward(input, middle_.All());
  ActivateMiddle(input.rows);
  work_.Multiply(middle_.All(), second_weight_.value, output, LayerWork::kProductRows);
}

void GinLayer::Backward(const LayerInput& input, const torch::Tensor& gradient,
                        const SourceGradients* sources) {
  const torch::Tensor middle_gradient = middle_gradient_.All();
  work_.Multiply(middle_.All().t(), gradient, second_weight_.gradient, LayerWork::kWeightRows);
  work_.Multiply(gradient, second_weight_.value.t(), middle_gradient, LayerWork::kProductRows);
  work_.ForRows(0, input.rows, [&](uint32_t begin, uint32_t end) {
    BackwardRelu(uint64_t{end - begin} * out(), middle_.row(begin), middle_gradient_.row(begin));
  });
  at::sum_out(first_.bias().gradient, middle_gradient, {0});
  first_.Backward(input, middle_gradient, sources);
}

void GinLayer::ActivateMiddle(uint32_t rows) {
  work_.ForRows(0, rows, [&](uint32_t begin, uint32_t end) {
    ActivateRows(Span(first_.bias().value), {}, begin, end, middle_.row(begin));
  });
}

Status GinLayer::FinishStates(const torch::Tensor& states, const torch::Tensor& output) {
  const auto rows = static_cast<uint32_t>(states.size(0));
  QUARRY_RETURN_IF_ERROR(middle_.Resize(rows, out()));
  QUARRY_RETURN_IF_ERROR(first_.FinishStates(states, middle_.All()));
  ActivateMiddle(rows);
  work_.Multiply(middle_.All(), second_weight_.value, output, LayerWork::kProductRows);
  return Status::Ok();
}

}  // namespace quarry
