// Every model along every road, as people ask for them: trained, resumed, and asked by `quarry predict`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
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
  EXPECT_THAT(Run("train db --task link --schedule step").err,
              HasSubstr("--schedule belongs to --task node"));
}

TEST_F(ModelsCliTest, RefusesOptionsOfOtherModelsAndValuesThatAreNone) {
  const auto refused = [](const std::string& options) {
    const Outcome outcome = Run("train db " + options);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refused("--heads 2"), HasSubstr("--heads is of --model gat, and this is --model sage"));
  EXPECT_THAT(refused("--model gin --aggregator max"), HasSubstr("--aggregator is of --model sage"));
  EXPECT_THAT(refused("--model gpt"), HasSubstr("'gpt' is not sage, gcn, gat or gin"));
  EXPECT_THAT(refused("--model gat --heads 0"), HasSubstr("'0' is not a number of heads from 1 to 64"));
  for (const char* const road : {"", " --dry-run --layout absent", " --road partitioned", " --workers 2"}) {
    EXPECT_THAT(refused(std::string("--model gat --heads 5 --hidden 24 --fanout 5,5") + road),
                HasSubstr("such as 25"))
        << road;
  }
}

}  // namespace
}  // namespace quarry
