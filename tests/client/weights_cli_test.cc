// The weights of runs: written by `quarry export --run`, read by others, and begun with by `quarry train --from`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli_database_test.h"
#include "support/file_text.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class WeightsCliTest : public CliDatabaseTest {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase("weights_cli_test",
                 "--nodes 2k --degree 8 --dim 16 --classes 4 --train-share 20% --valid-share 10% "
                 "--test-share 10% --seed 7");
  }

  static json Train(const std::string& options, const std::string& where = "db") {
    const Outcome outcome = Run("train " + where + kSettings + options);
    EXPECT_EQ(outcome.exit_code, 0) << options << "\n" << outcome.err;
    const std::vector<std::string> lines = Lines(outcome.out);
    return outcome.exit_code != 0 || lines.empty() ? json()
                                                   : json::parse(lines.back()).value("summary", json());
  }
  static std::string Refused(const std::string& options, int exit_code) {
    const Outcome outcome = Run("train db" + std::string(kSettings) + options);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return outcome.err;
  }

  // A learning rate at which the weights stay what they are, to the last bit.
  static constexpr const char* kStays = " --epochs 1 --lr 1e-30 ";
  static constexpr const char* kSettings =
      " --fanout 5,5 --hidden 16 --batch-size 128 --seed 3 --ordered --torch-threads 1 --json --overwrite "
      "--memory 256MiB --road live ";
};

TEST_F(WeightsCliTest, ARunAndItsFileBeginAnother) {
  const json first = Train("--epochs 3 --lr 0.01 --run first");
  EXPECT_EQ(Train(kStays + std::string("--run by-run --from first"))["test_accuracy"],
            first["test_accuracy"]);
  const json exported = RunJson("export db first.safetensors --run first --json");
  EXPECT_EQ(exported["tensors"], 4);
  EXPECT_EQ(exported["bytes"], fs::file_size(Path("first.safetensors")));
  EXPECT_EQ(Train(kStays + std::string("--run by-file --from first.safetensors"))["test_accuracy"],
            first["test_accuracy"]);
  // Without a run of its own; and at a server, alone and as one of two.
  EXPECT_EQ(Train(kStays + std::string("--from ./first.safetensors"))["test_accuracy"],
            first["test_accuracy"]);
  // What was begun with is exported again: the same bits.
  RunJson("export db again.safetensors --run by-file --json");
  const auto data = [](const char* name) {
    const std::string bytes = testing_util::FileText(Path(name));
    return bytes.substr(bytes.size() - (32 * 16 + 16 + 32 * 4 + 4) * sizeof(float));
  };
  EXPECT_EQ(data("first.safetensors"), data("again.safetensors"));

  const Process server("serve db --socket run/socket --memory 512MiB", root_);
  ASSERT_TRUE(server.WaitUntil([] { return fs::exists(root_ / "run/socket"); }));
  const std::string address = "unix:run/socket";
  const std::string remote =
      "train " + address +
      " --fanout 5,5 --hidden 16 --batch-size 128 --seed 3 --ordered --torch-threads 1 --json --overwrite " +
      kStays;
  for (const char* const from : {"first", "first.safetensors"}) {
    for (const char* const workers : {"", " --workers 2"}) {
      const Outcome outcome = Run(remote + "--run there --from " + from + workers);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_EQ(json::parse(Lines(outcome.out).back())["summary"]["test_accuracy"], first["test_accuracy"])
          << from << workers;
    }
  }
  EXPECT_EQ(RunJson("export " + address + " there.safetensors --run first --json")["tensors"], 4);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait().exit_code, 0);
  EXPECT_EQ(testing_util::FileText(Path("there.safetensors")),
            testing_util::FileText(Path("first.safetensors")));
}

