#include "quarry/trainer/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "fake_road.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

TrainOptions Options() {
  TrainOptions options;
  options.layers = 2;
  options.hidden = 32;
  options.epochs = 20;
  options.learning_rate = 0.01;
  options.dropout = 0.3;
  options.seed = 5;
  return options;
}

TEST(Train, LearnsFromTheGraphWhatFeaturesAloneDoNotTell) {
  FakeRoad with_graph{FakeRoadOptions{}};
  FakeRoadOptions no_edges;
  no_edges.degree = 0;
  FakeRoad without_graph{no_edges};
  const TrainSummary graph = Train(with_graph, Options(), {}).value();
  const TrainSummary features = Train(without_graph, Options(), {}).value();
  EXPECT_GT(graph.test->accuracy, 0.9);
  EXPECT_LT(features.test->accuracy, 0.5);
  EXPECT_GT(features.test->accuracy, 0.28);  // more than chance: there is some signal
  EXPECT_EQ(graph.test->nodes, 500u);
  EXPECT_FALSE(graph.test->auc.has_value());  // four classes
}

TEST(Train, ReportsEveryEpochWithTheStatsOfItsOwnPasses) {
  FakeRoad road{FakeRoadOptions{}};
  std::vector<EpochReport> reports;
  std::vector<std::string> phases;
  TrainCallbacks callbacks;
  callbacks.epoch = [&](const EpochReport& report) {
    reports.push_back(report);
    return Status::Ok();
  };
  callbacks.progress = [&](std::string_view phase, uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    if (phases.empty() || phases.back() != phase) phases.emplace_back(phase);
    return Status::Ok();
  };
  TrainOptions options = Options();
  options.epochs = 3;
  const TrainSummary summary = Train(road, options, callbacks).value();
  ASSERT_EQ(reports.size(), 3u);
  for (uint32_t i = 0; i < 3; i++) {
    EXPECT_EQ(reports[i].epoch, i + 1);
    EXPECT_EQ(reports[i].stats.batches, 8u);        // 1000 nodes by 128
    EXPECT_EQ(reports[i].valid_stats.batches, 4u);  // 500
    EXPECT_GT(reports[i].loss, 0);
    EXPECT_LE(reports[i].compute_seconds, reports[i].seconds);
  }
  EXPECT_LT(reports[2].loss, reports[0].loss);
  EXPECT_EQ(summary.stats.batches, 24u);
  EXPECT_THAT(phases, testing::ElementsAre("epoch 1", "validation", "epoch 2", "validation", "epoch 3",
                                           "validation", "test"));
}

TEST(LearningRate, GoesAsItsScheduleSays) {
  for (const uint32_t epoch : {1U, 2U, 100U}) {
    EXPECT_EQ(ScheduledRate(0.1, LearningSchedule::kConstant, 0, epoch), 0.1);
  }
  const double cosines[] = {0.1, 0.1 * (1 + std::sqrt(0.5)) / 2, 0.05, 0.1 * (1 - std::sqrt(0.5)) / 2, 0, 0};
  for (uint32_t i = 0; i < 6; i++) {
    EXPECT_NEAR(ScheduledRate(0.1, LearningSchedule::kCosine, 4, i + 1), cosines[i], 1e-15) << i;
  }
  const double steps[] = {0.1, 0.1, 0.01, 0.01, 0.001};
  for (uint32_t i = 0; i < 5; i++) {
    EXPECT_NEAR(ScheduledRate(0.1, LearningSchedule::kStep, 2, i + 1), steps[i], 1e-15) << i;
  }
}

