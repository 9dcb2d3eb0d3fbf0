// Weather on a grid, as people ask for it: generated, imported, learned along every road, rolled out. The best forecast is
// known: models that see where neighbors lie come near it, and what sees a place alone does not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli_database_test.h"
#include "support/array_files.h"
#include "support/file_text.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

// QUARRY_TEST_WEATHER=full: the size of Waleffe's example in small, 36 x 72 places and 2,000 hours at 13 levels.
bool FullSize() {
  const char* const size = std::getenv("QUARRY_TEST_WEATHER");
  return size != nullptr && std::string(size) == "full";
}

std::vector<float> Floats(const fs::path& path) {
  const std::string bytes = testing_util::FileText(path);
  const size_t begin = 10 + static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]);
  std::vector<float> values((bytes.size() - begin) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + begin, values.size() * sizeof(float));
  return values;
}

class WeatherCliTest : public CliDatabaseTest {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase("weather_cli_test",
                 "--nodes 500 --degree 4 --dim 8 --classes 3 --train-share 20% --valid-share 10% "
                 "--test-share 10% --seed 7");
    const std::string size =
        FullSize() ? "--weather 36x72 --hours 2000 --levels 13" : "--weather 10x20 --hours 260 --levels 1";
    made_ = RunJson("generate sky " + size + " --seed 5 --json");
    imported_ = RunJson("import sky.db sky --json");
    // Without edges a model of a graph is one of its rows: a multi-layer perceptron.
    fs::copy(Path("sky"), Path("alone"), fs::copy_options::recursive);
    for (const char* const side : {"east", "north", "south", "west"}) {
      fs::remove(Path("alone") / fmt::format("edges_{}.npy", side));
    }
    Write("alone/edges.npy", NpyFile(std::vector<int64_t>(), {2, 0}));
    Write("alone/metadata.yaml",
          fmt::format("num_nodes: {}\nnum_times: {}\n", made_["nodes"].dump(), made_["times"].dump()));
    Expect0("import alone.db alone");
  }

  static json Summary(const std::string& arguments) {
    const Outcome outcome = Run("train " + arguments + kSettings + (FullSize() ? kFull : kSmall));
    EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
    const std::vector<std::string> lines = Lines(outcome.out);
    return outcome.exit_code != 0 || lines.empty() ? json()
                                                   : json::parse(lines.back()).value("summary", json());
  }

  static constexpr const char* kSettings =
      " --task regress --target feature@+6 --dropout 0 --seed 3 --ordered --torch-threads 1 --json "
      "--overwrite ";
  static constexpr const char* kSmall = "--batch-size 200 --lr 0.01 --hidden 64 --memory 128MiB";
  static constexpr const char* kFull = "--batch-size 1024 --lr 0.003 --hidden 192 --memory 2GiB";
  static constexpr const char* kForecast = "sky.db --model rgcn --layers 1 --fanout 4 --epochs 6 ";
  static inline json made_, imported_;
};

TEST_F(WeatherCliTest, TheBestForecastIsLearnedFromNeighborsAndNotFromAPlaceAlone) {
  EXPECT_EQ(imported_["times"], made_["times"]);
  EXPECT_EQ(imported_["edges"], 4 * made_["places"].get<uint64_t>());
  const double floor = made_["noise_floor"];
  EXPECT_NEAR(floor, 1, 5e-3);
  const json cached = Summary(std::string(kForecast) + "--cache 100% --run cached");
  const json forecast = Summary(std::string(kForecast) + "--cache 10% --run forecast");
  EXPECT_LE(forecast.value("test_rmse", 9.0), 1.15 * floor);
  EXPECT_GE(forecast.value("test_rmse", 0.0), 0.95 * floor) << "better than the best";
  EXPECT_GE(forecast.value("test_persistence_rmse", 0.0), 2 * floor);
  EXPECT_NEAR(forecast.value("test_skill", 0.0),
              1 - forecast["test_rmse"].get<double>() / forecast["test_persistence_rmse"].get<double>(),
              1e-9);
  EXPECT_EQ(forecast["test_rmse_by_column"].size(), made_["dim"]);
  double squares = 0;
  for (const json& rmse : forecast["test_rmse_by_column"]) squares += rmse.get<double>() * rmse.get<double>();
  EXPECT_NEAR(std::sqrt(squares / made_["dim"].get<double>()), forecast["test_rmse"].get<double>(), 1e-6);
  EXPECT_EQ(forecast["loss"], cached["loss"]) << "a tenth of the rows in memory, and all of them";
  EXPECT_EQ(forecast["test_rmse"], cached["test_rmse"]);

  const json alone = Summary("alone.db --model sage --layers 2 --fanout 1,1 --epochs 6 --road live");
  EXPECT_GE(alone.value("test_rmse", 0.0), 2 * floor);
  EXPECT_LT(alone.value("test_rmse", 9.0), alone["test_persistence_rmse"].get<double>());
  EXPECT_EQ(alone["test_persistence_rmse"], forecast["test_persistence_rmse"]);
}

