// Every model's layers against plain Torch, and what all of them promise: the same bits for any number of threads, slopes
// under dropout, no more memory than was estimated, states that are taken up again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "fake_road.h"
#include "gnn_layers.h"
#include "graph_memory.h"
#include "matrix.h"
#include "node_model.h"
#include "plain_gnn.h"
#include "plain_relations.h"
#include "random_block.h"
#include "slope.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

std::vector<ModelSpec> AllModels() {
  return {{.model = GnnKind::kSage},
          {.model = GnnKind::kSage, .aggregator = Aggregator::kMax},
          {.model = GnnKind::kSage, .aggregator = Aggregator::kSum},
          {.model = GnnKind::kSage, .edge_weights = EdgeWeights::kOn},
          {.model = GnnKind::kSage, .aggregator = Aggregator::kSum, .edge_weights = EdgeWeights::kOn},
          {.model = GnnKind::kGcn},
          {.model = GnnKind::kGcn, .edge_weights = EdgeWeights::kOn},
          {.model = GnnKind::kGcn, .gcn_norm = GcnNorm::kBoth},
          {.model = GnnKind::kGat, .heads = 1},
          {.model = GnnKind::kGat, .heads = 4},
          {.model = GnnKind::kGin}};
}

std::string GnnTestName(const testing::TestParamInfo<ModelSpec>& info) {
  return fmt::format("{}_{}_{}_{}_{}", NameOf(info.param.model), NameOf(info.param.aggregator),
                     info.param.heads, NameOf(info.param.gcn_norm), NameOf(info.param.edge_weights));
}

// What so many edges weigh; every third one nothing.
std::shared_ptr<const std::span<const float>> WeightsOf(std::vector<float> weights) {
  struct Held {
    std::vector<float> weights;
    std::span<const float> span;
  };
  auto held = std::make_shared<Held>();
  held->weights = std::move(weights);
  held->span = held->weights;
  return {held, &held->span};
}
std::shared_ptr<const std::span<const float>> SomeWeights(uint64_t count) {
  Rng rng(MixSeed(count, 6));
  std::vector<float> weights(count);
  for (uint64_t edge = 0; edge < count; edge++) {
    weights[edge] = edge % 3 == 0 ? 0.0F : static_cast<float>(3 * rng.Unit());
  }
  return WeightsOf(std::move(weights));
}

// Degrees of nodes 0 to count - 1 in a graph of which blocks are samples.
std::shared_ptr<const std::vector<uint32_t>> SomeDegrees(uint64_t count) {
  Rng rng(MixSeed(count, 5));
  std::vector<uint32_t> degrees(count);
  for (uint32_t& degree : degrees) degree = static_cast<uint32_t>(rng.Below(40));
  return std::make_shared<const std::vector<uint32_t>>(std::move(degrees));
}

class GnnModels : public testing::TestWithParam<ModelSpec> {};
INSTANTIATE_TEST_SUITE_P(All, GnnModels, testing::ValuesIn(AllModels()), GnnTestName);

// A block with isolated nodes, single neighbors, parallel edges and nodes that are their own neighbors, whose input rows
// lie scattered in a matrix; and a loss that is linear in the outputs.
struct GnnProblem {
  static constexpr uint64_t kEdges = 5000;  // of the graph
  Block block;
  uint32_t dim;
  std::vector<uint32_t> slots;
  std::vector<float> values, output_gradients;
  std::vector<int64_t> labels;