TEST(Train, TakesTheRateOfEachEpoch) {
  TrainOptions options = Options();
  options.epochs = 4;
  options.schedule = LearningSchedule::kCosine;
  options.schedule_epochs = 2;  // behind which nothing moves
  FakeRoad road{FakeRoadOptions{}};
  std::vector<EpochReport> reports;
  TrainCallbacks callbacks;
  callbacks.epoch = [&](const EpochReport& report) {
    reports.push_back(report);
    return Status::Ok();
  };
  ASSERT_OK(Train(road, options, callbacks));
  ASSERT_EQ(reports.size(), 4u);
  EXPECT_EQ(reports[0].learning_rate, 0.01);
  EXPECT_NEAR(reports[1].learning_rate, 0.005, 1e-15);
  EXPECT_EQ(reports[2].learning_rate, 0);
  EXPECT_NE(reports[0].valid->accuracy, reports[1].valid->accuracy);
  EXPECT_EQ(reports[1].valid->accuracy, reports[2].valid->accuracy);
  EXPECT_EQ(reports[1].valid->accuracy, reports[3].valid->accuracy);
  options.schedule_epochs = 0;
  EXPECT_THAT(Train(road, options, {}).status(), IsStatus(Code::kUsage, HasSubstr("schedule epochs is 0")));
}

