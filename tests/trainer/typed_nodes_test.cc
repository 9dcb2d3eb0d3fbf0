// Models of nodes that tell relations apart, over rows of several types of nodes: against plain Torch, and on graphs whose
// labels only the relation of an edge tells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "fake_road.h"
#include "gnn_layers.h"
#include "matrix.h"
#include "node_model.h"
#include "plain_relations.h"
#include "quarry/format/element_type.h"
#include "random_block.h"
#include "slope.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;

constexpr uint32_t kRelations = 5;

// Nodes of three types: of short rows, of long ones of halves, and without any.
struct TypedProblem {
  std::vector<InputType> types;
  NodeTypes nodes;
  std::vector<TypeRows> type_rows;
  Block block;
  std::vector<uint32_t> type_of;  // by node of the block
  std::vector<uint32_t> slots;
  std::vector<std::byte> bytes;             // of rows, by slot
  std::vector<std::vector<float>> decoded;  // by node of the block
  uint64_t stride = 0;
  std::vector<int64_t> labels;
  std::vector<uint32_t> kinds;  // by edge, which its id is

  TypedProblem(uint64_t seed, std::vector<uint32_t> hop_offsets, uint32_t classes, uint32_t short_dim = 10,
               uint32_t long_dim = 33) {
    Rng rng(seed);
    block = RandomBlock(rng, std::move(hop_offsets), 6);
    const auto count = static_cast<uint32_t>(block.nodes.size());
    for (size_t i = count; i > 1; i--) std::swap(block.nodes[i - 1], block.nodes[rng.Below(i)]);
    types = {{.name = "paper", .dim = short_dim}, {.name = "author", .dim = long_dim}, {.name = "field"}};
    // Some papers came behind all others.
    const uint64_t papers = count / 2, fields = count - count / 6, later = count - count / 12;
    nodes = NodeTypes(std::vector<NodeTypeRecord>{
        {.name = "paper", .first = 0, .count = papers, .later = {{.first = later, .count = count - later}}},
        {.name = "author", .first = papers, .count = fields - papers},
        {.name = "field", .first = fields, .count = later - fields}});
    type_rows = {{ElementType::kFloat32, short_dim}, {ElementType::kFloat16, long_dim}, {}};
    stride =
        std::max(RowStride(ElementType::kFloat32, short_dim), RowStride(ElementType::kFloat16, long_dim));
    bytes.resize(count * stride);
    slots.resize(count);
    std::iota(slots.begin(), slots.end(), 0);
    for (size_t i = count; i > 1; i--) std::swap(slots[i - 1], slots[rng.Below(i)]);
    for (uint32_t i = 0; i < count; i++) {
      const uint32_t type = nodes.TypeOf(block.nodes[i]);
      type_of.push_back(type);
      std::byte* const row = bytes.data() + slots[i] * stride;
      std::vector<float>& values = decoded.emplace_back(types[type].dim);
      for (uint32_t c = 0; c < values.size(); c++) {
        if (type == 0) {
          values[c] = static_cast<float>(2 * rng.Unit() - 1);
          std::memcpy(row + c * sizeof(float), &values[c], sizeof(float));
        } else {  // a sign, an exponent of -3 to 0 and a mantissa
          const auto half =
              static_cast<uint16_t>(rng.Below(2) << 15 | (12 + rng.Below(4)) << 10 | rng.Below(1024));
          std::memcpy(row + c * sizeof(half), &half, sizeof(half));
        }
      }
      if (type == 1)
        DecodeRow(ElementType::kFloat16, {row, RowBytes(ElementType::kFloat16, long_dim)}, values);
    }
    for (uint32_t e = 0; e < block.indices.size(); e++) {
      block.edge_ids.push_back(e);
      block.relations.push_back(static_cast<uint16_t>(rng.Below(kRelations)));
      kinds.push_back(block.relations.back());
    }
    for (uint32_t i = 0; i < block.seed_count(); i++)
      labels.push_back(static_cast<int64_t>(rng.Below(classes)));
  }

  BatchView view() const {
    BatchView view = block.view();
    view.labels = labels;
    view.features = {.rows = bytes, .stride_bytes = stride, .slots = slots};
    view.type_rows = type_rows;
    return view;
  }
};

GnnLayersOptions LayersOf(GnnKind kind, const TypedProblem& problem, std::vector<uint32_t> widths) {
  return {.spec = {.model = kind, .heads = 2, .bases = 3},
          .widths = std::move(widths),
          .learning_rate = 0.01,
          .seed = 3,
          .inputs = {.types = problem.types, .nodes = problem.nodes, .kind_count = kRelations},
          .split_products = true};
}

class TypedModels : public testing::TestWithParam<GnnKind> {};
INSTANTIATE_TEST_SUITE_P(Models, TypedModels, testing::Values(GnnKind::kRgcn, GnnKind::kRgat),
                         [](const auto& kind) { return std::string(NameOf(kind.param)); });

