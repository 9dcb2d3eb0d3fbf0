#include "gin_layer.h"

#include <span>
#include <string_view>
#include <vector>

#include "gathered_layer.h"

namespace quarry {
namespace {

class GinLayer final : public Layer {
 public:
  GinLayer(LayerWork& work, uint32_t in_width, uint32_t out_width, Rng& rng)
      : Layer(in_width, out_width),
        work_(work),
        first_(MakeGatheredLayer(work, {.aggregator = Aggregator::kSum, .self_apart = false}, in_width,
                                 out_width, rng)),
        second_weight_({out_width, out_width}) {
    DrawGlorot(rng, 2 * uint64_t{out_width}, Span(second_weight_.value));
  }

  std::vector<Parameter*> Parameters() override {
    return {first_->Parameters().front(), &first_->bias(), &second_weight_, &bias()};
  }
  std::vector<std::string_view> ParameterNames() const override {
    return {"first.weight", "first.bias", "second.weight", "second.bias"};
  }
  Status Resize(const LayerInput& input) override {
    QUARRY_RETURN_IF_ERROR(first_->Resize(input));
    QUARRY_RETURN_IF_ERROR(middle_.Resize(input.rows, out()));
    return middle_gradient_.Resize(input.rows, out());
  }
  void Forward(const LayerInput& input, const torch::Tensor& output) override {
    first_->Forward(input, middle_.All());
    ActivateMiddle(input.rows);
    work_.Multiply(middle_.All(), second_weight_.value, output, LayerWork::kProductRows);
  }
  void Backward(const LayerInput& input, const torch::Tensor& gradient,
                const SourceGradients* sources) override {
    const torch::Tensor middle_gradient = middle_gradient_.All();
    work_.Multiply(middle_.All().t(), gradient, second_weight_.gradient, LayerWork::kWeightRows);
    work_.Multiply(gradient, second_weight_.value.t(), middle_gradient, LayerWork::kProductRows);
    work_.ForRows(0, input.rows, [&](uint32_t begin, uint32_t end) {
      BackwardRelu(uint64_t{end - begin} * out(), middle_.row(begin), middle_gradient_.row(begin));
    });
    at::sum_out(first_->bias().gradient, middle_gradient, {0});
    first_->Backward(input, middle_gradient, sources);
  }
  GraphForm StartGraph(GraphOrder order) override { return first_->StartGraph(order); }
  void StartStates(std::span<float> states) const override { first_->StartStates(states); }
  void MakeMessages(const torch::Tensor& rows, const torch::Tensor& messages) override {
    first_->MakeMessages(rows, messages);
  }
  void AddOwn(const torch::Tensor& rows, const torch::Tensor& messages, std::span<const uint64_t> list_sizes,
              const torch::Tensor& states) override {
    first_->AddOwn(rows, messages, list_sizes, states);
  }
  void AddList(const GraphList& list, const float* messages, float* state) const override {
    first_->AddList(list, messages, state);
  }
  Status FinishStates(const torch::Tensor& states, const torch::Tensor& output) override {
    const auto rows = static_cast<uint32_t>(states.size(0));
    QUARRY_RETURN_IF_ERROR(middle_.Resize(rows, out()));
    QUARRY_RETURN_IF_ERROR(first_->FinishStates(states, middle_.All()));
    ActivateMiddle(rows);
    work_.Multiply(middle_.All(), second_weight_.value, output, LayerWork::kProductRows);
    return Status::Ok();
  }
  uint64_t activation_bytes() const override {
    return first_->activation_bytes() + middle_.mapped_bytes() + middle_gradient_.mapped_bytes();
  }

 private:
  // Biases and activates the first `rows` of what is in the middle.
  void ActivateMiddle(uint32_t rows) {
    work_.ForRows(0, rows, [&](uint32_t begin, uint32_t end) {
      ActivateRows(Span(first_->bias().value), {}, begin, end, middle_.row(begin));
    });
  }

  LayerWork& work_;
  const std::unique_ptr<Layer> first_;
  Parameter second_weight_;          // [out, out]
  Matrix middle_, middle_gradient_;  // [rows, out]
};

}  // namespace

std::unique_ptr<Layer> MakeGinLayer(LayerWork& work, uint32_t in_width, uint32_t out_width, Rng& rng) {
  return std::make_unique<GinLayer>(work, in_width, out_width, rng);
}

}  // namespace quarry
