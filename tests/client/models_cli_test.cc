// Every model along every road, as people ask for them: trained, resumed, and asked by `quarry predict`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli_database_test.h"
#include "support/file_text.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class ModelsCliTest : public CliDatabaseTest, public testing::WithParamInterface<const char*> {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase("models_cli_test",
                 "--nodes 3k --degree 8 --dim 16 --classes 4 --train-share 20% --valid-share 10% "
                 "--test-share 10% --seed 7");
    Expect0("partition build db --method random --parts 8");
  }

  static json Summary(const std::string& arguments) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
    const std::vector<std::string> lines = Lines(outcome.out);
    return outcome.exit_code != 0 || lines.empty() ? json()
                                                   : json::parse(lines.back()).value("summary", json());
  }

  static constexpr const char* kSettings =
      " --fanout 5,5 --hidden 16 --batch-size 128 --epochs 2 --lr 0.01 --seed 3 --ordered --torch-threads 1 "
      "--json --overwrite --memory 256MiB ";
};
INSTANTIATE_TEST_SUITE_P(Models, ModelsCliTest,
                         testing::Values("--model sage", "--model sage --aggregator max",
                                         "--model sage --aggregator sum", "--model gcn",
                                         "--model gcn --gcn-norm both",
                                         "--model gat --heads 2 --attention-dropout 0.2", "--model gin"));

TEST_P(ModelsCliTest, EveryRoadTrainsEveryModel) {
  const std::string model = GetParam();
  const auto train = [&](const std::string& where, const std::string& road) {
    const json summary = Summary("train " + where + " " + model + kSettings + road);
    EXPECT_TRUE(summary.contains("loss")) << road;
    EXPECT_EQ(summary["epochs"], 2) << road;
    EXPECT_GT(summary["test_accuracy"].get<double>(), 0.3) << road;  // a guess: a quarter
    EXPECT_EQ("--model " + summary["model"].get<std::string>(), model.substr(0, model.find(' ', 8))) << road;
    return summary;
  };
  const json live = train("db", "--road live --cache 25% --run live");
  train("db", "--plan --cache 25% --run planned");
  train("db", "--plan --resample every-epoch --cache 25% --run fresh");
  train("db", "--plan --resample every-epoch --superbatch 2 --cache 25% --run superbatch");
  const bool needs_degrees = model.ends_with("both");
  if (needs_degrees) {
    const Outcome refused = Run("train db " + model + kSettings + "--road partitioned --run parts");
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("--road partitioned holds nothing of each node"));
  } else {
    train("db", "--road partitioned --buffer 4 --logical 4 --run parts");
  }

  const Process server("serve db --socket run/socket --memory 512MiB", root_);
  ASSERT_TRUE(server.WaitUntil([] { return fs::exists(root_ / "run/socket"); }));
  const json remote = train("unix:run/socket", "--cache 25% --run remote");
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait().exit_code, 0);
  EXPECT_EQ(remote["loss"], live["loss"]);
  EXPECT_EQ(remote["test_accuracy"], live["test_accuracy"]);

  for (const char* const run : {"live", "planned", "parts"}) {
    const std::string name = run;
    if (needs_degrees && name == "parts") continue;
    const Outcome predicted = Run("predict db --run " + name + " --split test --out " + name + ".npy --json");
    ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
    const double accuracy = json::parse(predicted.out)["accuracy"];
    EXPECT_GT(accuracy, 0.3) << run;
    if (name == "live") {
      EXPECT_EQ(accuracy, live["test_accuracy"]);
    }
  }
}

// The elements of a .npy file of version 1, as they lie there.
template <typename T>
std::vector<T> Elements(const fs::path& path) {
  const std::string bytes = testing_util::FileText(path);
  const size_t begin = 10 + static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]);
  std::vector<T> elements((bytes.size() - begin) / sizeof(T));
  std::memcpy(elements.data(), bytes.data() + begin, elements.size() * sizeof(T));
  return elements;
}

