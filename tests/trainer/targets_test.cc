#include "targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "fake_road.h"
#include "node_model.h"
#include "plain_sage.h"
#include "quarry/trainer/predict.h"
#include "random_block.h"
#include "scores.h"
#include "states_in_memory.h"
#include "support/status_matchers.h"
#include "train_checkpoint.h"

namespace quarry {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

// Targets in memory, which count what is read at a time.
class HeldTargets final : public TargetRows {
 public:
  HeldTargets(uint32_t dim, std::vector<float> values) : dim_(dim), values_(std::move(values)) {}
  uint32_t dim() const override { return dim_; }
  Status Read(std::span<const NodeId> nodes, std::span<float> rows) override {
    nodes_max = std::max(nodes_max, nodes.size());
    for (size_t i = 0; i < nodes.size(); i++) {
      if (nodes[i] == broken) return MakeStatus(Code::kCorruption, "row {} is damaged", broken);
      std::copy_n(values_.begin() + nodes[i] * dim_, dim_, rows.begin() + i * dim_);
    }
    return Status::Ok();
  }
  std::string Place(NodeId node) const override { return fmt::format("row {}", node); }
  std::vector<float>& values() { return values_; }

  size_t nodes_max = 0;
  NodeId broken = UINT32_MAX;

 private:
  const uint32_t dim_;
  std::vector<float> values_;
};

// The mean over each row's targets, then the mean over rows that have any, by Torch's own losses.
torch::Tensor PlainLoss(NodeTask task, const torch::Tensor& outputs, const std::vector<float>& targets,
                        int64_t width, RegressionLoss loss = RegressionLoss::kMse) {
  namespace nn = torch::nn::functional;
  std::vector<torch::Tensor> rows;
  for (int64_t i = 0; i < outputs.size(0); i++) {
    std::vector<torch::Tensor> elements;
    for (int64_t c = 0; c < width; c++) {
      const float target = targets[i * width + c];
      if (std::isnan(target)) continue;
      const torch::Tensor truth = torch::tensor(double{target}, torch::kDouble);
      elements.push_back(task == NodeTask::kMultiLabel
                             ? nn::binary_cross_entropy_with_logits(outputs[i][c], truth)
                         : loss == RegressionLoss::kHuber ? nn::huber_loss(outputs[i][c], truth)
                         : loss == RegressionLoss::kMae   ? nn::l1_loss(outputs[i][c], truth)
                                                          : nn::mse_loss(outputs[i][c], truth));
    }
    if (!elements.empty()) rows.push_back(torch::stack(elements).mean());
  }
  return torch::stack(rows).mean();
}

std::vector<float> RandomTargets(Rng& rng, NodeTask task, size_t count) {
  std::vector<float> targets(count);
  for (float& target : targets) {
    target = task == NodeTask::kMultiLabel ? static_cast<float>(rng.Below(2))
                                           : static_cast<float>(6 * rng.Unit() - 3);
    if (rng.Below(4) == 0) target = kNone;
  }
  return targets;
}

TEST(TargetLoss, IsTorchsLossWithItsGradientsWhateverIsMissing) {
  for (const auto& [task, regression_loss] : {std::pair(NodeTask::kRegression, RegressionLoss::kMse),
                                              std::pair(NodeTask::kRegression, RegressionLoss::kHuber),
                                              std::pair(NodeTask::kRegression, RegressionLoss::kMae),
                                              std::pair(NodeTask::kMultiLabel, RegressionLoss::kMse)}) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
      SCOPED_TRACE(fmt::format("{} {}, seed {}", NameOf(task), NameOf(regression_loss), seed));
      Rng rng(seed);
      constexpr uint32_t kRows = 17, kWidth = 3;
      std::vector<float> targets = RandomTargets(rng, task, kRows * kWidth);
      std::fill_n(targets.begin() + kWidth, kWidth, kNone);  // a row without any
      std::vector<float> outputs = RandomMatrix(rng, targets.size());
      for (float& output : outputs) output *= seed % 2 == 0 ? 100 : 1;  // exponentials that overflow
      if (task == NodeTask::kRegression) {
        // No error has no slope, and where an error is 1 huber's two pieces meet.
        for (size_t i = 0; i < 3; i++) outputs[i] = targets[i] = static_cast<float>(i);
        for (size_t i = 0; i < 3; i++) outputs[i] += static_cast<float>(i) - 1;
      }
      const torch::Tensor plain = DoubleTensor(outputs).view({kRows, kWidth}).clone().requires_grad_();
      const torch::Tensor expected = PlainLoss(task, plain, targets, kWidth, regression_loss);
      expected.backward();
      std::vector<float> gradients(outputs.size(), 77);
      const float loss = TargetLoss(task, regression_loss, outputs, targets, kWidth, gradients);
      EXPECT_NEAR(loss, expected.item<double>(), 1e-6 * std::abs(expected.item<double>()));
      const torch::Tensor slopes = plain.grad().contiguous();
      for (size_t i = 0; i < gradients.size(); i++) {
        const double slope = slopes.data_ptr<double>()[i];
        ASSERT_NEAR(gradients[i], slope, 1e-6 * std::abs(slope) + 1e-9) << i;
      }
    }
  }
}