  GnnProblem(uint64_t seed, const std::vector<uint32_t>& hop_offsets, uint32_t in, uint32_t out) : dim(in) {
    Rng rng(seed);
    block = RandomBlock(rng, hop_offsets, 6);
    // The lists of the first nodes: none, one neighbor, itself, and the same twice.
    block.indptr.resize(1);
    std::vector<uint32_t> indices;
    const Block random = RandomBlock(rng, hop_offsets, 6);
    for (uint32_t v = 0; v + 1 < random.indptr.size(); v++) {
      std::vector<uint32_t> list(random.indices.begin() + random.indptr[v],
                                 random.indices.begin() + random.indptr[v + 1]);
      if (v == 0) list = {};
      if (v == 1) list = {hop_offsets[1] - 1};
      if (v == 2) list = {2};
      if (v == 3) list = {hop_offsets[1] - 1, 0, hop_offsets[1] - 1};
      indices.insert(indices.end(), list.begin(), list.end());
      block.indptr.push_back(static_cast<uint32_t>(indices.size()));
    }
    block.indices = std::move(indices);
    // An edge of the graph may be drawn more than once, and edge 0, which weighs nothing, is all that node 1 has.
    for (uint32_t e = 0; e < block.indices.size(); e++) block.edge_ids.push_back(rng.Below(kEdges));
    block.edge_ids[0] = 0;
    slots.resize(block.nodes.size());
    std::iota(slots.begin(), slots.end(), 0);
    for (size_t i = slots.size(); i > 1; i--) std::swap(slots[i - 1], slots[rng.Below(i)]);
    values = RandomMatrix(rng, slots.size() * dim);
    output_gradients = RandomMatrix(rng, size_t{block.seed_count()} * out);
    for (uint32_t i = 0; i < block.seed_count(); i++) labels.push_back(static_cast<int64_t>(rng.Below(out)));
  }

  BatchView view() const {
    BatchView view = block.view();
    view.labels = labels;
    view.features = {.rows = std::as_bytes(std::span(values)),
                     .stride_bytes = dim * sizeof(float),
                     .dim = dim,
                     .slots = slots};
    return view;
  }
};

TEST_P(GnnModels, AgreesWithPlainTorchInOutputsAndEveryGradient) {
  struct Shape {
    std::vector<uint32_t> hops;
    uint32_t in;
  };
  // The last has more than one tile of sources, which GAT multiplies.
  const std::vector<Shape> shapes = {
      {{9, 40}, 10}, {{9, 40, 150}, 10}, {{7, 30, 60, 90}, 33}, {{5, 60, 700}, 5000}};
  static uint64_t tests = 0;
  testing_util::SomeOf some(tests++, 2);
  for (const Shape& shape : shapes) {
    if (!some.TakesNext()) continue;
    std::vector<uint32_t> widths(shape.hops.size(), 24);
    widths.front() = shape.in;
    widths.back() = 7;
    const auto degrees = SomeDegrees(shape.hops.back());
    const auto weights = SomeWeights(GnnProblem::kEdges);
    const GnnProblem problem(shape.hops.size(), shape.hops, shape.in, 7);
    torch::Tensor outputs, rows;
    std::vector<std::vector<torch::Tensor>> parameters;
    for (const bool split : {false, true}) {
      SCOPED_TRACE(
          fmt::format("{} hops, {} columns, split products {}", shape.hops.size() - 1, shape.in, split));
      if (split) SetBlasThreads(1);
      const auto layers = GnnLayers::Make({.spec = GetParam(),
                                           .widths = widths,
                                           .learning_rate = 0.01,
                                           .seed = 3,
                                           .degrees = degrees,
                                           .weights = weights,
                                           .threads = 2,
                                           .input_gradients = true,
                                           .split_products = split})
                              .value();
      // Biases that are not zero, so that activations differ where rows do not.
      Rng rng(17);
      for (const std::span<float> parameter : layers->Parameters()) {
        for (float& value : parameter) value += static_cast<float>(0.02 * (rng.Unit() - 0.5));
      }
      if (parameters.empty()) {  // the same parameters, so the same gradients, for both
        parameters = PlainGnnParameters(GetParam(), layers->Parameters(), widths);
        rows = DoubleTensor(problem.values).view({-1, shape.in}).clone().requires_grad_();
        const std::vector<int64_t> slots(problem.slots.begin(), problem.slots.end());
        outputs = PlainGnn(GetParam(), problem.block,
                           rows.index_select(0, torch::tensor(slots, torch::kLong)), parameters,
                           torch::tensor(std::vector<double>(degrees->begin(), degrees->end())), *weights);
        (outputs.view({-1}) * DoubleTensor(problem.output_gradients)).sum().backward();
      }

      std::vector<float> output_gradients = problem.output_gradients, gradients(problem.values.size());
      ASSERT_OK(layers->Forward(problem.view(), std::nullopt));
      ExpectWithin(layers->output(), outputs);
      ASSERT_OK(layers->Backward(problem.view(), output_gradients.data(), gradients.data()));
      ExpectWithin(gradients, rows.grad());
      const auto parameter_gradients = layers->Gradients();
      size_t p = 0;
      for (const auto& layer : parameters) {
        for (const torch::Tensor& parameter : layer) {
          SCOPED_TRACE(fmt::format("parameter {}", p));
          ExpectWithin(parameter_gradients[p++], parameter.grad());
        }
      }
    }
  }
}