// The last shape has types of more nodes than a tile has.
TEST_P(TypedModels, AgreeWithPlainTorchInOutputsAndEveryGradientForAnyNumberOfThreads) {
  constexpr uint32_t kWidth = 8, kOut = 6;
  const bool attends = GetParam() == GnnKind::kRgat;
  SetBlasThreads(1);
  for (const std::vector<uint32_t>& hops :
       {std::vector<uint32_t>{9, 40}, std::vector<uint32_t>{9, 40, 150}, std::vector<uint32_t>{30, 2600}}) {
    SCOPED_TRACE(fmt::format("{} hops of {} nodes", hops.size() - 1, hops.back()));
    const bool tiles = hops.back() > 2000;
    const TypedProblem problem(hops.size(), hops, kOut, 10, tiles ? 5000 : 33);
    std::vector<uint32_t> widths(hops.size(), kWidth);
    widths.back() = kOut;
    Rng rng(5);
    const std::vector<float> output_gradients = RandomMatrix(rng, size_t{problem.block.seed_count()} * kOut);
    std::vector<float> of_one;
    for (const unsigned threads : {1U, 3U}) {
      GnnLayersOptions options = LayersOf(GetParam(), problem, widths);
      options.threads = threads;
      const auto layers = GnnLayers::Make(options).value();
      for (const std::span<float> parameter : layers->Parameters()) {  // biases, too, are not 0
        for (float& value : parameter) value += 0.01F;
      }
      // By type: the weight and the bias, and of the last the bias alone.
      const auto spans = layers->Parameters();
      std::vector<torch::Tensor> of_inputs;
      for (size_t t = 0, p = 0; t < problem.types.size(); t++) {
        if (const int64_t dim = problem.types[t].dim; dim > 0) {
          of_inputs.push_back(DoubleTensor(spans[p++]).view({dim, kWidth}).clone().requires_grad_());
        }
        of_inputs.push_back(DoubleTensor(spans[p++]).clone().requires_grad_());
      }
      const auto parameters = PlainKindedParameters(attends, 2, 3, kRelations,
                                                    std::span(spans).subspan(of_inputs.size()), widths);
      std::vector<torch::Tensor> rows;
      for (size_t i = 0; i < problem.block.nodes.size(); i++) {
        const uint32_t type = problem.type_of[i];
        rows.push_back(type == 2 ? of_inputs[4]
                                 : DoubleTensor(problem.decoded[i]).matmul(of_inputs[2 * type]) +
                                       of_inputs[2 * type + 1]);
      }
      const torch::Tensor stacked = torch::stack(rows);
      const torch::Tensor inputs = attends ? torch::elu(stacked) : stacked.relu();
      const torch::Tensor outputs = attends ? PlainRgat(problem.block, inputs, problem.kinds, 2, parameters)
                                            : PlainRgcn(problem.block, inputs, problem.kinds, 3, parameters);
      (outputs.view({-1}) * DoubleTensor(output_gradients)).sum().backward();

      std::vector<float> given = output_gradients;
      ASSERT_OK(layers->Forward(problem.view(), std::nullopt));
      ExpectWithin(layers->output(), outputs);
      ASSERT_OK(layers->Backward(problem.view(), given.data()));
      std::vector<torch::Tensor> expected = of_inputs;
      for (const auto& layer : parameters) expected.insert(expected.end(), layer.begin(), layer.end());
      const auto gradients = layers->Gradients();
      ASSERT_EQ(gradients.size(), expected.size());
      std::vector<float> all;
      for (size_t p = 0; p < expected.size(); p++) {
        SCOPED_TRACE(fmt::format("parameter {}", p));
        ExpectWithin(gradients[p], expected[p].grad());
        all.insert(all.end(), gradients[p].begin(), gradients[p].end());
      }
      if (threads == 1) of_one = all;
      EXPECT_EQ(all, of_one) << threads << " threads";
    }
  }
}

TrainOptions NodeOptions(GnnKind kind, const TypedProblem& problem, uint32_t layers, uint32_t hidden) {
  return {.spec = {.model = kind, .heads = 2, .bases = 3},
          .layers = layers,
          .hidden = hidden,
          .learning_rate = 1e-30,
          .seed = 3,
          .inputs = {.types = problem.types, .nodes = problem.nodes, .kind_count = kRelations}};
}

TEST_P(TypedModels, TheGradientIsTheSlopeOfTheLossUnderDropoutAndNorms) {
  const TypedProblem problem(4, {40, 150, 400}, 4);
  TrainOptions options = NodeOptions(GetParam(), problem, 2, 24);
  options.dropout = 0.4;
  options.input_dropout = 0.3;
  options.row_norm = RowNorm::kL2;
  const auto model = NodeModel::Make(options, 0, 4).value();
  const auto loss = [&] { return double{model->TrainStep(problem.view(), 77).value()}; };
  const Slope slope = SlopeAlongGradient(*model, loss);
  EXPECT_NEAR(slope.measured, slope.square, 0.03 * slope.square);
}