// Samples that take all neighbors.
TEST_P(ModelsCliTest, LayersPredictWhatSamplesOfAllNeighborsDo) {
  const std::string model = GetParam();
  Summary("train db " + model + kSettings + "--road live --run layers");
  const std::string predict = "predict db --run layers --what scores --json ";
  const std::string layers = "--inference layers ";
  if (model.find("--gcn-norm both") != std::string::npos) {
    EXPECT_THAT(Run(predict + layers + "--out layers.npy").err, HasSubstr("--gcn-norm both"));
    return;
  }
  RunJson(predict + "--fanout 1024,1024 --batch-size 500 --out sampled.npy");
  const json report = RunJson(predict + layers + "--memory 64MiB --out layers.npy");
  const std::vector<float> sampled = Elements<float>(Path("sampled.npy")),
                           all = Elements<float>(Path("layers.npy"));
  ASSERT_EQ(all.size(), 3000u * 4);
  ASSERT_EQ(sampled.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) ASSERT_NEAR(all[i], sampled[i], 1e-4) << i;
  EXPECT_EQ(report["layers"]["ranges"], 2);
  EXPECT_GE(report["layers"]["read_bytes"], report["layers"]["least_bytes"]);

  // Some of the nodes, in another order; a split, and a table.
  Write("some.csv", "7\n2999\n0\n1500\n");
  RunJson(predict + layers + "--nodes some.csv --out some.npy");
  const std::vector<float> some = Elements<float>(Path("some.npy"));
  ASSERT_EQ(some.size(), 4u * 4);
  const size_t nodes[] = {7, 2999, 0, 1500};
  for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i], all[nodes[i / 4] * 4 + i % 4]) << i;
  const json split = RunJson(predict + layers + "--split test --ids ids.npy --out test.npy");
  const std::vector<int64_t> ids = Elements<int64_t>(Path("ids.npy"));
  const std::vector<float> test = Elements<float>(Path("test.npy"));
  ASSERT_EQ(test.size(), ids.size() * 4);
  for (size_t i = 0; i < test.size(); ++i) {
    EXPECT_EQ(test[i], all[static_cast<size_t>(ids[i / 4]) * 4 + i % 4]) << i;
  }
  EXPECT_GT(split["accuracy"].get<double>(), 0.3);
  EXPECT_EQ(RunJson("predict db --run layers --what embeddings --table vectors --overwrite --json " +
                    layers)["columns"],
            16);

  const Outcome text = Run("predict db --run layers --out classes.npy " + layers);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("times the rows of each layer and its edges once"));
  EXPECT_THAT(Run("predict db --run layers --out classes.npy --fanout 3,3 " + layers).err,
              HasSubstr("--fanout is of --inference sampled"));
}

// The model is a part of a run's settings.
TEST_F(ModelsCliTest, ARunGoesOnWithTheModelThatItHas) {
  const std::string train =
      "train db --fanout 5,5 --hidden 16 --batch-size 128 --memory 256MiB --checkpoint-every 1 --run kept ";
  ASSERT_EQ(Run(train + "--model gat --heads 2 --epochs 1").exit_code, 0);
  EXPECT_EQ(Run(train + "--model gat --heads 2 --epochs 2 --resume").exit_code, 0);
  EXPECT_THAT(Run(train + "--model gat --heads 8 --epochs 3 --resume").err,
              HasSubstr("--heads is 8, but was 2"));
  EXPECT_THAT(Run(train + "--model gat --epochs 3 --resume").err, HasSubstr("--heads is 4, but was 2"));
  EXPECT_THAT(Run(train + "--model gat --heads 2 --attention-dropout 0.5 --epochs 3 --resume").err,
              HasSubstr("--attention-dropout is 0.5, but was 0"));
  EXPECT_THAT(Run(train + "--model gcn --epochs 3 --resume").err, HasSubstr("--model is gcn, but was gat"));
}

