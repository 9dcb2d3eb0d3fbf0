// A dry run says what would be done, and changes no byte: every road, with every option that says something of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli_database_test.h"
#include "support/file_text.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class DryRunTest : public CliDatabaseTest {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase("train_dry_run_test", "--nodes 3k --degree 6 --dim 8 --classes 3 --train-share 20%");
    Expect0("layout build db there --fanout 3,3 --batch-size 100");
  }

  // All that lies in the database's folder, but for the lock, which says who has it open.
  static std::map<std::string, std::pair<fs::file_time_type, std::string>> Everything() {
    std::map<std::string, std::pair<fs::file_time_type, std::string>> files;
    for (const auto& entry : fs::recursive_directory_iterator(root_ / "db")) {
      if (entry.path().filename() == "LOCK") continue;
      files[entry.path()] = {entry.last_write_time(),
                             entry.is_regular_file() ? testing_util::FileText(entry.path()) : ""};
    }
    return files;
  }
};

TEST_F(DryRunTest, ChangesNoByteWhateverItIsAskedOf) {
  const std::vector<std::string> roads = {"",
                                          "--road live",
                                          "--road planned",
                                          "--plan",
                                          "--road fresh",
                                          "--plan --resample every-epoch",
                                          "--layout there",
                                          "--layout there --plan",
                                          "--layout absent --plan",
                                          "--layout absent --plan --cache 20% --disk 100x",
                                          "--layout there --plan --policy fifo",
                                          "--layout there --plan --resample every-epoch"};
  const std::vector<std::string> options = {"", "--json --run first --checkpoint-every 1"};
  const auto before = Everything();
  for (const std::string& road : roads) {
    for (const std::string& option : options) {
      const std::string line =
          "train db --fanout 3,3 --batch-size 100 --memory 256MiB --epochs 2 --dry-run " + road + " " +
          option;
      SCOPED_TRACE(line);
      const Outcome outcome = Run(line);
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_FALSE(outcome.out.empty());
      EXPECT_TRUE(Everything() == before) << "the database was changed";
    }
  }
}

// The layout would be built with a cache that is given, and the least memory is said of that.
TEST_F(DryRunTest, ALayoutThatIsNotThereIsSpokenOfAsThatOfAPlan) {
  const std::string train = "train db --fanout 3,3 --batch-size 100 --memory 256MiB --dry-run --plan ";
  const Outcome absent = Run(train + "--layout absent");
  EXPECT_EQ(absent.exit_code, 0) << absent.err;
  EXPECT_THAT(absent.out, HasSubstr("road: planned, packed, belady"));
  EXPECT_THAT(absent.out, HasSubstr("least memory: --memory "));
  const Outcome there = Run(train + "--layout there");
  EXPECT_THAT(there.out, Not(HasSubstr("least memory")));
}

class SuperbatchTest : public DryRunTest {};

// The superbatches of an epoch are its batches: the same losses, but for the order in which floats are added, however it is
// cut; and a run goes on with those that it began with.
TEST_F(SuperbatchTest, LossesDoNotDependOnSuperbatches) {
  const std::string train =
      "train db --fanout 3,3 --batch-size 100 --memory 256MiB --ordered --seed 3 --hidden 8 --dropout 0 "
      "--torch-threads 1 --json --cache 10% ";
  const auto losses = [&](const std::string& options) {
    const Outcome outcome = Run(train + options);
    EXPECT_EQ(outcome.exit_code, 0) << options << outcome.err;
    std::vector<double> found;
    for (const std::string& line : Lines(outcome.out)) {
      const auto object = nlohmann::json::parse(line);
      if (object.contains("loss")) found.push_back(object["loss"]);
    }
    return found;
  };
  const std::vector<double> whole = losses("--epochs 2 --road fresh --superbatch 100");
  ASSERT_EQ(whole.size(), 2U);
  for (const char* batches : {"1", "2", "4"}) {
    const std::vector<double> cut = losses(std::string("--epochs 2 --road fresh --superbatch ") + batches);
    EXPECT_THAT(cut, testing::Pointwise(testing::DoubleNear(1e-4), whole)) << batches;
  }
  const std::string run = "--checkpoint-every 1 --road fresh --superbatch 2 --run cut ";
  const std::vector<double> first = losses(run + "--epochs 1");
  const std::vector<double> second = losses("--checkpoint-every 1 --run cut --resume --epochs 2");
  ASSERT_EQ(second.size(), 1U);
  const std::vector<double> at_once = losses("--epochs 2 --road fresh --superbatch 2");
  ASSERT_EQ(at_once.size(), 2U);
  EXPECT_EQ(second[0], at_once[1]);
  EXPECT_THAT(Run(train + "--checkpoint-every 1 --run cut --resume --epochs 3 --superbatch 3").err,
              HasSubstr("--superbatch"));
  EXPECT_EQ(Run("train db --superbatch none").exit_code, 2);
}

// The pass has 6 batches. Superbatches of as many, or of more, are epochs, and a run goes on whichever of these it is told.
TEST_F(SuperbatchTest, ARunOfWholeEpochsGoesOn) {
  const std::string train =
      "train db --fanout 3,3 --batch-size 100 --memory 256MiB --hidden 4 --cache 10% --checkpoint-every 1 ";
  for (const char* road : {"--road fresh", "--layout whole --plan --resample every-epoch"}) {
    for (const char* size : {"6", "100"}) {
      const std::string run = std::string(road) + " --superbatch " + size;
      SCOPED_TRACE(run);
      const Outcome begun = Run(train + "--overwrite --run whole --epochs 1 " + run);
      ASSERT_EQ(begun.exit_code, 0) << begun.err;
      const Outcome gone_on = Run(train + "--resume --run whole --epochs 2 " + run);
      EXPECT_EQ(gone_on.exit_code, 0) << gone_on.err;
      const Outcome other = Run(train + "--resume --run whole --epochs 3 " + road + " --superbatch 2");
      EXPECT_NE(other.exit_code, 0);
      EXPECT_THAT(other.err, HasSubstr("--superbatch"));
    }
  }
}

}  // namespace
}  // namespace quarry
