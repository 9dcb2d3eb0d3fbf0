#include "quarry/trainer/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "fake_road.h"
#include "node_model.h"
#include "states_in_memory.h"
#include "support/status_matchers.h"
#include "train_checkpoint.h"

namespace quarry {
namespace {

using testing::HasSubstr;

TrainOptions Trained() {
  TrainOptions options;
  options.layers = 2;
  options.hidden = 12;
  options.epochs = 4;
  options.learning_rate = 0.01;
  options.seed = 5;
  return options;
}

// The rows of the nodes, one behind the other, and that each came where its node stands.
std::vector<float> PredictAll(Predictor& predictor, Road& road, const std::vector<NodeId>& nodes,
                              PredictedRows rows) {
  std::vector<float> all;
  std::vector<NodeId> told;
  EXPECT_OK(
      predictor.Predict(road, nodes, rows, [&](std::span<const NodeId> some, std::span<const float> of_them) {
        told.insert(told.end(), some.begin(), some.end());
        all.insert(all.end(), of_them.begin(), of_them.end());
        return Status::Ok();
      }));
  EXPECT_EQ(told, nodes);
  EXPECT_EQ(all.size(), nodes.size() * predictor.width(rows));
  return all;
}

class PredictTest : public testing::Test {
 protected:
  void SetUp() override {
    auto summary = Train(road_, Trained(), {}, {.states = &states_, .name = "sage"});
    ASSERT_OK(summary);
    summary_ = *summary;
  }
  std::unique_ptr<Predictor> Open() {
    auto predictor = Predictor::Open(states_, "sage", Trained(), road_.feature_dim());
    EXPECT_OK(predictor);
    return std::move(predictor).value();
  }

  FakeRoad road_{FakeRoadOptions{}};
  StatesInMemory states_;
  TrainSummary summary_;
};

TEST_F(PredictTest, TestNodesHaveTheAccuracyThatTrainingReported) {
  const std::vector<NodeId> nodes = road_.SplitNodes(Split::kTest);
  const std::unique_ptr<Predictor> predictor = Open();
  const std::vector<float> scores = PredictAll(*predictor, road_, nodes, PredictedRows::kScores);
  uint64_t correct = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto row = std::span(scores).subspan(i * 4, 4);
    EXPECT_NEAR(std::accumulate(row.begin(), row.end(), 0.0), 1, 1e-5);
    EXPECT_GE(*std::ranges::min_element(row), 0);
    correct += std::ranges::max_element(row) - row.begin() == road_.labels()[nodes[i]] ? 1 : 0;
  }
  EXPECT_EQ(static_cast<double>(correct) / static_cast<double>(nodes.size()), summary_.test->accuracy);
}

TEST_F(PredictTest, ATrainingBeginsWithTheWeightsOfAnother) {
  const auto weights = ReadWeights(states_, "sage", Trained(), road_.feature_dim());
  ASSERT_OK(weights);
  TrainOptions options = Trained();
  options.epochs = 1;
  options.learning_rate = 1e-30;  // the weights stay what they are
  TrainRun run{.states = &states_, .name = "again"};
  run.from = "sage";
  run.read_weights = [&] { return weights; };
  const auto again = Train(road_, options, {}, run);
  ASSERT_OK(again);
  EXPECT_EQ(again->test->accuracy, summary_.test->accuracy);
  const auto kept = ReadWeights(states_, "again", options, road_.feature_dim());
  ASSERT_OK(kept);
  ASSERT_EQ(kept->size(), 4u);
  for (size_t i = 0; i < kept->size(); i++) {
    EXPECT_EQ((*kept)[i].name, (*weights)[i].name);
    EXPECT_EQ((*kept)[i].values, (*weights)[i].values);
  }

  // A run that goes on has its own.
  run.resume = true;
  run.read_weights = [&]() -> Result<std::vector<NamedTensor>> { return Status(Code::kInternal, "asked"); };
  options.epochs = 2;
  EXPECT_OK(Train(road_, options, {}, run));
  run.resume = false;
  run.overwrite = true;
  EXPECT_EQ(Train(road_, options, {}, run).status().code(), Code::kInternal);
  // Tensors of another shape, too few of them, and too many.
  std::vector<NamedTensor> others = *weights;
  run.read_weights = [&]() -> Result<std::vector<NamedTensor>> { return others; };
  options.hidden = 13;
  EXPECT_THAT(
      Train(road_, options, {}, run).status(),
      IsStatus(Code::kInvalidArgument, HasSubstr("\"sage\" are another model's: layers.0.weight is [32, "
                                                 "12], and of this model [32, 13]")));
  options.hidden = 12;
  others.pop_back();
  EXPECT_THAT(Train(road_, options, {}, run).status(),
              IsStatus(Code::kInvalidArgument, HasSubstr("there is no layers.1.bias")));
  others = *weights;
  others.push_back({"head", {1}, {0}});
  EXPECT_THAT(Train(road_, options, {}, run).status(),
              IsStatus(Code::kInvalidArgument, HasSubstr("there is head, which")));
}

TEST_F(PredictTest, RowsComeInTheOrderOfTheNodes) {
  std::vector<NodeId> nodes = {1999, 3, 700, 4, 0};
  for (NodeId v = 1000; v < 1400; ++v) nodes.push_back(v);
  PredictAll(*Open(), road_, nodes, PredictedRows::kScores);
}

// The last layer is applied to what is told of the nodes themselves and to the mean of what is told of their neighbors.
// Without neighbors that is one product.
TEST(Predict, EmbeddingsAreWhatTheLastLayerTakes) {
  FakeRoadOptions lonely;
  lonely.degree = 0;
  FakeRoad road(lonely);
  StatesInMemory states;
  ASSERT_OK(Train(road, Trained(), {}, {.states = &states, .name = "sage"}));
  auto predictor = Predictor::Open(states, "sage", Trained(), road.feature_dim());
  ASSERT_OK(predictor);
  EXPECT_EQ((*predictor)->class_count(), 4u);
  std::vector<NodeId> nodes(300);
  std::iota(nodes.begin(), nodes.end(), 17);
  const std::vector<float> vectors = PredictAll(**predictor, road, nodes, PredictedRows::kEmbeddings);
  const std::vector<float> scores = PredictAll(**predictor, road, nodes, PredictedRows::kScores);

  auto model = NodeModel::Make(Trained(), road.feature_dim(), 4);
  ASSERT_OK(model);
  TrainProgress progress{.class_count = 4};
  ASSERT_OK(DecodeTrainState(states.states["sage"], progress, **model));
  (*model)->Restore();
  const std::vector<std::span<float>> weights = (*model)->Parameters();
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::array<double, 4> logits{};
    for (size_t c = 0; c < 4; ++c) {
      logits[c] = weights[3][c];
      for (size_t k = 0; k < 12; ++k) logits[c] += double{vectors[i * 12 + k]} * weights[2][k * 4 + c];
    }
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    for (size_t c = 0; c < 4; ++c) EXPECT_NEAR(scores[i * 4 + c], std::exp(logits[c]) / sum, 1e-5);
  }
}