TEST(Train, SameSeedSameLossesToTheLastBit) {
  std::vector<double> losses[3];
  for (int run = 0; run < 3; run++) {
    FakeRoad road{FakeRoadOptions{}};
    TrainOptions options = Options();
    options.epochs = 3;
    if (run == 2) options.seed = 6;
    TrainCallbacks callbacks;
    callbacks.epoch = [&](const EpochReport& report) {
      losses[run].push_back(report.loss);
      return Status::Ok();
    };
    ASSERT_OK(Train(road, options, callbacks));
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NE(losses[0], losses[2]);
}

TEST(Train, TwoClassesAreSelectedByTheAreaUnderTheCurve) {
  FakeRoadOptions graph;
  graph.classes = 2;
  FakeRoad road(graph);
  const TrainSummary summary = Train(road, Options(), {}).value();
  ASSERT_TRUE(summary.test->auc.has_value());
  EXPECT_GT(*summary.test->auc, 0.95);
  EXPECT_EQ(summary.valid->selection_metric(), *summary.valid->auc);
}

TEST(Train, StopsWhenPatienceEndsAndTestsTheBestWeights) {
  FakeRoad road{FakeRoadOptions{}};
  TrainOptions options = Options();
  options.epochs = 200;
  options.patience = 3;
  options.learning_rate = 0.05;
  double best = 0;
  uint32_t best_epoch = 0;
  TrainCallbacks callbacks;
  callbacks.epoch = [&](const EpochReport& report) {
    EXPECT_EQ(report.best, report.valid->accuracy > best);
    if (report.best) {
      best = report.valid->accuracy;
      best_epoch = report.epoch;
    }
    return Status::Ok();
  };
  const TrainSummary summary = Train(road, options, callbacks).value();
  EXPECT_TRUE(summary.stopped_early);
  EXPECT_LT(summary.epochs, 200u);
  EXPECT_EQ(summary.epochs, summary.best_epoch + 3);
  EXPECT_EQ(summary.best_epoch, best_epoch);
  EXPECT_EQ(summary.valid->accuracy, best);
}

TEST(Train, StopsAtTheNextBatchWhenACallbackSaysSo) {
  FakeRoad road{FakeRoadOptions{}};
  int calls = 0;
  TrainCallbacks callbacks;
  callbacks.progress = [&](std::string_view, uint64_t, uint64_t) {
    return ++calls == 5 ? MakeStatus(Code::kCancelled, "interrupted") : Status::Ok();
  };
  EXPECT_THAT(Train(road, Options(), callbacks), IsStatus(Code::kCancelled));
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(road.streams_open, 0);
}

TEST(Train, PassesOnTheErrorOfTheRoad) {
  FakeRoadOptions graph;
  graph.fail_at_batch = 3;
  FakeRoad road(graph);
  const Status status = Train(road, Options(), {}).status();
  EXPECT_THAT(status, IsStatus(Code::kIoError, HasSubstr("batch 3")));
  EXPECT_EQ(road.streams_open, 0);
}

TEST(Train, EvaluatesOnTheSameSampleEveryEpochAndTrainsOnFreshOnes) {
  FakeRoad road{FakeRoadOptions{}};
  TrainOptions options = Options();
  options.epochs = 2;
  ASSERT_OK(Train(road, options, {}));
  ASSERT_EQ(road.passes.size(), 5u);
  EXPECT_NE(road.passes[0], road.passes[2]);
  EXPECT_EQ(road.passes[1], road.passes[3]);
}

TEST(Train, SkipsUnlabelledNodesEverywhere) {
  FakeRoad road{FakeRoadOptions{}};
  for (NodeId v = 0; v < 2000; v += 3) road.mutable_labels()[v] = -1;
  TrainOptions options = Options();
  options.epochs = 1;
  const TrainSummary summary = Train(road, options, {}).value();
  EXPECT_LT(summary.test->nodes, 500u);
  EXPECT_EQ(summary.stats.batches, 6u);  // 667 nodes by 128
}

TEST(Train, RefusesADatabaseItCannotLearnFrom) {
  FakeRoad unlabelled{FakeRoadOptions{}};
  std::fill(unlabelled.mutable_labels().begin(), unlabelled.mutable_labels().end(), -1);
  EXPECT_THAT(Train(unlabelled, Options(), {}).status().ToString(), HasSubstr("classes"));
  FakeRoad unsplit{FakeRoadOptions{}};
  unsplit.no_training_nodes = true;
  EXPECT_THAT(Train(unsplit, Options(), {}).status().ToString(), HasSubstr("training node"));
  FakeRoadOptions bare;
  bare.dim = 0;
  FakeRoad featureless(bare);
  EXPECT_THAT(Train(featureless, Options(), {}).status().ToString(), HasSubstr("features"));
}

TEST(Train, ALossThatIsNoNumberIsAnErrorThatSaysWhatToDo) {
  FakeRoad road{FakeRoadOptions{}};
  road.mutable_features()[0] = std::nanf("");
  const Status status = Train(road, Options(), {}).status();
  EXPECT_THAT(status, IsStatus(Code::kInvalidArgument, HasSubstr("learning rate")));
}

TEST(Train, RefusesOptionsOutOfRangeByName) {
  const auto refusal = [](auto&& change) {
    FakeRoad road{FakeRoadOptions{}};
    TrainOptions options = Options();
    change(options);
    const Status status = Train(road, options, {}).status();
    EXPECT_THAT(status, IsStatus(Code::kUsage));
    return status.ToString();
  };
  EXPECT_THAT(refusal([](TrainOptions& o) { o.dropout = 1; }), HasSubstr("dropout"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.learning_rate = -1; }), HasSubstr("learning rate"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.hidden = 0; }), HasSubstr("hidden"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.epochs = 0; }), HasSubstr("epochs"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.torch_threads = 0; }), HasSubstr("torch threads"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.layers = 0; }), HasSubstr("layers"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.layers = 3; }), HasSubstr("one fanout per layer"));
}

TEST(BoundBlock, MultipliesFanoutsButNeverExceedsTheLargestBlock) {
  const std::vector<uint32_t> fanouts = {10, 15, 20};
  const BlockBounds free = BoundBlock(1024, fanouts, 700000);
  EXPECT_EQ(free.hop_nodes, (std::vector<uint64_t>{1024, 11264, 180224}));
  EXPECT_EQ(free.nodes, 700000u);
  EXPECT_EQ(free.hop_edges,
            (std::vector<uint64_t>{10240, 10240 + 10240 * 15, 10240 + 10240 * 15 + 168960 * 20}));
  const BlockBounds capped = BoundBlock(1024, fanouts, 5000);
  EXPECT_EQ(capped.hop_nodes, (std::vector<uint64_t>{1024, 5000, 5000}));
  EXPECT_EQ(capped.nodes, 5000u);
  // 1024 seeds draw 10 each, and the others may all be new at any of the later hops.
  EXPECT_EQ(capped.hop_edges, (std::vector<uint64_t>{10240, 75000, 100000}));
}

}  // namespace
}  // namespace quarry