TEST_F(ModelsCliTest, ARunGoesOnWithItsSchedule) {
  const std::string train =
      "train db --fanout 5,5 --hidden 16 --batch-size 128 --memory 256MiB --ordered --torch-threads 1 --json "
      "--checkpoint-every 1 --overwrite --lr 0.01 --road live --schedule cosine ";
  const auto losses = [](const std::string& arguments) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::vector<std::pair<double, double>> epochs;
    for (const std::string& line : Lines(outcome.out)) {
      const json epoch = json::parse(line);
      if (epoch.contains("epoch")) epochs.emplace_back(epoch["learning_rate"], epoch["loss"]);
    }
    return epochs;
  };
  const auto whole = losses(train + "--epochs 4 --run whole");
  ASSERT_EQ(whole.size(), 4u);
  EXPECT_EQ(whole[0].first, 0.01);
  EXPECT_NEAR(whole[2].first, 0.005, 1e-9);
  auto parts = losses(train + "--epochs 2 --schedule-epochs 4 --run parts");
  std::string resume = train + "--epochs 4 --resume --run parts ";
  resume.erase(resume.find("--overwrite "), 12);
  for (const auto& epoch : losses(resume)) parts.push_back(epoch);
  EXPECT_EQ(parts, whole);
  EXPECT_THAT(Run(resume + "--schedule-epochs 5").err, HasSubstr("--schedule-epochs is 5, but was 4"));
  resume.erase(resume.find("--schedule cosine "), 18);
  EXPECT_THAT(Run(resume).err, HasSubstr("--schedule is not set, but was cosine"));
  EXPECT_THAT(Run("train db --schedule-epochs 3").err,
              HasSubstr("--schedule-epochs is of --schedule cosine"));
  EXPECT_THAT(Run("train db --task link --schedule-epochs 3").err,
              HasSubstr("--schedule-epochs is of --schedule cosine"));
}

TEST_F(ModelsCliTest, RatesOfVectorsGoAsTheirScheduleSays) {
  const std::string train =
      "train db --task link --decoder dot --dim 8 --valid-share 2% --test-share 2% --batch-size 4000 --lr "
      "0.1 --epochs 3 "
      "--negatives 50 --seed 3 --ordered --memory 256MiB --json ";
  const auto epochs = [&](const std::string& options) {
    const Outcome outcome = Run(train + options);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::vector<json> told;
    for (const std::string& line : Lines(outcome.out)) told.push_back(json::parse(line));
    return told;
  };
  const auto steps = epochs("--schedule step --schedule-epochs 1 --save --run steps");
  ASSERT_EQ(steps.size(), 4u);
  for (size_t i = 0; i < 3; i++) {
    EXPECT_NEAR(steps[i]["learning_rate"].get<double>(), 0.1 * std::pow(0.1, i), 1e-7) << i;
  }
  EXPECT_EQ(steps[3]["summary"]["schedule"], "step");
  // The first epoch has the rate that it has without; a rate of nothing leaves a model as it is.
  EXPECT_EQ(epochs("")[0]["loss"], steps[0]["loss"]);
  const auto still = epochs("--schedule cosine --schedule-epochs 1");
  EXPECT_EQ(still[1]["valid_mrr"], still[2]["valid_mrr"]);
  EXPECT_EQ(still[1]["learning_rate"], 0);
  EXPECT_THAT(Run(train + "--save --run steps --resume").err,
              HasSubstr("--schedule is not set, but was step"));
}