TEST_F(PredictTest, WhatCannotBeIsRefused) {
  EXPECT_THAT(Predictor::Open(states_, "other", Trained(), 16),
              IsStatus(Code::kNotFound, HasSubstr("other")));
  EXPECT_THAT(Predictor::Open(states_, "sage", Trained(), 17),
              IsStatus(Code::kCorruption, HasSubstr("run \"sage\"")));
  states_.states["sage"].resize(100);
  EXPECT_THAT(Predictor::Open(states_, "sage", Trained(), 16),
              IsStatus(Code::kCorruption, HasSubstr("ends before")));
  states_.states["sage"][0] = std::byte{9};
  EXPECT_THAT(Predictor::Open(states_, "sage", Trained(), 16),
              IsStatus(Code::kCorruption, HasSubstr("of task")));
}

TEST_F(PredictTest, ErrorsOfTheSinkTheCallerAndTheRoadEndIt) {
  const std::unique_ptr<Predictor> predictor = Open();
  const std::vector<NodeId> nodes = road_.SplitNodes(Split::kValid);
  const auto nothing = [](std::span<const NodeId>, std::span<const float>) { return Status::Ok(); };
  EXPECT_THAT(predictor->Predict(road_, nodes, PredictedRows::kScores,
                                 [](std::span<const NodeId>, std::span<const float>) {
                                   return Status(Code::kNoSpace, "full");
                                 }),
              IsStatus(Code::kNoSpace));
  EXPECT_THAT(predictor->Predict(road_, nodes, PredictedRows::kScores, nothing,
                                 [](uint64_t done, uint64_t total) {
                                   EXPECT_EQ(total, 4u);
                                   return done == 2 ? Status(Code::kCancelled, "enough") : Status::Ok();
                                 }),
              IsStatus(Code::kCancelled));
  FakeRoadOptions broken;
  broken.fail_at_batch = 1;
  FakeRoad road(broken);
  EXPECT_THAT(predictor->Predict(road, nodes, PredictedRows::kScores, nothing), IsStatus(Code::kIoError));
  EXPECT_EQ(road.streams_open + road_.streams_open, 0);
}

}  // namespace
}  // namespace quarry
