#include "gnn_layers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "graph_memory.h"
#include "matrix.h"
#include "plain_sage.h"
#include "random_block.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

constexpr uint32_t kSpareRows = 5;  // of the input matrix, which no node has

// A block whose input rows lie scattered in a matrix, and a loss that is linear in the outputs.
struct LayersProblem {
  Block block;
  uint32_t dim;
  std::vector<uint32_t> slots;
  std::vector<float> values;            // [nodes + kSpareRows, dim]
  std::vector<float> output_gradients;  // [seeds, out]

  LayersProblem(uint64_t seed, std::vector<uint32_t> hop_offsets, uint32_t in, uint32_t out) : dim(in) {
    Rng rng(seed);
    block = RandomBlock(rng, std::move(hop_offsets), 6);
    slots.resize(block.nodes.size() + kSpareRows);
    std::iota(slots.begin(), slots.end(), 0);
    for (size_t i = slots.size(); i > 1; i--) std::swap(slots[i - 1], slots[rng.Below(i)]);
    values = RandomMatrix(rng, slots.size() * dim);
    slots.resize(block.nodes.size());
    output_gradients = RandomMatrix(rng, size_t{block.seed_count()} * out);
  }

  BatchView view() const {
    BatchView view = block.view();
    view.features = {.rows = std::as_bytes(std::span(values)),
                     .stride_bytes = dim * sizeof(float),
                     .dim = dim,
                     .slots = slots};
    return view;
  }
};

std::unique_ptr<GnnLayers> MakeLayers(const GnnLayersOptions& options) {
  if (options.split_products) SetBlasThreads(1);
  return GnnLayers::Make(options).value();
}

GnnLayersOptions WidthOptions(std::vector<uint32_t> widths) {
  return {.widths = std::move(widths), .learning_rate = 0.01, .seed = 3, .input_gradients = true};
}

// Forward, Backward and the gradients of the input rows, those of no node left at `untouched`.
std::vector<float> RunBlock(GnnLayers& layers, const LayersProblem& problem, float untouched = 0) {
  std::vector<float> output_gradients = problem.output_gradients;
  std::vector<float> gradients(problem.values.size(), untouched);
  EXPECT_OK(layers.Forward(problem.view(), std::nullopt));
  EXPECT_OK(layers.Backward(problem.view(), output_gradients.data(), gradients.data()));
  return gradients;
}

void ExpectNear(std::span<const float> got, const torch::Tensor& expected, double tolerance) {
  const torch::Tensor flat = expected.contiguous();
  ASSERT_EQ(static_cast<size_t>(flat.numel()), got.size());
  for (size_t i = 0; i < got.size(); i++) ASSERT_NEAR(got[i], flat.data_ptr<double>()[i], tolerance) << i;
}

TEST(GnnLayers, AgreesWithPlainTorchInOutputsAndEveryGradient) {
  const std::vector<std::vector<uint32_t>> shapes = {{9, 40}, {9, 40, 150}, {700, 1500, 2000, 2100}};
  for (const std::vector<uint32_t>& shape : shapes) {
    for (const bool split : {false, true}) {
      SCOPED_TRACE(fmt::format("{} hops, split products {}", shape.size() - 1, split));
      std::vector<uint32_t> widths(shape.size(), 24);
      widths.front() = 10;
      widths.back() = 7;
      GnnLayersOptions options = WidthOptions(widths);
      options.split_products = split;
      options.threads = 2;
      const auto layers = MakeLayers(options);
      const LayersProblem problem(shape.size(), shape, 10, 7);
      const auto parameters = PlainParameters(layers->Parameters());
      const torch::Tensor rows = DoubleTensor(problem.values).view({-1, 10}).clone().requires_grad_();
      const std::vector<int64_t> slots(problem.slots.begin(), problem.slots.end());
      const torch::Tensor inputs = rows.index_select(0, torch::tensor(slots, torch::kLong));
      const torch::Tensor outputs = PlainSage(problem.block, inputs, parameters);
      (outputs.view({-1}) * DoubleTensor(problem.output_gradients)).sum().backward();

      const std::vector<float> gradients = RunBlock(*layers, problem);
      ExpectNear(layers->output(), outputs, 1e-5);
      ExpectNear(gradients, rows.grad(), 1e-5);
      const auto parameter_gradients = layers->Gradients();
      for (size_t p = 0; p < parameters.size(); p++) {
        SCOPED_TRACE(fmt::format("parameter {}", p));
        ExpectNear(parameter_gradients[p], parameters[p].grad(), 2e-4);
      }
    }
  }
}

TEST(GnnLayers, RowsOfNoNodeKeepTheirGradients) {
  const LayersProblem problem(5, {4, 30}, 6, 3);
  const auto layers = MakeLayers(WidthOptions({6, 3}));
  const std::vector<float> gradients = RunBlock(*layers, problem, 7);
  EXPECT_EQ(std::ranges::count(gradients, 7.0F), kSpareRows * 6);
}

// More rows than a piece of a product has, and more than a tile.
TEST(GnnLayers, SplitProductsAreTheSameBitsForAnyNumberOfThreads) {
  const LayersProblem problem(8, {600, 1400, 3000}, 16, 5);
  const std::vector<uint64_t> indptr = {0, 2, 3, 3, 5};
  const std::vector<NodeId> indices = {1, 3, 0, 2, 3};
  std::vector<std::byte> state;
  std::vector<float> gradients, graph;
  for (const unsigned threads : {1U, 2U, 5U}) {
    SCOPED_TRACE(threads);
    GnnLayersOptions options = WidthOptions({16, 40, 5});
    options.split_products = true;
    options.threads = threads;
    const auto layers = MakeLayers(options);
    std::vector<float> last, rows(problem.values.begin(), problem.values.begin() + 4 * 16);
    for (int step = 0; step < 3; step++) {
      last = RunBlock(*layers, problem);
      ASSERT_OK(layers->Step());
    }
    ASSERT_OK(ForwardGraph(*layers, indptr, indices, rows));
    if (threads == 1) {
      state = layers->State();
      gradients = last;
      graph = rows;
    }
    EXPECT_EQ(layers->State(), state);
    EXPECT_EQ(last, gradients);
    EXPECT_EQ(rows, graph);
  }
}