TEST_F(ModelsCliTest, ValidationAndTestByLayersAreWhatPredictTells) {
  const std::string train = std::string("train db --eval layers --road live --cache 25%") + kSettings;
  const json summary = Summary(train + "--run by-layers");
  for (const std::string split : {"valid", "test"}) {
    const json told = RunJson("predict db --run by-layers --inference layers --split " + split +
                              " --torch-threads 1 --out e.npy --json");
    EXPECT_EQ(told["accuracy"], summary[split + "_accuracy"]) << split;
  }
  const json planned =
      Summary(std::string("train db --eval layers --plan --cache 25% --model gat --heads 2") + kSettings +
              "--run by-layers");
  EXPECT_EQ(
      RunJson("predict db --run by-layers --inference layers --split test --torch-threads 1 --out e.npy "
              "--json")["accuracy"],
      planned["test_accuracy"]);
  const auto refused = [](const std::string& options, int exit_code) {
    const Outcome outcome = Run("train db --eval layers --fanout 5,5 " + options);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refused("--workers 2", 2), HasSubstr("by one trainer"));
  EXPECT_THAT(refused("--road partitioned", 2), HasSubstr("take another road"));
  EXPECT_THAT(refused("--model gcn --gcn-norm both", 2), HasSubstr("--gcn-norm both"));
  EXPECT_THAT(refused("--memory 14MiB --road live", 1), HasSubstr("MiB"));
}

TEST_F(ModelsCliTest, LinksAreLearnedByTheFeaturesOfNodes) {
  const std::string link =
      "train db --task link --valid-share 2% --test-share 2% --batch-size 2000 --negatives 50 --seed 3 "
      "--ordered "
      "--memory 256MiB ";
  // Forty groups of ten, which features tell: each node has edges to members of its own.
  std::string rows, edges;
  for (int node = 0; node < 400; node++) {
    for (int c = 0; c < 40; c++)
      rows += fmt::format("{}{}", c == node / 10 ? 1 : 0.1 * (node % 3), c == 39 ? "\n" : ",");
    for (int i = 1; i <= 5; i++) edges += fmt::format("{},{}\n", node, node / 10 * 10 + (node + i) % 10);
  }
  fs::create_directories(Path("groups"));
  Write("groups/features.csv", rows);
  Write("groups/edges.csv", edges);
  Expect0("import grouped groups");
  const std::string by_features =
      "train grouped --task link --valid-share 5% --test-share 5% --batch-size 200 --negatives 50 --seed 3 "
      "--ordered "
      "--memory 256MiB --decoder dot --dim 16 --fanout 5 --encoder-lr 0.01 --json --features feature "
      "--encoder sage --epochs ";
  const json told = Summary(by_features + "10");
  Summary(by_features + "4 --run linked --checkpoint-every 3");
  EXPECT_EQ(Summary(by_features + "10 --run linked --resume")["test_mrr"], told["test_mrr"]);
  EXPECT_EQ(told["feature_dim"], 40);
  EXPECT_EQ(told["tables"], "memory");
  EXPECT_GT(told.value("test_mrr", 0.0), 0.15);  // a guess: .016
  const auto refused = [&](const std::string& options, int exit_code) {
    const Outcome outcome = Run(link + options);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refused("--features feature", 2), HasSubstr("give --encoder sage too"));
  EXPECT_THAT(refused("--features none --encoder sage", 1),
              HasSubstr("no table \"none\" of features; there are"));
  EXPECT_THAT(Run("train db --task link --features feature --encoder sage --road partitioned").err,
              HasSubstr("leave --road out"));
  const Outcome little =
      Run("train db --task link --valid-share 2% --test-share 2% --encoder sage --features feature --memory "
          "1MiB");
  EXPECT_EQ(little.exit_code, 1);
  EXPECT_THAT(little.err, HasSubstr("features of nodes"));
}

// A folder without labels, whose nodes have numbers and sets instead.
class TargetsCliTest : public ModelsCliTest {
 protected:
  static void SetUpTestSuite() {
    ModelsCliTest::SetUpTestSuite();
    const std::vector<int64_t> labels = Elements<int64_t>(Path("graph/labels.npy"));
    fs::copy(Path("graph"), Path("plain"));
    fs::remove(Path("plain/labels.npy"));
    std::string numbers, sets;
    for (const int64_t label : labels) {
      numbers += label < 0 ? "nan,nan\n" : fmt::format("{},{}\n", 500 + 10 * label, label == 1 ? 0.001 : 0);
      sets += fmt::format("{},{},{}\n", int{label == 0}, int{label == 1 || label == 2}, int{label > 1});
    }
    Write("plain/targets.csv", numbers);
    Write("sets.csv", sets);
    Expect0("import numbers plain");
    Expect0("import sets plain --targets sets.csv");
  }
};