// Models that tell relations apart.
class KindedModels : public testing::TestWithParam<GnnKind> {};
INSTANTIATE_TEST_SUITE_P(Models, KindedModels, testing::Values(GnnKind::kRgcn, GnnKind::kRgat),
                         [](const auto& kind) { return std::string(NameOf(kind.param)); });

TEST_P(KindedModels, AgreesWithPlainTorchInOutputsAndEveryGradientForAnyNumberOfThreads) {
  constexpr uint32_t kKinds = 7, kBases = 3, kHeads = 2, kIn = 10, kOut = 6;
  const bool attends = GetParam() == GnnKind::kRgat;
  Rng rng(21);
  std::vector<uint32_t> kinds(GnnProblem::kEdges);
  for (uint32_t& kind : kinds) kind = static_cast<uint32_t>(rng.Below(kKinds));
  const auto shared_kinds = std::make_shared<const std::vector<uint32_t>>(kinds);
  SetBlasThreads(1);
  for (const std::vector<uint32_t>& hops :
       {std::vector<uint32_t>{9, 40}, std::vector<uint32_t>{9, 40, 150}, std::vector<uint32_t>{700, 1500}}) {
    SCOPED_TRACE(fmt::format("{} hops, {} seeds", hops.size() - 1, hops[0]));
    const GnnProblem problem(hops.size(), hops, kIn, kOut);
    std::vector<uint32_t> widths(hops.size(), 8);
    widths.front() = kIn;
    widths.back() = kOut;
    std::vector<float> of_one;
    for (const unsigned threads : {1U, 3U}) {
      const auto layers = GnnLayers::Make({.spec = {.model = GetParam(), .heads = kHeads, .bases = kBases},
                                           .widths = widths,
                                           .learning_rate = 0.01,
                                           .seed = 3,
                                           .inputs = {.kind_count = kKinds, .kinds = shared_kinds},
                                           .threads = threads,
                                           .input_gradients = true,
                                           .split_products = true})
                              .value();
      const auto parameters =
          PlainKindedParameters(attends, kHeads, kBases, kKinds, layers->Parameters(), widths);
      const torch::Tensor rows = DoubleTensor(problem.values).view({-1, kIn}).clone().requires_grad_();
      const std::vector<int64_t> slots(problem.slots.begin(), problem.slots.end());
      const torch::Tensor sources = rows.index_select(0, torch::tensor(slots, torch::kLong));
      const torch::Tensor outputs = attends ? PlainRgat(problem.block, sources, kinds, kHeads, parameters)
                                            : PlainRgcn(problem.block, sources, kinds, kBases, parameters);
      (outputs.view({-1}) * DoubleTensor(problem.output_gradients)).sum().backward();
      std::vector<float> output_gradients = problem.output_gradients, gradients(problem.values.size());
      ASSERT_OK(layers->Forward(problem.view(), std::nullopt));
      ExpectWithin(layers->output(), outputs);
      ASSERT_OK(layers->Backward(problem.view(), output_gradients.data(), gradients.data()));
      ExpectWithin(gradients, rows.grad());
      std::vector<float> all = gradients;
      size_t p = 0;
      for (const auto& layer : parameters) {
        for (const torch::Tensor& parameter : layer) {
          SCOPED_TRACE(fmt::format("parameter {}", p));
          const std::span<float> gradient = layers->Gradients()[p++];
          ExpectWithin(gradient, parameter.grad());
          all.insert(all.end(), gradient.begin(), gradient.end());
        }
      }
      if (threads == 1) of_one = all;
      EXPECT_EQ(all, of_one);
    }
  }
}

