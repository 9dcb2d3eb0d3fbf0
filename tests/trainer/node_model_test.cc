#include "node_model.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "gnn_layers.h"
#include "plain_sage.h"
#include "quarry/trainer/batch_seconds.h"
#include "random_block.h"
#include "slope.h"

namespace quarry {
namespace {

struct ModelProblem {
  Block block;
  std::vector<float> features;
  std::vector<int64_t> labels;
  uint32_t dim, classes;

  ModelProblem(uint64_t seed, std::vector<uint32_t> hop_offsets, uint32_t feature_dim, uint32_t class_count)
      : dim(feature_dim), classes(class_count) {
    Rng rng(seed);
    block = RandomBlock(rng, std::move(hop_offsets), 6);
    features = RandomMatrix(rng, block.nodes.size() * dim);
    for (uint32_t i = 0; i < block.seed_count(); i++)
      labels.push_back(static_cast<int64_t>(rng.Below(classes)));
    labels[1] = -1;
  }

  BatchView view() const {
    BatchView view = block.view();
    view.labels = labels;
    view.features = {std::as_bytes(std::span(features)), dim * sizeof(float), ElementType::kFloat32, dim};
    return view;
  }
};

TrainOptions ModelOptions(uint32_t layers) {
  TrainOptions options;
  options.layers = layers;
  options.hidden = 24;
  options.dropout = 0;
  options.seed = 3;
  return options;
}

std::vector<std::vector<float>> Copies(const std::vector<std::span<float>>& spans) {
  std::vector<std::vector<float>> copies;
  for (const std::span<float> span : spans) copies.emplace_back(span.begin(), span.end());
  return copies;
}

// The same network and loss as plain Torch.
struct PlainModel {
  std::vector<torch::Tensor> parameters;
  torch::Tensor loss, logits;