TEST_F(WeightsCliTest, ARunGoesOnWithTheSameBeginningAlone) {
  Train("--epochs 1 --lr 0.01 --run base");
  Train("--epochs 2 --lr 0.01 --checkpoint-every 1 --run whole --from base");
  Train("--epochs 1 --lr 0.01 --checkpoint-every 1 --run parts --from base");
  const std::string resume =
      "train db --fanout 5,5 --hidden 16 --batch-size 128 --seed 3 --ordered --torch-threads 1 --json "
      "--memory 256MiB --road live --lr 0.01 --epochs 2 --checkpoint-every 1 --resume --run parts ";
  EXPECT_THAT(Run(resume).err, HasSubstr("--from is not set, but was base"));
  EXPECT_THAT(Run(resume + "--from whole").err, HasSubstr("--from is whole, but was base"));
  ASSERT_EQ(Run(resume + "--from base").exit_code, 0);
  RunJson("export db whole.safetensors --run whole --json");
  RunJson("export db parts.safetensors --run parts --json");
  const std::string whole = testing_util::FileText(Path("whole.safetensors")),
                    parts = testing_util::FileText(Path("parts.safetensors"));
  EXPECT_EQ(whole.substr(whole.size() - 2000), parts.substr(parts.size() - 2000));
}

TEST_F(WeightsCliTest, RefusesOtherShapesAndWhatIsNotThere) {
  Train("--epochs 1 --run narrow");
  RunJson("export db narrow.safetensors --run narrow --json");
  for (const char* const from : {"narrow", "narrow.safetensors"}) {
    const std::string begin = std::string(" --epochs 1 --from ") + from;
    EXPECT_THAT(
        Run("train db --fanout 5,5 --hidden 24 --batch-size 128 --memory 256MiB --road live" + begin).err,
        HasSubstr("layers.0.weight is [32, 16], and of this model [32, 24]"));
    EXPECT_THAT(Refused(begin + " --model gcn", 1), HasSubstr("and of this model [16, 16]"));
    EXPECT_THAT(Refused(begin + " --fanout 5,5,5", 1), HasSubstr("layers.1.weight is [32, 4]"));
    EXPECT_THAT(Refused(begin + " --model gat", 1), HasSubstr("\"" + std::string(from) + "\""));
  }
  EXPECT_THAT(Refused("--from absent", 1), HasSubstr("absent"));
  EXPECT_THAT(Refused("--from absent.safetensors", 1), HasSubstr("absent.safetensors"));
  EXPECT_THAT(Refused("--from weights.npz", 1), HasSubstr("weights are read from .safetensors"));
  EXPECT_THAT(Run("export db narrow.safetensors --run narrow").err, HasSubstr("is there already"));
  EXPECT_THAT(Run("export db narrow.bin --run narrow").err, HasSubstr("weights are written as .safetensors"));
  EXPECT_THAT(Run("export db other.safetensors --run absent").err, HasSubstr("absent"));
  EXPECT_EQ(Run("export db other.safetensors --run narrow --what features").exit_code, 2);
  EXPECT_FALSE(fs::exists(Path("other.safetensors")));
  EXPECT_FALSE(fs::exists(Path("other.safetensors.writing")));
}

// By what docs/cli.md says of the tensors, with NumPy alone.
TEST_F(WeightsCliTest, NumPyAppliesThemAsTheTrainerDoes) {
  RunJson("export db arrays --json");
  const char* const chosen = std::getenv("QUARRY_PYTHON");
  for (const std::string model : {"--model sage", "--model gcn", "--model gcn --gcn-norm both"}) {
    const Outcome trained = Run(
        "train db --layers 1 --fanout 1000 --epochs 10 --lr 0.05 --dropout 0 --overwrite --run one " + model);
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    RunJson("predict db --run one --what scores --out scores.npy --json");
    fs::remove(Path("one.safetensors"));
    RunJson("export db one.safetensors --run one --json");
    const std::string command =
        fmt::format("cd {} && {} {} one.safetensors arrays scores.npy", root_.string(),
                    chosen != nullptr ? chosen : "python3", QUARRY_READ_WEIGHTS);
    const int status = std::system(command.c_str());
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no NumPy";
    EXPECT_EQ(status, 0) << model;
  }
}

}  // namespace
}  // namespace quarry