// With dropout there is no plain twin to compare with, but the masks are a function of the seed: so is the
// loss, and its slope along the gradient must be the gradient's square.
TEST_P(GnnModels, GradientIsTheSlopeOfTheLossUnderDropout) {
  const GnnProblem problem(4, {40, 150, 400}, 12, 4);
  TrainOptions options{
      .spec = GetParam(),
      .layers = 2,
      .hidden = 24,
      .learning_rate = 1e-30,
      .dropout = 0.4,
      .input_dropout = 0.3,
      .seed = 3,
      .degrees = SomeDegrees(400),
      .weights = SomeWeights(GnnProblem::kEdges)};  // TrainStep then leaves the weights as they are
  options.spec.attention_dropout = options.spec.model == GnnKind::kGat ? 0.3 : 0;
  const auto model = NodeModel::Make(options, problem.dim, 4).value();
  const auto loss = [&] { return double{model->TrainStep(problem.view(), 77).value()}; };
  const Slope slope = SlopeAlongGradient(*model, loss);
  EXPECT_NEAR(slope.measured, slope.square, 0.03 * slope.square);
}

// More rows than a piece of a product has; and than a tile, where SAGE gathers and where GAT multiplies all sources.
TEST_P(GnnModels, SplitProductsAreTheSameBitsForAnyNumberOfThreads) {
  const GnnProblem problem(8, {600, 1400, 3000}, 900, 5);
  std::vector<std::byte> state;
  std::vector<float> gradients;
  SetBlasThreads(1);
  for (const unsigned threads : {1U, 2U, 4U}) {
    SCOPED_TRACE(threads);
    const auto layers = GnnLayers::Make({.spec = GetParam(),
                                         .widths = {900, 40, 5},
                                         .learning_rate = 0.01,
                                         .dropout = 0.3,
                                         .seed = 3,
                                         .degrees = SomeDegrees(3000),
                                         .weights = SomeWeights(GnnProblem::kEdges),
                                         .threads = threads,
                                         .input_gradients = true,
                                         .split_products = true})
                            .value();
    std::vector<float> last(problem.values.size());
    for (uint64_t step = 0; step < 3; step++) {
      std::vector<float> output_gradients = problem.output_gradients;
      ASSERT_OK(layers->Forward(problem.view(), step));
      ASSERT_OK(layers->Backward(problem.view(), output_gradients.data(), last.data()));
      ASSERT_OK(layers->Step());
    }
    if (threads == 1) {
      state = layers->State();
      gradients = last;
    }
    EXPECT_EQ(layers->State(), state);
    EXPECT_EQ(last, gradients);
  }
}

TEST_P(GnnModels, HoldsNoMoreThanTheEstimate) {
  const std::vector<uint32_t> shape = {256, 4000, 20000, 30000};
  const GnnProblem problem(12, shape, 64, 5);
  const TrainOptions options{.spec = GetParam(),
                             .layers = 3,
                             .hidden = 128,
                             .seed = 3,
                             .degrees = SomeDegrees(30000),
                             .weights = SomeWeights(GnnProblem::kEdges)};
  const auto model = NodeModel::Make(options, problem.dim, 5).value();
  const GnnProblem smaller(11, {250, 3900, 19500, 29300}, 64, 5);
  model->TrainStep(smaller.view(), 0).value();  // buffers grow by no more than their slack
  model->TrainStep(problem.view(), 0).value();
  std::vector<uint64_t> hop_edges;
  for (size_t hop = 0; hop + 1 < shape.size(); hop++) {
    hop_edges.push_back(problem.block.indptr[shape[hop]]);
  }
  const BlockBounds bounds{
      .hop_nodes = {shape.begin(), shape.end() - 1}, .hop_edges = hop_edges, .nodes = shape.back()};
  const BlockBounds none{.hop_nodes = std::vector<uint64_t>(3, 0), .hop_edges = std::vector<uint64_t>(3, 0)};
  const uint64_t estimate = EstimateTrainerBytes(options, problem.dim, 5, bounds) -
                            EstimateTrainerBytes(options, problem.dim, 5, none);
  EXPECT_LE(model->activation_bytes(), estimate * 11 / 10);  // whole huge pages of many small matrices
  EXPECT_GE(model->activation_bytes(), estimate / 2);
}