  PlainModel(const ModelProblem& problem, const std::vector<std::span<float>>& weights)
      : parameters(PlainParameters(weights)) {
    logits = PlainSage(problem.block, DoubleTensor(problem.features).view({-1, problem.dim}), parameters);
    loss = torch::nn::functional::cross_entropy(
        logits, torch::tensor(problem.labels, torch::kLong),
        torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-1));
    loss.backward();
  }
};

TEST(NodeModel, AgreesWithPlainTorchInLogitsLossAndEveryGradient) {
  const std::vector<std::vector<uint32_t>> shapes = {{9, 40}, {9, 40, 150}, {9, 40, 150, 400}};
  for (const std::vector<uint32_t>& shape : shapes) {
    SCOPED_TRACE(shape.size());
    const ModelProblem problem(shape.size(), shape, 10, 5);
    const TrainOptions options = ModelOptions(static_cast<uint32_t>(shape.size() - 1));
    auto model = NodeModel::Make(options, problem.dim, problem.classes).value();
    const PlainModel plain(problem, model->Parameters());
    const std::span<const float> logits = model->Predict(problem.view()).value();
    for (size_t i = 0; i < logits.size(); i++) {
      ASSERT_NEAR(logits[i], plain.logits.data_ptr<double>()[i], 1e-5);
    }
    const float loss = model->TrainStep(problem.view(), 0).value();
    EXPECT_NEAR(loss, plain.loss.item<double>(), 1e-5);
    const auto gradients = model->Gradients();
    for (size_t p = 0; p < gradients.size(); p++) {
      const torch::Tensor expected = plain.parameters[p].grad().contiguous();
      ASSERT_EQ(static_cast<size_t>(expected.numel()), gradients[p].size());
      for (size_t i = 0; i < gradients[p].size(); i++) {
        ASSERT_NEAR(gradients[p][i], expected.data_ptr<double>()[i], 2e-6)
            << "parameter " << p << " element " << i;
      }
    }
  }
}

// With dropout there is no plain twin to compare with, but the masks are a function of the seed: so is the
// loss, and its slope along the gradient must be the gradient's square.
TEST(NodeModel, GradientIsTheSlopeOfTheLossUnderDropout) {
  const ModelProblem problem(4, {40, 150, 400}, 12, 4);
  TrainOptions options = ModelOptions(2);
  options.dropout = 0.4;
  options.input_dropout = 0.3;
  options.learning_rate = 1e-30;  // TrainStep then leaves the weights as they are
  auto model = NodeModel::Make(options, problem.dim, problem.classes).value();
  const auto loss = [&] { return model->TrainStep(problem.view(), 77).value(); };
  const Slope slope = SlopeAlongGradient(*model, loss);
  EXPECT_NEAR(slope.measured, slope.square, 0.02 * slope.square);
}

// Wide rows are gathered twice instead of kept; the result must not depend on it.
TEST(NodeModel, GradientsOfAnInputTooLargeToKeepAreThoseOfPlainTorch) {
  const auto dim = static_cast<uint32_t>(kKeptInputBytes / sizeof(float) / 2 / 2000 + 1);
  ModelProblem problem(6, {5, 2000, 2100}, 4, 3);
  // All rows are one row of `dim` columns, so that the test needs no gigabytes itself.
  Rng rng(1);
  const std::vector<float> row = RandomMatrix(rng, dim);
  const std::vector<uint32_t> slots(2100, 0);
  BatchView view = problem.view();
  view.features = {std::as_bytes(std::span(row)), 0, ElementType::kFloat32, dim, slots};
  TrainOptions options = ModelOptions(2);
  options.hidden = 2;
  auto model = NodeModel::Make(options, dim, problem.classes).value();
  model->TrainStep(view, 0).value();
  EXPECT_LT(model->activation_bytes(), kKeptInputBytes / 2);
  // d loss / d weight[self half, column c] = row[c] * sum over rows of the hidden gradient = row[c] * bias
  // gradient.
  const std::span<const float> weight = model->Gradients()[0];
  const std::span<const float> bias = model->Gradients()[1];
  for (uint32_t c = 0; c < dim; c += 97) {
    for (uint32_t h = 0; h < 2; h++) {
      ASSERT_NEAR(weight[size_t{c} * 2 + h], row[c] * bias[h], 1e-4F * std::abs(bias[h]) + 1e-7F) << c;
    }
  }
}

TEST(NodeModel, StepsAreTheSameForAnyNumberOfTorchThreadsInTheKernels) {
  const ModelProblem problem(8, {64, 400, 1500}, 16, 4);
  std::vector<std::vector<float>> reference;
  for (const unsigned threads : {1u, 2u}) {
    TrainOptions options = ModelOptions(2);
    options.dropout = 0.5;
    options.torch_threads = threads;
    auto model = NodeModel::Make(options, problem.dim, problem.classes).value();
    for (uint64_t step = 0; step < 3; step++) model->TrainStep(problem.view(), step).value();
    if (threads == 1) {
      reference = Copies(model->Parameters());
      continue;
    }
    // The GEMM library may split sums by threads, so only nearly the same.
    const auto got = Copies(model->Parameters());
    for (size_t p = 0; p < got.size(); p++) {
      for (size_t i = 0; i < got[p].size(); i++) ASSERT_NEAR(got[p][i], reference[p][i], 1e-4);
    }
  }
}

TEST(NodeModel, RestoreBringsBackTheSavedWeights) {
  const ModelProblem problem(9, {20, 60}, 8, 3);
  auto model = NodeModel::Make(ModelOptions(1), problem.dim, problem.classes).value();
  model->Save();
  const auto before = Copies(model->Parameters());
  model->TrainStep(problem.view(), 0).value();
  EXPECT_NE(Copies(model->Parameters()), before);
  model->Restore();
  EXPECT_EQ(Copies(model->Parameters()), before);
}

TEST(NodeModel, ABatchWithoutLabelsTeachesNothing) {
  const ModelProblem problem(10, {20, 60}, 8, 3);
  auto model = NodeModel::Make(ModelOptions(1), problem.dim, problem.classes).value();
  const auto before = Copies(model->Parameters());
  BatchView view = problem.view();
  const std::vector<int64_t> no_labels(20, -1);
  view.labels = no_labels;
  EXPECT_EQ(model->TrainStep(view, 0).value(), 0);
  EXPECT_EQ(Copies(model->Parameters()), before);
}

TEST(NodeModel, RefusesBlocksWhoseHopsAreNotItsLayers) {
  const ModelProblem problem(11, {20, 60}, 8, 3);
  auto model = NodeModel::Make(ModelOptions(2), problem.dim, problem.classes).value();
  const Status status = model->Predict(problem.view()).status();
  EXPECT_EQ(status.code(), Code::kUsage);
  EXPECT_NE(status.message().find("2 layers"), std::string::npos) << status.ToString();
}

TEST(NodeModel, HoldsNoMoreThanTheEstimate) {
  const std::vector<uint32_t> shape = {256, 4000, 20000, 30000};
  const ModelProblem problem(12, shape, 64, 5);
  TrainOptions options = ModelOptions(3);
  options.hidden = 128;
  auto model = NodeModel::Make(options, problem.dim, problem.classes).value();
  model->TrainStep(problem.view(), 0).value();
  std::vector<uint64_t> hop_edges;
  for (size_t hop = 0; hop + 1 < shape.size(); hop++) {
    hop_edges.push_back(problem.block.indptr[shape[hop]]);
  }
  BlockBounds bounds{
      .hop_nodes = {shape.begin(), shape.end() - 1}, .hop_edges = hop_edges, .nodes = shape.back()};
  const BlockBounds none{.hop_nodes = std::vector<uint64_t>(3, 0), .hop_edges = std::vector<uint64_t>(3, 0)};
  const uint64_t estimate = EstimateTrainerBytes(options, problem.dim, problem.classes, bounds) -
                            EstimateTrainerBytes(options, problem.dim, problem.classes, none);
  EXPECT_LE(model->activation_bytes(),
            estimate * 5 / 4);  // buffers have an eighth of slack and whole huge pages
  EXPECT_GE(model->activation_bytes(), estimate / 2);
}

// What is measured is thrown away, so the model that is trained afterwards has the same weights.
TEST(NodeModel, WhatABatchTakesIsMeasuredWithoutItsRowsAndLabels) {
  const ModelProblem problem(4, {20, 200, 900}, 10, 5);
  const TrainOptions options = ModelOptions(2);
  auto before = NodeModel::Make(options, problem.dim, problem.classes).value();
  ASSERT_TRUE(before->TrainStep(problem.view(), 1).ok());
  const BatchSeconds seconds = MeasureBatchSeconds(options, problem.dim, ElementType::kFloat16,
                                                   problem.classes, problem.block.view(), 2)
                                   .value();
  for (const ModelSeconds& part : {seconds.train, seconds.evaluate}) {
    EXPECT_GT(part.processor, 0);
    EXPECT_TRUE(std::isfinite(part.processor));
    EXPECT_LE(part.wall, part.processor);
    EXPECT_GE(part.wall * options.torch_threads, part.processor * (1 - 1e-9));
  }
  auto after = NodeModel::Make(options, problem.dim, problem.classes).value();
  ASSERT_TRUE(after->TrainStep(problem.view(), 1).ok());
  EXPECT_EQ(Copies(before->Parameters()), Copies(after->Parameters()));
  EXPECT_EQ(MeasureBatchSeconds(ModelOptions(3), problem.dim, ElementType::kFloat32, problem.classes,
                                problem.block.view(), 1)
                .status()
                .code(),
            Code::kUsage);
}

}  // namespace
}  // namespace quarry