TEST(NodeModel, OfTargetsHasTheLossAndEveryGradientOfPlainTorch) {
  for (const NodeTask task : {NodeTask::kRegression, NodeTask::kMultiLabel}) {
    SCOPED_TRACE(NameOf(task));
    constexpr uint32_t kDim = 10, kWidth = 4;
    Rng rng(12);
    const Block block = RandomBlock(rng, {9, 40, 150}, 6);
    const std::vector<float> features = RandomMatrix(rng, block.nodes.size() * kDim);
    const std::vector<float> targets = RandomTargets(rng, task, uint64_t{block.seed_count()} * kWidth);
    BatchView view = block.view();
    view.features = {std::as_bytes(std::span(features)), kDim * sizeof(float), ElementType::kFloat32, kDim};
    TrainOptions options{.layers = 2, .hidden = 24, .dropout = 0, .seed = 3, .task = task};
    auto model = NodeModel::Make(options, kDim, kWidth).value();
    const std::vector<torch::Tensor> parameters = PlainParameters(model->Parameters());
    const torch::Tensor loss = PlainLoss(
        task, PlainSage(block, DoubleTensor(features).view({-1, kDim}), parameters), targets, kWidth);
    loss.backward();
    EXPECT_NEAR(model->ComputeGradients(view, 0, targets).value(), loss.item<double>(), 1e-5);
    const auto gradients = model->Gradients();
    for (size_t p = 0; p < gradients.size(); p++) {
      const torch::Tensor expected = parameters[p].grad().contiguous();
      const double largest = expected.abs().max().item<double>();
      for (size_t i = 0; i < gradients[p].size(); i++) {
        ASSERT_NEAR(gradients[p][i], expected.data_ptr<double>()[i], 1e-4 * largest) << p << ", " << i;
      }
    }
  }
}