TEST_P(GnnModels, LearnsFromTheGraphAndGoesOnFromItsState) {
  FakeRoad road{FakeRoadOptions{}};
  const TrainOptions options{.spec = GetParam(),
                             .layers = 2,
                             .hidden = 32,
                             .epochs = 20,
                             .learning_rate = 0.01,
                             .dropout = 0.3,
                             .seed = 5,
                             .degrees = std::make_shared<const std::vector<uint32_t>>(2000, 10),
                             .weights = SomeWeights(20'000)};
  const TrainSummary summary = Train(road, options, {}).value();
  EXPECT_GT(summary.test->accuracy, 0.4);  // a guess: a quarter

  const GnnProblem problem(9, {20, 60, 90}, 8, 3);
  const auto model = NodeModel::Make(options, 8, 3).value();
  model->TrainStep(problem.view(), 1).value();
  model->Save();
  TrainOptions other = options;
  other.seed = 6;
  const auto resumed = NodeModel::Make(other, 8, 3).value();
  ASSERT_OK(resumed->TakeState(model->State()));
  for (NodeModel* const one : {model.get(), resumed.get()}) one->TrainStep(problem.view(), 2).value();
  EXPECT_EQ(resumed->State(), model->State());
}

// A graph with isolated nodes and parallel edges, neighbor by neighbor.
std::vector<std::vector<uint32_t>> SmallGraph(uint64_t seed, uint32_t nodes) {
  Rng rng(seed);
  std::vector<std::vector<uint32_t>> lists(nodes);
  for (uint32_t v = 1; v < nodes; v++) {
    for (uint64_t k = rng.Below(6); k > 0; k--) lists[v].push_back(static_cast<uint32_t>(rng.Below(nodes)));
  }
  lists[1] = {2, 2, 3};
  return lists;
}

// A batch whose seeds are all nodes of a graph, over two hops.
Block WholeGraph(const std::vector<std::vector<uint32_t>>& lists) {
  const auto count = static_cast<uint32_t>(lists.size());
  Block block;
  block.hop_offsets = {count, count, count};
  block.nodes.resize(count);
  std::iota(block.nodes.begin(), block.nodes.end(), 0);
  block.indptr = {0};
  for (const auto& list : lists) {
    block.indices.insert(block.indices.end(), list.begin(), list.end());
    block.indptr.push_back(static_cast<uint32_t>(block.indices.size()));
  }
  return block;
}

std::shared_ptr<const std::vector<uint32_t>> DegreesOf(const std::vector<std::vector<uint32_t>>& lists) {
  std::vector<uint32_t> degrees;
  for (const auto& list : lists) degrees.push_back(static_cast<uint32_t>(list.size()));
  return std::make_shared<const std::vector<uint32_t>>(std::move(degrees));
}

// D^-1/2 (A + I) D^-1/2 as a dense matrix, D the row sums of A + I, twice, where whole lists are drawn.
TEST(GcnNormBoth, IsKipfAndWellingsMatrixWhereWholeListsAreDrawn) {
  constexpr uint32_t kNodes = 60, kIn = 9, kHidden = 12, kOut = 5;
  const auto lists = SmallGraph(21, kNodes);
  torch::Tensor matrix = torch::eye(kNodes, torch::kDouble);
  for (int64_t v = 0; v < kNodes; v++) {
    for (const int64_t u : lists[static_cast<size_t>(v)]) matrix[v][u] += 1;
  }
  const torch::Tensor scales = matrix.sum(1).rsqrt();
  matrix = scales.unsqueeze(1) * matrix * scales.unsqueeze(0);

  const auto layers = GnnLayers::Make({.spec = {.model = GnnKind::kGcn, .gcn_norm = GcnNorm::kBoth},
                                       .widths = {kIn, kHidden, kOut},
                                       .seed = 3,
                                       .degrees = DegreesOf(lists),
                                       .threads = 2})
                          .value();
  Rng rng(4);
  const std::vector<float> values = RandomMatrix(rng, size_t{kNodes} * kIn);
  const Block block = WholeGraph(lists);
  BatchView view = block.view();
  view.features = {.rows = std::as_bytes(std::span(values)), .stride_bytes = kIn * sizeof(float), .dim = kIn};
  ASSERT_OK(layers->Forward(view, std::nullopt));
  const auto weights = layers->Parameters();
  const torch::Tensor h = matrix.matmul(DoubleTensor(values).view({kNodes, kIn}))
                              .matmul(DoubleTensor(weights[0]).view({kIn, kHidden}))
                              .relu();
  ExpectWithin(layers->output(), matrix.matmul(h).matmul(DoubleTensor(weights[2]).view({kHidden, kOut})));
}

// Every pair of a list's neighbors is as likely to be drawn as any other, and the mean over all pairs is the row of the whole
// list.
TEST(GcnNormBoth, IsOnAverageThatOfTheWholeList) {
  constexpr uint32_t kIn = 3;
  const std::vector<std::vector<uint32_t>> whole = {{1, 2, 3, 4, 5}, {0}, {0, 1}, {}, {0, 1, 2, 3}, {4}};
  const auto degrees = DegreesOf(whole);
  Rng rng(6);
  const std::vector<float> values = RandomMatrix(rng, whole.size() * kIn);
  const auto layers = GnnLayers::Make({.spec = {.model = GnnKind::kGcn, .gcn_norm = GcnNorm::kBoth},
                                       .widths = {kIn, 2},
                                       .seed = 3,
                                       .degrees = degrees})
                          .value();
  const auto row_of = [&](std::vector<uint32_t> list) {
    Block block;
    block.hop_offsets = {1, 6};
    block.nodes = {0, 1, 2, 3, 4, 5};
    block.indptr = {0, static_cast<uint32_t>(list.size())};
    block.indices = std::move(list);
    BatchView view = block.view();
    view.features = {
        .rows = std::as_bytes(std::span(values)), .stride_bytes = kIn * sizeof(float), .dim = kIn};
    EXPECT_OK(layers->Forward(view, std::nullopt));
    return std::vector<float>(layers->output().begin(), layers->output().end());
  };
  std::vector<double> mean(2, 0);
  for (uint32_t a = 1; a <= 5; a++) {
    for (uint32_t b = a + 1; b <= 5; b++) {
      const std::vector<float> row = row_of({a, b});
      for (size_t c = 0; c < 2; c++) mean[c] += row[c] / 10;
    }
  }
  const std::vector<float> expected = row_of(whole[0]);
  for (size_t c = 0; c < 2; c++) EXPECT_NEAR(mean[c], expected[c], 1e-5);
  // Without degrees, and of a node that has none.
  const GnnLayersOptions options{.spec = {.model = GnnKind::kGcn, .gcn_norm = GcnNorm::kBoth},
                                 .widths = {kIn, 2}};
  GnnLayersOptions few = options;
  few.degrees = std::make_shared<const std::vector<uint32_t>>(5, 1);
  for (const GnnLayersOptions& lacking : {options, few}) {
    const auto others = GnnLayers::Make(lacking).value();
    const Block block = WholeGraph(whole);
    BatchView view = block.view();
    view.hop_offsets = view.hop_offsets.first(2);
    view.features = {
        .rows = std::as_bytes(std::span(values)), .stride_bytes = kIn * sizeof(float), .dim = kIn};
    EXPECT_EQ(others->Forward(view, std::nullopt).code(), Code::kInternal);
  }
}

TEST(ModelSpec, SettingsSayEveryFieldButTheMean) {
  EXPECT_EQ(ToSettings({}), "--model sage");  // as runs of older versions have it
  EXPECT_EQ(ToSettings({.aggregator = Aggregator::kMax}), "--model sage --aggregator max");
  EXPECT_EQ(ToSettings({.model = GnnKind::kGcn, .aggregator = Aggregator::kMax, .heads = 8}), "--model gcn");
  EXPECT_EQ(ToSettings({.model = GnnKind::kGcn, .gcn_norm = GcnNorm::kBoth}), "--model gcn --gcn-norm both");
  EXPECT_EQ(ToSettings({.model = GnnKind::kGat, .heads = 8, .attention_dropout = 0.6}),
            "--model gat --heads 8 --attention-dropout 0.6");
  EXPECT_EQ(ToSettings({.model = GnnKind::kGat}), "--model gat --heads 4 --attention-dropout 0");
}

TEST_P(GnnModels, WeightsGoOutAndInByTheirNames) {
  const GnnLayersOptions options{.spec = GetParam(), .widths = {6, 8, 4}, .seed = 3};
  const auto layers = GnnLayers::Make(options).value();
  GnnLayersOptions drawn_anew = options;
  drawn_anew.seed = 4;
  const auto others = GnnLayers::Make(drawn_anew).value();
  std::vector<NamedTensor> weights = layers->Weights();
  ASSERT_EQ(weights.size(), layers->Parameters().size());
  for (size_t i = 0; i < weights.size(); i++) {
    EXPECT_EQ(std::ranges::count(weights, weights[i].name, &NamedTensor::name), 1);
    EXPECT_TRUE(std::ranges::equal(weights[i].values, layers->Parameters()[i])) << weights[i].name;
    uint64_t elements = 1;
    for (const uint64_t extent : weights[i].shape) elements *= extent;
    EXPECT_EQ(elements, weights[i].values.size());
  }
  EXPECT_EQ(weights.back().name,
            GetParam().model == GnnKind::kGin ? "layers.1.second.bias" : "layers.1.bias");
  std::ranges::reverse(weights);
  ASSERT_OK(others->TakeWeights(weights));
  for (size_t i = 0; i < weights.size(); i++) {
    EXPECT_TRUE(std::ranges::equal(others->Parameters()[i], layers->Parameters()[i]));
  }
}

// As a block all of whose nodes are seeds, with all neighbors.
TEST_P(GnnModels, AWholeGraphIsABlockOfAllItsNodes) {
  constexpr uint32_t kNodes = 700;
  const GnnProblem problem(4, {kNodes, kNodes}, 10, 3);
  Block block = problem.block;
  const std::vector<uint64_t> indptr(block.indptr.begin(), block.indptr.end());
  block.hop_offsets.assign(3, kNodes);
  BatchView view = block.view();
  view.features = problem.view().features;
  std::vector<float> whole, of_one;
  for (const unsigned threads : {1U, 3U}) {
    const auto layers =
        GnnLayers::Make(
            {.spec = GetParam(), .widths = {10, 8, 4}, .threads = threads, .split_products = true})
            .value();
    whole.clear();
    for (uint32_t v = 0; v < kNodes; v++) {
      const auto* row = reinterpret_cast<const float*>(view.features.Row(v));
      whole.insert(whole.end(), row, row + 10);
    }
    if (GetParam().weighs_messages()) {
      EXPECT_EQ(layers->CheckGraph().code(), Code::kUnsupported);
      EXPECT_EQ(ForwardGraph(*layers, indptr, block.indices, whole).code(), Code::kUnsupported);
      continue;
    }
    ASSERT_OK(ForwardGraph(*layers, indptr, block.indices, whole));
    if (threads == 1) of_one = whole;
    EXPECT_EQ(whole, of_one);
    ASSERT_OK(layers->Forward(view, std::nullopt));
    ASSERT_EQ(layers->output().size(), whole.size());
    for (size_t i = 0; i < whole.size(); i++) {
      const float value = layers->output()[i];
      ASSERT_NEAR(whole[i], value, 1e-5 * std::max(1.0F, std::abs(value))) << i;
    }
  }
}

TEST_P(GnnModels, RefusesInputGradientsThroughWhatDoesNotCarryThem) {
  GnnLayersOptions options{.spec = GetParam(), .widths = {3, 8, 4}, .input_gradients = true};
  EXPECT_OK(GnnLayers::Make(options).status());
  options.input_dropout = 0.2;
  EXPECT_EQ(GnnLayers::Make(options).status().code(), Code::kInternal);
  options.input_dropout = 0;
  options.row_norm = RowNorm::kL1;
  EXPECT_EQ(GnnLayers::Make(options).status().code(), Code::kInternal);
}

// Most neighbors are of other classes, and weigh nothing.
TEST(EdgeWeights, TellWhichNeighborsCount) {
  FakeRoadOptions graph;
  graph.homophily = 0.2;
  for (const GnnKind model : {GnnKind::kSage, GnnKind::kGcn}) {
    FakeRoad road(graph);
    std::vector<float> weights;
    for (uint64_t edge = 0; edge < uint64_t{graph.nodes} * graph.degree; edge++) {
      const auto [node, neighbor] = road.EdgeAt(edge);
      weights.push_back(road.labels()[node] == road.labels()[neighbor] ? 2.0F : 0.0F);
    }
    TrainOptions options{.spec = {.model = model},
                         .layers = 2,
                         .hidden = 32,
                         .epochs = 15,
                         .learning_rate = 0.01,
                         .dropout = 0.3,
                         .seed = 5};
    const double alike = Train(road, options, {}).value().test->accuracy;
    options.spec.edge_weights = EdgeWeights::kOn;
    EXPECT_THAT(Train(road, options, {}).status(), IsStatus(Code::kInternal, HasSubstr("weights of edges")));
    options.weights = WeightsOf(std::move(weights));
    const double weighed = Train(road, options, {}).value().test->accuracy;
    EXPECT_GT(weighed, alike + 0.15) << NameOf(model);
    EXPECT_GT(weighed, 0.7) << NameOf(model);
  }
}

TEST(ModelSpec, RefusesWhatDoesNotFit) {
  FakeRoad road{FakeRoadOptions{}};
  EXPECT_THAT(Train(road, {.spec = {.model = GnnKind::kRgcn}}, {}).status(),
              IsStatus(Code::kUsage, HasSubstr("has been told of none")));
  EXPECT_THAT(GnnLayers::Make({.spec = {.model = GnnKind::kRgcn}, .widths = {3, 4}}).status(),
              IsStatus(Code::kInternal, HasSubstr("relations")));
  EXPECT_THAT(CheckModel({.model = GnnKind::kRgcn, .bases = 0}, 1, 24),
              IsStatus(Code::kUsage, HasSubstr("bases is 0")));
  for (const ModelSpec& spec :
       {ModelSpec{.model = GnnKind::kGat, .edge_weights = EdgeWeights::kOn},
        ModelSpec{.aggregator = Aggregator::kMax, .edge_weights = EdgeWeights::kOn},
        ModelSpec{.model = GnnKind::kGcn, .gcn_norm = GcnNorm::kBoth, .edge_weights = EdgeWeights::kOn}}) {
    EXPECT_THAT(CheckModel(spec, 1, 24), IsStatus(Code::kUsage, HasSubstr("edge-weights on is of")));
  }
  EXPECT_OK(CheckModel({.model = GnnKind::kGat, .heads = 5}, 1, 24));  // the only layer has no hidden width
  EXPECT_THAT(CheckModel({.model = GnnKind::kGat, .heads = 5}, 2, 24),
              IsStatus(Code::kUsage, HasSubstr("such as 25")));
  EXPECT_THAT(CheckModel({.model = GnnKind::kGat, .heads = 65}, 2, 130),
              IsStatus(Code::kUsage, HasSubstr("heads is 65")));
  EXPECT_THAT(CheckModel({.attention_dropout = 1}, 2, 24), IsStatus(Code::kUsage, HasSubstr("below 1")));
}

}  // namespace
}  // namespace quarry