TEST_F(TargetsCliTest, EveryRoadLearnsThemAndPredictTellsThem) {
  const auto train = [&](const std::string& where, const std::string& road) {
    const json summary = Summary("train " + where + " --task regress --target target" + kSettings + road);
    EXPECT_FALSE(summary.contains("test_accuracy"));
    EXPECT_LT(summary.value("test_rmse", 100.0), 7.7) << road;  // a guess: 7.9
    return summary;
  };
  const json live = train("numbers", "--road live --cache 25% --run live");
  EXPECT_EQ(live["loss_function"], "mse");
  for (const std::string loss : {"huber", "mae"}) {
    const json other = train("numbers", "--road live --cache 25% --run " + loss + " --loss " + loss);
    EXPECT_EQ(other["loss_function"], loss);
    EXPECT_NE(other["test_rmse"], live["test_rmse"]);
  }
  train("numbers", "--plan --cache 25% --run planned");
  const Process server("serve numbers --socket run/socket --memory 512MiB", root_);
  ASSERT_TRUE(server.WaitUntil([] { return fs::exists(root_ / "run/socket"); }));
  const json remote = train("unix:run/socket", "--cache 25% --run remote");
  train("unix:run/socket", "--cache 25% --workers 2 --run workers");
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait().exit_code, 0);
  EXPECT_EQ(remote["loss"], live["loss"]);
  EXPECT_EQ(remote["test_rmse"], live["test_rmse"]);

  const json predicted = RunJson("predict numbers --run live --split test --out rows.npy --json");
  EXPECT_EQ(predicted["columns"], 2);
  EXPECT_NEAR(predicted["rmse"].get<double>(), live["test_rmse"].get<double>(), 1e-6);
  for (const float value : Elements<float>(Path("rows.npy")))
    EXPECT_TRUE(value > -50 && value < 600) << value;
  EXPECT_EQ(RunJson("predict numbers --run live --inference layers --table all --json")["rows"], 3000);
  EXPECT_THAT(Run("predict numbers --run live --what classes --out rows.npy").err, HasSubstr("tells values"));
}

TEST_F(TargetsCliTest, SeveralLabelsAreLearnedAndTold) {
  const json summary =
      Summary(std::string("train sets --task multilabel --target target --run sets --plan") + kSettings);
  EXPECT_GT(summary.value("test_auc", 0.0), 0.6);  // a guess: a half
  EXPECT_GT(summary.value("test_micro_f1", 0.0), 0.3);
  EXPECT_EQ(RunJson("predict sets --run sets --split test --out rows.npy --json")["columns"], 3);
  for (const float value : Elements<float>(Path("rows.npy"))) EXPECT_TRUE(value >= 0 && value <= 1) << value;
}

TEST_F(TargetsCliTest, AnExportHasThem) {
  const auto loss = [](const std::string& db) {
    return Summary("train " + db + " --task regress --target target --road live " + kSettings)["loss"];
  };
  const json expected = loss("numbers");
  Expect0("export numbers exported --format csv");
  Expect0("import again exported");
  EXPECT_EQ(loss("again"), expected);
}