TEST(TargetScale, HasTheMeanAndTheDeviationOfEachColumnInPieces) {
  constexpr uint32_t kWidth = 3, kNodes = 10'000;
  Rng rng(8);
  std::vector<float> values;
  for (uint32_t v = 0; v < kNodes; v++) {
    values.push_back(static_cast<float>(1e5 + 3 * rng.Unit()));  // far from 0: squares cancel
    values.push_back(rng.Below(3) == 0 ? kNone : static_cast<float>(rng.Unit() - 7));
    values.push_back(5);  // constant
  }
  HeldTargets targets(kWidth, values);
  std::vector<NodeId> nodes;
  for (NodeId v = 0; v < kNodes; v += 2) nodes.push_back(v);
  const TargetScale scale =
      TargetScale::Measure(targets, nodes, [](uint64_t) { return Status::Ok(); }).value();
  EXPECT_LE(targets.nodes_max, 4096u);
  for (uint32_t c = 0; c < kWidth; c++) {
    double sum = 0, squares = 0, count = 0;
    for (const NodeId v : nodes) {
      if (!std::isnan(values[v * kWidth + c])) sum += values[v * kWidth + c], count++;
    }
    for (const NodeId v : nodes) {
      if (!std::isnan(values[v * kWidth + c])) squares += std::pow(values[v * kWidth + c] - sum / count, 2);
    }
    EXPECT_FLOAT_EQ(scale.mean[c], static_cast<float>(sum / count));
    EXPECT_FLOAT_EQ(scale.deviation[c], c == 2 ? 1.0F : static_cast<float>(std::sqrt(squares / count)));
  }
  std::vector<float> rows(values.begin(), values.begin() + 300);
  scale.Scale(rows);
  scale.Unscale(rows);
  for (size_t i = 0; i < rows.size(); i++) {
    if (std::isnan(values[i])) continue;
    EXPECT_NEAR(rows[i], values[i], 0.02);
  }
}

TEST(Targets, AValueThatCannotBeIsNamedByItsPlace) {
  std::vector<float> rows;
  HeldTargets labels(2, {0, 1, kNone, 1, 1, 0.5F});
  const std::vector<NodeId> fine = {1, 0}, bad = {0, 2};
  ASSERT_OK(ReadTargets(labels, NodeTask::kMultiLabel, fine, rows));
  EXPECT_EQ(CountTargeted(rows, 2), 2u);
  EXPECT_THAT(ReadTargets(labels, NodeTask::kMultiLabel, bad, rows),
              IsStatus(Code::kInvalidArgument, AllOf(HasSubstr("row 2"), HasSubstr("column 1 is 0.5"))));
  ASSERT_OK(ReadTargets(labels, NodeTask::kRegression, bad, rows));
  labels.values()[1] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(ReadTargets(labels, NodeTask::kRegression, bad, rows),
              IsStatus(Code::kInvalidArgument, AllOf(HasSubstr("row 0"), HasSubstr("inf"))));
}

TEST(Scores, OfTargetsAreThoseThatAreCountedOut) {
  for (uint64_t seed = 1; seed <= 5; seed++) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    constexpr uint32_t kWidth = 4;
    const std::vector<float> outputs = RandomMatrix(rng, 60 * kWidth);
    std::vector<float> values = RandomTargets(rng, NodeTask::kRegression, outputs.size());
    std::vector<float> labels = RandomTargets(rng, NodeTask::kMultiLabel, outputs.size());
    for (size_t i = 3; i < labels.size(); i += kWidth) labels[i] = 1;  // one of which there is no curve
    Scores numbers(NodeTask::kRegression, kWidth), sets(NodeTask::kMultiLabel, kWidth);
    for (size_t at = 0; at < outputs.size(); at += 20 * kWidth) {  // in batches
      const auto piece = [&](std::span<const float> all) { return all.subspan(at, 20 * kWidth); };
      numbers.AddTargets(piece(outputs), piece(values));
      sets.AddTargets(piece(outputs), piece(labels));
    }
    double squares = 0, sizes = 0, count = 0, right = 0, told = 0, there = 0, areas = 0;
    for (size_t i = 0; i < outputs.size(); i++) {
      if (!std::isnan(values[i])) {
        squares += std::pow(double{outputs[i]} - values[i], 2);
        sizes += std::abs(double{outputs[i]} - values[i]);
        count++;
      }
      if (std::isnan(labels[i])) continue;
      right += outputs[i] >= 0 && labels[i] == 1;
      told += outputs[i] >= 0;
      there += labels[i] == 1;
    }
    for (size_t label = 0; label < 3; label++) {
      double wins = 0, pairs = 0;
      for (size_t i = label; i < outputs.size(); i += kWidth) {
        for (size_t j = label; j < outputs.size(); j += kWidth) {
          if (labels[i] != 1 || labels[j] != 0) continue;
          pairs++;
          wins += outputs[i] > outputs[j] ? 1 : outputs[i] == outputs[j] ? 0.5 : 0;
        }
      }
      areas += wins / pairs;
    }
    const Evaluation number = numbers.Evaluate().value(), set = sets.Evaluate().value();
    EXPECT_NEAR(*number.rmse, std::sqrt(squares / count), 1e-9);
    EXPECT_NEAR(*number.mae, sizes / count, 1e-9);
    EXPECT_EQ(number.selection_metric(), -*number.rmse);
    EXPECT_NEAR(*set.micro_f1, 2 * right / (told + there), 1e-12);
    EXPECT_NEAR(*set.auc, areas / 3, 1e-12);
    EXPECT_EQ(set.selection_metric(), *set.auc);
  }
}