TEST_P(TypedModels, HoldNoMoreThanTheEstimate) {
  const std::vector<uint32_t> shape = {256, 4000, 20000};
  const TypedProblem problem(12, shape, 5, 64, 128);
  const TrainOptions options = NodeOptions(GetParam(), problem, 2, 32);
  const auto model = NodeModel::Make(options, 0, 5).value();
  model->TrainStep(problem.view(), 0).value();
  const BlockBounds bounds{.hop_nodes = {shape[0], shape[1]},
                           .hop_edges = {problem.block.indptr[shape[0]], problem.block.indptr[shape[1]]},
                           .nodes = shape[2]};
  const BlockBounds none{.hop_nodes = {0, 0}, .hop_edges = {0, 0}};
  const uint64_t estimate =
      EstimateTrainerBytes(options, 0, 5, bounds) - EstimateTrainerBytes(options, 0, 5, none);
  EXPECT_LE(model->activation_bytes(), estimate * 11 / 10);
  EXPECT_GE(model->activation_bytes(),
            estimate / 3);  // it has all nodes of the type whose tiles are the widest
}

TEST_P(TypedModels, WeightsAndStatesOfTypesGoOutAndIn) {
  const TypedProblem problem(5, {20, 80}, 4);
  GnnLayersOptions options = LayersOf(GetParam(), problem, {8, 4});
  const auto layers = GnnLayers::Make(options).value();
  options.seed = 4;
  const auto by_name = GnnLayers::Make(options).value(), by_state = GnnLayers::Make(options).value();
  const std::vector<NamedTensor> weights = layers->Weights();
  EXPECT_THAT(weights, Contains(Field(&NamedTensor::name, "inputs.paper.weight")));
  EXPECT_THAT(weights, Contains(Field(&NamedTensor::name, "inputs.field.bias")));
  EXPECT_NE(by_name->State(), layers->State());
  ASSERT_OK(by_name->TakeWeights(weights));
  ASSERT_OK(by_state->TakeState(layers->State()));
  EXPECT_EQ(by_name->State(), layers->State());
  EXPECT_EQ(by_state->State(), layers->State());
  options.inputs.types[0].dim = 11;
  const auto wider = GnnLayers::Make(options).value();
  EXPECT_THAT(wider->TakeWeights(weights),
              IsStatus(Code::kInvalidArgument, HasSubstr("inputs.paper.weight")));
}

TEST_P(TypedModels, RefuseBatchesOfOtherTypesAndRelations) {
  const TypedProblem problem(5, {20, 80}, 4);
  const auto layers = GnnLayers::Make(LayersOf(GetParam(), problem, {8, 4})).value();
  EXPECT_EQ(layers->CheckGraph().code(), Code::kUnsupported);
  BatchView other = problem.view();
  other.type_rows = other.type_rows.first(2);
  EXPECT_THAT(layers->Forward(other, std::nullopt), IsStatus(Code::kInternal, HasSubstr("2 types of nodes")));
  std::vector<TypeRows> wider = problem.type_rows;
  wider[0].dim = 11;
  other.type_rows = wider;
  EXPECT_THAT(layers->Forward(other, std::nullopt),
              IsStatus(Code::kInternal, HasSubstr("features of width 11")));
  other = problem.view();
  other.relations = other.relations.first(3);
  EXPECT_THAT(layers->Forward(other, std::nullopt), IsStatus(Code::kInternal, HasSubstr("3 relations")));
  GnnLayersOptions fewer = LayersOf(GetParam(), problem, {8, 4});
  fewer.inputs.kind_count = kRelations - 1;
  EXPECT_THAT(GnnLayers::Make(fewer).value()->Forward(problem.view(), std::nullopt),
              IsStatus(Code::kInternal, HasSubstr("relations below 4")));
}

// Neighbors are of any class, and a relation tells which are of the node's own. Rows are of one table here, and relations
// are looked up by edge ids.
TEST_P(TypedModels, LearnWhatOnlyRelationsTell) {
  FakeRoadOptions graph;
  graph.homophily = 0;
  FakeRoad road(graph);
  std::vector<uint32_t> kinds;
  for (uint64_t edge = 0; edge < uint64_t{graph.nodes} * graph.degree; edge++) {
    const auto [node, neighbor] = road.EdgeAt(edge);
    kinds.push_back(road.labels()[node] == road.labels()[neighbor] ? 1 : edge % 2 == 0 ? 0 : 2);
  }
  TrainOptions options{.spec = {.model = GetParam() == GnnKind::kRgat ? GnnKind::kGat : GnnKind::kGcn},
                       .layers = 2,
                       .hidden = 32,
                       .epochs = 15,
                       .learning_rate = 0.01,
                       .dropout = 0.3,
                       .seed = 5};
  const double alike = Train(road, options, {}).value().test->accuracy;
  options.spec = {.model = GetParam(), .heads = 4, .bases = 3};
  options.inputs = {.kind_count = 3,
                    .kinds = std::make_shared<const std::vector<uint32_t>>(std::move(kinds))};
  const double told = Train(road, options, {}).value().test->accuracy;
  RecordProperty("alike", std::to_string(alike));
  RecordProperty("told", std::to_string(told));
  EXPECT_GT(told, alike + 0.15);
  EXPECT_GT(told, 0.7);
}

}  // namespace
}  // namespace quarry