// As a block all of whose nodes are seeds, with all neighbors; the last tile is a short one.
TEST(GnnLayers, AWholeGraphIsABlockOfAllItsNodes) {
  constexpr uint32_t kNodes = 3000, kDim = 700;  // a tile has 1497 rows
  Rng rng(11);
  Block block = RandomBlock(rng, {kNodes, kNodes}, 4);
  const std::vector<uint64_t> indptr(block.indptr.begin(), block.indptr.end());
  block.hop_offsets = {kNodes, kNodes, kNodes};
  std::vector<float> rows = RandomMatrix(rng, size_t{kNodes} * kDim);
  std::vector<uint32_t> slots(kNodes);
  std::iota(slots.begin(), slots.end(), 0);
  const std::vector<float> values = rows;
  BatchView view = block.view();
  view.features = {.rows = std::as_bytes(std::span(values)),
                   .stride_bytes = kDim * sizeof(float),
                   .dim = kDim,
                   .slots = slots};
  const auto layers = MakeLayers(WidthOptions({kDim, 12, 6}));
  ASSERT_OK(ForwardGraph(*layers, indptr, block.indices, rows));
  ASSERT_OK(layers->Forward(view, std::nullopt));
  const std::span<const float> outputs = layers->output();
  ASSERT_EQ(rows.size(), outputs.size());
  for (size_t i = 0; i < rows.size(); i++) ASSERT_NEAR(rows[i], outputs[i], 1e-5) << i;
}

TEST(GnnLayers, StepsAreThoseOfTorchsAdam) {
  GnnLayersOptions options = WidthOptions({8, 12, 4});
  options.weight_decay = 0.02;
  const auto layers = MakeLayers(options);
  std::vector<torch::Tensor> parameters;
  for (const std::span<float> span : layers->Parameters()) {
    parameters.push_back(torch::tensor(std::vector<float>(span.begin(), span.end())));
  }
  torch::optim::Adam adam(parameters, torch::optim::AdamOptions(0.01).weight_decay(0.02));
  for (uint64_t step = 0; step < 5; step++) {
    RunBlock(*layers, LayersProblem(step, {9, 40, 150}, 8, 4));
    const auto gradients = layers->Gradients();
    for (size_t p = 0; p < parameters.size(); p++) {
      parameters[p].mutable_grad() =
          torch::tensor(std::vector<float>(gradients[p].begin(), gradients[p].end()));
    }
    adam.step();
    ASSERT_OK(layers->Step());
    for (size_t p = 0; p < parameters.size(); p++) {
      const std::span<const float> got = layers->Parameters()[p];
      for (size_t i = 0; i < got.size(); i++) {
        ASSERT_NEAR(got[i], parameters[p].data_ptr<float>()[i], 1e-6)
            << "step " << step << ", parameter " << p;
      }
    }
  }
}

TEST(GnnLayers, TrainingGoesOnFromAStateToTheSameBits) {
  const LayersProblem problem(9, {20, 60, 90}, 8, 3);
  const auto layers = MakeLayers(WidthOptions({8, 6, 3}));
  const auto train = [&](GnnLayers& trained, int steps) {
    for (int step = 0; step < steps; step++) {
      RunBlock(trained, problem);
      EXPECT_OK(trained.Step());
    }
  };
  train(*layers, 2);
  const std::vector<std::byte> without_saved = layers->State();
  layers->Save();
  train(*layers, 2);
  const std::vector<std::byte> state = layers->State();
  GnnLayersOptions other = WidthOptions({8, 6, 3});
  other.seed = 4;
  const auto resumed = MakeLayers(other);
  ASSERT_OK(resumed->TakeState(state));
  EXPECT_EQ(resumed->State(), state);
  for (GnnLayers* one : {layers.get(), resumed.get()}) train(*one, 3);
  EXPECT_EQ(resumed->State(), layers->State());
  resumed->Restore();
  layers->Restore();
  EXPECT_EQ(resumed->State(), layers->State());
  ASSERT_OK(resumed->TakeState(without_saved));
  EXPECT_EQ(resumed->State(), without_saved);
}

TEST(GnnLayers, RefusesStatesOfOtherWidths) {
  const std::vector<std::byte> state = MakeLayers(WidthOptions({8, 6, 3}))->State();
  for (const std::vector<uint32_t>& widths : {std::vector<uint32_t>{8, 6, 6, 3}, {8, 3}, {8, 7, 3}}) {
    const Status status = MakeLayers(WidthOptions(widths))->TakeState(state);
    EXPECT_EQ(status.code(), Code::kCorruption);
    EXPECT_NE(status.message().find(fmt::format("widths 8, {}", widths[1])), std::string::npos)
        << status.ToString();
  }
  const auto layers = MakeLayers(WidthOptions({8, 6, 3}));
  EXPECT_EQ(layers->TakeState(std::span(state).first(state.size() - 1)).code(), Code::kCorruption);
  EXPECT_EQ(layers->TakeState({}).code(), Code::kCorruption);
  EXPECT_OK(layers->TakeState(state));
}

}  // namespace
}  // namespace quarry