// Which neighbor is which, SAGE is not told; its epochs have each row read once.
TEST_F(WeatherCliTest, EveryRoadTrains) {
  const std::string sage = "sky.db --model sage --layers 1 --fanout 4 --epochs 2 --cache 10% ";
  const json live = Summary(sage + "--road live --run live"),
             planned = Summary(sage + "--plan --run planned"),
             fresh = Summary(sage + "--plan --resample every-epoch --run fresh");
  for (const json& other : {planned, fresh}) {
    EXPECT_NEAR(other.value("test_rmse", 0.0), live["test_rmse"].get<double>(), 0.02);
  }
  const double rows = made_["nodes"].get<double>() * made_["dim"].get<double>() * sizeof(float);
  EXPECT_LE(live["bytes_useful"].get<double>(), 2 * rows) << "two epochs of fewer rows than all";

  const Process server("serve sky.db --socket run/socket --memory 256MiB", root_);
  ASSERT_TRUE(server.WaitUntil([] { return fs::exists(root_ / "run/socket"); }));
  const json remote =
      Summary("unix:run/socket --model sage --layers 1 --fanout 4 --epochs 2 --cache 10% --run remote");
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait().exit_code, 0);
  EXPECT_EQ(remote["loss"], live["loss"]);
  EXPECT_EQ(remote["test_rmse"], live["test_rmse"]);
  EXPECT_EQ(Run("verify sky.db").exit_code, 0);
}

// The oracle of a step: the step before is put into the database, and asked about as any nodes are.
TEST_F(WeatherCliTest, ARollOutFeedsPredictionsBack) {
  Summary(std::string(kForecast) + "--cache 10% --run forecast");
  const uint64_t places = made_["places"], dim = made_["dim"], time = 200;
  const std::string predict = "predict sky.db --run forecast --json ";
  const json report = RunJson(predict + fmt::format("--time {} --steps 3 --out steps.npy", time));
  ASSERT_EQ(report["steps"].size(), 3U);
  const std::vector<float> steps = Floats(Path("steps.npy"));
  ASSERT_EQ(steps.size(), 3 * places * dim);
  fs::copy(Path("sky.db"), Path("copy.db"), fs::copy_options::recursive);
  double rmse_before = 0;
  for (uint64_t step = 0; step < 3; step++) {
    const uint64_t first = (time + 6 * step) * places;
    EXPECT_EQ(report["steps"][step]["time"], time + 6 * (step + 1));
    std::vector<int64_t> nodes, next;
    for (uint64_t place = 0; place < places; place++) {
      nodes.push_back(static_cast<int64_t>(first + place));
      next.push_back(static_cast<int64_t>(first + place + 6 * places));
    }
    Write("nodes.npy", NpyVector(nodes));
    Write("next.npy", NpyVector(next));
    Expect0("predict copy.db --run forecast --nodes nodes.npy --out sampled.npy");
    const std::vector<float> sampled = Floats(Path("sampled.npy"));
    ASSERT_EQ(sampled.size(), places * dim);
    double squares = 0;
    for (size_t i = 0; i < sampled.size(); i++) {
      ASSERT_NEAR(steps[step * places * dim + i], sampled[i], 2e-3) << "step " << step << ", value " << i;
      squares += sampled[i] * sampled[i];
    }
    EXPECT_GT(squares, 0);
    const double rmse = report["steps"][step]["rmse"];
    EXPECT_GT(rmse, rmse_before) << "what is off is carried on";
    EXPECT_LT(rmse, report["steps"][step]["persistence_rmse"].get<double>());
    rmse_before = rmse;
    Expect0("put copy.db --ids next.npy --features sampled.npy");
  }
}

TEST_F(WeatherCliTest, WhatCannotBeIsRefusedByName) {
  const auto refused = [](const std::string& arguments, int exit_code) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refused("generate other --weather 10", 2), HasSubstr("latitudes x longitudes"));
  EXPECT_THAT(refused("generate other --weather 10x21", 2), HasSubstr("an even number"));
  EXPECT_THAT(refused("generate other --weather 10x20 --nodes 5", 2), HasSubstr("--nodes"));
  EXPECT_THAT(refused("generate other --hours 50", 2), HasSubstr("--weather"));
  EXPECT_FALSE(fs::exists(Path("other")));
  const std::string train = "train sky.db --task regress --fanout 4 --layers 1 --memory 128MiB ";
  EXPECT_THAT(refused(train + "--target feature@+100000", 1), HasSubstr("has no target"));
  for (const std::string options : {"--parts 4", "--parts 0"}) {
    EXPECT_THAT(refused("partition build sky.db --method random " + options, 1),
                HasSubstr("the same at each of"));
  }
  EXPECT_FALSE(fs::exists(fs::path(Path("sky.db")) / "partitions"));
  EXPECT_THAT(refused("sql sky.db SELECT/**/count(*)/**/FROM/**/edges", 1), HasSubstr("the same at each of"));
  EXPECT_THAT(refused("export sky.db out", 1), HasSubstr("the same at each of"));
  EXPECT_THAT(refused(train + "--model gcn --gcn-norm both --target feature@+6", 1),
              HasSubstr("the same at each of"));
  Summary("sky.db --model sage --layers 1 --fanout 4 --epochs 1 --road live --run kept");
  const std::string steps = "predict sky.db --run kept --out steps.npy --steps ";
  const uint64_t times = made_["times"];
  EXPECT_THAT(refused(steps + fmt::format("2 --time {}", times - 6), 2), HasSubstr("take at most 1"));
  EXPECT_THAT(refused(steps + fmt::format("1 --time {}", times), 2), HasSubstr("--time"));
  EXPECT_THAT(refused(steps + "1 --split test", 2), HasSubstr("--split"));
  // All that a step holds is reserved: what is refused names it, until there is enough.
  std::string all;
  Outcome outcome;
  for (int kib = 1920; outcome.exit_code != 0 || kib == 1920; kib += 512) {
    ASSERT_LE(kib, 16384) << all;
    outcome = Run(steps + fmt::format("1 --memory {}KiB", kib));
    EXPECT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 1) << outcome.err;
    all += outcome.err;
  }
  EXPECT_THAT(all, HasSubstr("cannot hold a block of all places"));
  EXPECT_FALSE(fs::exists(Path("steps.npy.writing")));
}

}  // namespace
}  // namespace quarry