// Two numbers of very different size, of which a node's features tell little and its neighbors much.
std::shared_ptr<HeldTargets> NumbersOf(const FakeRoad& road) {
  std::vector<float> values;
  for (const int64_t label : road.labels()) {
    values.push_back(static_cast<float>(1000 + 100 * label));
    values.push_back(static_cast<float>(label == 2) / 100);
  }
  return std::make_shared<HeldTargets>(2, std::move(values));
}
std::shared_ptr<HeldTargets> SetsOf(const FakeRoad& road) {
  std::vector<float> values;
  for (const int64_t label : road.labels()) {
    for (const bool has : {label == 0, label == 1, label >= 2}) values.push_back(has ? 1 : 0);
  }
  return std::make_shared<HeldTargets>(3, std::move(values));
}

TrainOptions OptionsOf(NodeTask task, std::shared_ptr<TargetRows> targets) {
  return {.layers = 2,
          .hidden = 32,
          .epochs = 20,
          .learning_rate = 0.01,
          .dropout = 0.3,
          .seed = 5,
          .ordered = true,
          .task = task,
          .targets = std::move(targets)};
}

TEST(Train, LearnsNumbersFromTheGraphInTheirOwnUnits) {
  FakeRoad road{FakeRoadOptions{}};
  FakeRoadOptions no_edges;
  no_edges.degree = 0;
  FakeRoad alone(no_edges);
  const TrainSummary graph = Train(road, OptionsOf(NodeTask::kRegression, NumbersOf(road)), {}).value();
  const TrainSummary features = Train(alone, OptionsOf(NodeTask::kRegression, NumbersOf(alone)), {}).value();
  // The deviation of all targets is 79; the second column's is .004.
  EXPECT_LT(*graph.test->rmse, 50);
  EXPECT_GT(*features.test->rmse, 60);
  EXPECT_LT(*graph.test->mae, *graph.test->rmse);
  EXPECT_EQ(graph.test->nodes, 500u);
  EXPECT_FALSE(graph.test->auc.has_value());
}

TEST(Train, LearnsSeveralLabelsFromTheGraph) {
  FakeRoad road{FakeRoadOptions{}};
  const TrainSummary summary = Train(road, OptionsOf(NodeTask::kMultiLabel, SetsOf(road)), {}).value();
  EXPECT_GT(*summary.test->auc, 0.95);
  EXPECT_GT(*summary.test->micro_f1, 0.85);
  EXPECT_EQ(summary.test->nodes, 500u);
}

TEST(Train, OnTargetsAsksForNoLabelsAndLeavesOutWhatIsMissing) {
  FakeRoad road{FakeRoadOptions{}};
  const auto targets = NumbersOf(road);
  road.mutable_labels().clear();
  for (NodeId v = 0; v < 2000; v += 3) targets->values()[v * 2] = targets->values()[v * 2 + 1] = kNone;
  TrainOptions options = OptionsOf(NodeTask::kRegression, targets);
  options.epochs = 3;
  const TrainSummary summary = Train(road, options, {}).value();
  EXPECT_EQ(summary.test->nodes, 500u - 167u);  // v % 4 == 3 and v % 3 == 0
  for (float& value : targets->values()) value = kNone;
  EXPECT_THAT(Train(road, options, {}).status(),
              IsStatus(Code::kInvalidArgument, HasSubstr("none of the 1000 training nodes has a target")));
  options.targets = nullptr;
  EXPECT_THAT(Train(road, options, {}).status(), IsStatus(Code::kUsage, HasSubstr("regress")));
}