// The rows 100 further on, and a table that has them where they are asked for.
TEST_F(TargetsCliTest, ALagIsARowOfAnotherNode) {
  const std::vector<float> features = Elements<float>(Path("plain/features.npy"));
  ASSERT_EQ(features.size(), 3000u * 16);
  std::string train, shifted;
  for (int node = 0; node < 3000; node++) {
    if (node < 400) train += fmt::format("{}\n", node);
    for (int c = 0; c < 16; c++) {
      const float value = node < 2900 ? features[(node + 100) * 16 + c] : 0;
      shifted += fmt::format("{}{}", value, c == 15 ? "\n" : ",");
    }
  }
  Write("first.csv", train);
  Write("shifted.csv", shifted);
  Write("valid.csv", "2000\n2001\n");
  Write("test.csv", "2002\n2003\n");
  Expect0("import shifted plain --targets shifted.csv --train first.csv --valid valid.csv --test test.csv");
  const std::string options = std::string("train shifted --task regress --road live ") + kSettings;
  const json lagging = Summary(options + "--target feature@+100"),
             there = Summary(options + "--target target");
  EXPECT_EQ(lagging["loss"], there["loss"]);
  EXPECT_EQ(lagging["test_rmse"], there["test_rmse"]);
  EXPECT_FALSE(there.contains("test_persistence_rmse"));

  // Persistence is of rows and targets alone, whatever judges the model.
  double squares = 0;
  for (size_t i = 2002 * 16; i < 2004 * 16; i++) {
    const double error = double{features[i]} - double{features[i + 100 * 16]};
    squares += error * error;
  }
  EXPECT_NEAR(lagging.value("test_persistence_rmse", 0.0), std::sqrt(squares / 32), 1e-6);
  const json by_layers = Summary(options + "--target feature@+100 --eval layers");
  EXPECT_EQ(by_layers["test_persistence_rmse"], lagging["test_persistence_rmse"]);
  EXPECT_NEAR(by_layers.value("test_skill", 9.0),
              1 - by_layers.value("test_rmse", 0.0) / by_layers.value("test_persistence_rmse", 1.0), 1e-9);
}