TEST(Train, AFaultOfTheTargetsEndsIt) {
  FakeRoad road{FakeRoadOptions{}};
  for (const NodeId broken : {NodeId{4}, NodeId{6}}) {  // to train on, and to validate by
    const auto targets = NumbersOf(road);
    targets->broken = broken;
    EXPECT_THAT(Train(road, OptionsOf(NodeTask::kRegression, targets), {}).status(),
                IsStatus(Code::kCorruption, HasSubstr("is damaged")));
    EXPECT_EQ(road.streams_open, 0);
  }
}

TEST(Train, OnTargetsGoesOnToTheLastBitAndPredictsWhatItTested) {
  for (const NodeTask task : {NodeTask::kRegression, NodeTask::kMultiLabel}) {
    SCOPED_TRACE(NameOf(task));
    FakeRoad road{FakeRoadOptions{}};
    const auto targets = task == NodeTask::kRegression ? NumbersOf(road) : SetsOf(road);
    TrainOptions options = OptionsOf(task, targets);
    options.epochs = 6;
    StatesInMemory states;
    const TrainSummary whole = Train(road, options, {}, {.states = &states, .name = "whole"}).value();
    options.epochs = 3;
    ASSERT_OK(Train(road, options, {}, {.states = &states, .name = "stopped"}));
    options.epochs = 6;
    const TrainSummary resumed =
        Train(road, options, {}, {.states = &states, .name = "stopped", .resume = true}).value();
    EXPECT_EQ(resumed.best_epoch, whole.best_epoch);
    EXPECT_EQ(resumed.best_loss, whole.best_loss);
    EXPECT_EQ(resumed.test->selection_metric(), whole.test->selection_metric());
    EXPECT_EQ(resumed.valid->rmse, whole.valid->rmse);
    EXPECT_EQ(resumed.valid->mae, whole.valid->mae);
    EXPECT_EQ(resumed.valid->micro_f1, whole.valid->micro_f1);
    EXPECT_EQ(resumed.valid->auc, whole.valid->auc);

    const auto predictor = Predictor::Open(states, "stopped", options, road.feature_dim()).value();
    EXPECT_EQ(predictor->width(PredictedRows::kScores), targets->dim());
    std::vector<NodeId> nodes = road.SplitNodes(Split::kTest);
    double squares = 0;
    ASSERT_OK(predictor->Predict(road, nodes, PredictedRows::kScores,
                                 [&](std::span<const NodeId> told, std::span<const float> rows) {
                                   std::vector<float> truths(rows.size());
                                   EXPECT_OK(targets->Read(told, truths));
                                   for (size_t i = 0; i < rows.size(); i++)
                                     squares += std::pow(double{rows[i]} - truths[i], 2);
                                   return Status::Ok();
                                 }));
    const double rmse = std::sqrt(squares / static_cast<double>(nodes.size() * targets->dim()));
    if (task == NodeTask::kRegression) {
      EXPECT_NEAR(rmse, *whole.test->rmse, 1e-9 * rmse);
    } else {
      EXPECT_LT(rmse, 0.4);  // of probabilities
    }
    options.task = task == NodeTask::kRegression ? NodeTask::kMultiLabel : NodeTask::kRegression;
    EXPECT_THAT(Predictor::Open(states, "stopped", options, road.feature_dim()).status(),
                IsStatus(Code::kCorruption, HasSubstr("the state is of task")));
  }
}

}  // namespace
}  // namespace quarry