TEST_F(TargetsCliTest, WhatCannotBeLearnedIsRefusedByName) {
  const auto refused = [](const std::string& arguments, int exit_code) {
    const Outcome outcome = Run("train " + arguments + " --fanout 5,5 --hidden 16 --memory 256MiB");
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments << outcome.err;
    EXPECT_TRUE(outcome.out.empty()) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(refused("numbers --task regress", 2), HasSubstr("name it, as --target target"));
  EXPECT_THAT(refused("numbers --target target", 2), HasSubstr("--target is of --task regress"));
  EXPECT_THAT(refused("numbers --task regress --target target@-1", 1), HasSubstr("no table \"target@-1\""));
  EXPECT_THAT(refused("numbers --task regress --target target@+x", 2), HasSubstr("'target@+x'"));
  EXPECT_THAT(refused("numbers --task regress --target none", 1),
              HasSubstr("there are split, feature, target"));
  EXPECT_THAT(refused("numbers --task multilabel --target target", 1), HasSubstr("0, 1 or NaN"));
  EXPECT_THAT(refused("numbers --task regress --target target@+2999", 1), HasSubstr("has no target"));
  EXPECT_THAT(refused("numbers --task regress --target target --road partitioned", 2),
              HasSubstr("take another road"));
  EXPECT_THAT(refused("numbers --task regress --target target --decoder dot", 2),
              HasSubstr("--decoder belongs to --task link, and this is --task regress"));
  EXPECT_THAT(refused("numbers --loss huber", 2), HasSubstr("--loss is of --task regress and link"));
  EXPECT_THAT(refused("numbers --task regress --target target --loss margin", 2),
              HasSubstr("there is no loss of regression 'margin'; one of mse, huber, mae"));
  EXPECT_THAT(refused("numbers", 1), HasSubstr("labels of 0 classes"));
  Summary(std::string("train numbers --task regress --target target --run kept") + kSettings);
  EXPECT_THAT(refused("numbers --task regress --target feature --run kept --resume", 2),
              HasSubstr("--target is feature, but was target"));
  EXPECT_THAT(
      refused(
          "numbers --task regress --target target --loss mae --run kept --resume --batch-size 128 --lr 0.01 "
          "--seed 3 --ordered --torch-threads 1",
          2),
      HasSubstr("--loss is mae, but was not set"));
  // Labels are numbers too.
  EXPECT_TRUE(
      Summary(std::string("train db --task regress --target label") + kSettings).contains("test_rmse"));
}

// Edges between classes weigh nothing.
TEST_F(ModelsCliTest, WeightsOfEdgesCountWhereTheyAreAskedFor) {
  const std::vector<int64_t> edges = Elements<int64_t>(Path("graph/edges.npy"));
  const std::vector<int64_t> labels = Elements<int64_t>(Path("graph/labels.npy"));
  const size_t count = edges.size() / 2;
  std::string lines, ones;
  for (size_t e = 0; e < count; e++) {
    const int64_t from = edges[e], to = edges[count + e];
    lines += fmt::format("{},{},{}\n", from, to, labels[from] == labels[to] ? 1 : 0);
    ones += fmt::format("{},{},1\n", from, to);
  }
  Write("weighted.csv", lines);
  Write("ones.csv", ones);
  Expect0("import weighted graph --edges weighted.csv");
  Expect0("import ones graph --edges ones.csv");
  const auto train = [&](const std::string& db, const std::string& options) {
    return Summary("train " + db + kSettings + options);
  };
  const json alike = train("weighted", "--road live --cache 25%");
  const json weighed = train("weighted", "--edge-weights on --cache 25% --run weighed");
  EXPECT_EQ(weighed["edge_weights"], "on");
  EXPECT_EQ(alike["edge_weights"], "off");
  for (const json& better : {weighed, train("weighted", "--model gcn --edge-weights on --cache 25%")}) {
    EXPECT_GT(better["test_accuracy"].get<double>(), alike["test_accuracy"].get<double>());
  }
  EXPECT_GT(train("weighted", "--edge-weights on --plan --cache 25%")["test_accuracy"].get<double>(),
            alike["test_accuracy"].get<double>());
  // Where all weigh the same, sums are the same but for their rounding; the edges are those of the other database.
  EXPECT_NEAR(train("ones", "--edge-weights on --cache 25%")["loss"].get<double>(),
              alike["loss"].get<double>(), 1e-4);
  EXPECT_EQ(RunJson("predict weighted --run weighed --split test --out w.npy --json")["accuracy"],
            weighed["test_accuracy"]);
  EXPECT_THAT(Run("predict weighted --run weighed --inference layers --out w.npy").err,
              HasSubstr("--edge-weights on"));
  const auto refused = [](const std::string& options, int exit_code) {
    const Outcome outcome = Run("train " + options + " --edge-weights on --fanout 5,5 --memory 256MiB");
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refused("db", 1), HasSubstr("import them with edge_weights.npy"));
  EXPECT_THAT(refused("weighted --road partitioned", 2), HasSubstr("take another road"));
  EXPECT_THAT(refused("weighted --workers 2", 2), HasSubstr("train on the database itself"));
  EXPECT_THAT(refused("weighted --direction both", 2), HasSubstr("leave --direction out"));
  EXPECT_THAT(refused("weighted --task link", 2), HasSubstr("--edge-weights belongs to --task node"));
}

TEST_F(ModelsCliTest, RefusesOptionsOfOtherModelsAndValuesThatAreNone) {
  const auto refused = [](const std::string& options) {
    const Outcome outcome = Run("train db " + options);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refused("--heads 2"),
              HasSubstr("--heads is of --model gat and rgat, and this is --model sage"));
  EXPECT_THAT(refused("--model gin --aggregator max"), HasSubstr("--aggregator is of --model sage"));
  EXPECT_THAT(refused("--model gpt"), HasSubstr("'gpt' is not sage, gcn, gat, gin, rgcn or rgat"));
  EXPECT_THAT(refused("--model gat --heads 0"), HasSubstr("'0' is not a number of heads from 1 to 64"));
  for (const char* const road : {"", " --dry-run --layout absent", " --road partitioned", " --workers 2"}) {
    EXPECT_THAT(refused(std::string("--model gat --heads 5 --hidden 24 --fanout 5,5") + road),
                HasSubstr("such as 25"))
        << road;
  }
}

}  // namespace
}  // namespace quarry
