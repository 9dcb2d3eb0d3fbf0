#include "quarry/database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/process.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::RunPass;
using testing_util::SmallOptions;
using testing_util::TinyDatabase;

TEST(DatabaseTest, OpensWithEverythingThatTrainingNeeds) {
  const TinyDatabase directory({.nodes = 400});
  auto database = Database::Open(directory.path(), {.memory_bytes = 128 * kMiB});
  ASSERT_OK(database);
  EXPECT_EQ((*database)->budget().limit_bytes(), 128 * kMiB);
  EXPECT_EQ((*database)->manifest()->node_count, 400u);
  EXPECT_EQ(&(*database)->store().backend(), &(*database)->backend());
  auto road = (*database)->OpenLiveRoad(SmallOptions());
  ASSERT_OK(road);
  EXPECT_EQ((*database)->budget().used_bytes(), (*road)->plan().total_bytes());
  EXPECT_EQ(RunPass(**road, {.seeds = directory.graph().SplitNodes(Split::kTrain)}).size(), 240u / 32 + 1);
}

TEST(DatabaseTest, TakesFourFifthsOfTheMachineWhenNoBudgetIsGiven) {
  const TinyDatabase directory({.nodes = 50});
  auto database = Database::Open(directory.path());
  ASSERT_OK(database);
  EXPECT_EQ((*database)->budget().limit_bytes(), MemoryLimitBytes() / 10 * 8);
}

TEST(DatabaseTest, UsesTheBackendThatItIsGiven) {
  const TinyDatabase directory({.nodes = 50});
  auto database = Database::Open(directory.path(), {.backend = MakeThreadBackend(2)});
  ASSERT_OK(database);
  EXPECT_EQ((*database)->backend().name(), "threads");
  auto road = (*database)->OpenLiveRoad(SmallOptions());
  ASSERT_OK(road);
  EXPECT_FALSE(RunPass(**road, {.seeds = {1, 2, 3}}).empty());
}

TEST(DatabaseTest, AnswersSql) {
  const TinyDatabase directory({.nodes = 400});
  auto database = Database::Open(directory.path(), {.memory_bytes = 512 * kMiB}).value();
  const std::vector<std::byte> row = directory.graph().Row(17);
  {
    auto rows = database->Query("SELECT id, feature FROM features WHERE id IN (?1, ?2) AND feature = ?3",
                                {5, 17, row});
    ASSERT_OK(rows);
    ASSERT_TRUE(rows->Next().value());
    EXPECT_EQ(rows->Integer(0), 17);
    EXPECT_TRUE(std::ranges::equal(rows->Blob(1), row));
    EXPECT_FALSE(rows->Next().value());
  }
  EXPECT_FALSE(database->Query("UPDATE nodes SET label = 3 WHERE id = 5").ok()) << "it only reads";
  const auto writer = database->Connect({.write = true}).value();
  const auto written = writer->Query("UPDATE nodes SET label = 3 WHERE id = 5")->Next();
  EXPECT_OK(written);
  auto label = database->Query("SELECT label FROM nodes WHERE id = 5").value();
  ASSERT_TRUE(label.Next().value());
  EXPECT_EQ(label.Integer(0), 3);
}

// What is stored prices reads: a device of which requests cost nothing is read in more of them.
TEST(DatabaseTest, ReadsAreMergedAsTheStoredProfileSays) {
  const TinyDatabase directory({.nodes = 4000});
  const auto requests = [&](double random_reads_per_second) {
    auto database = Database::Open(directory.path(), {.memory_bytes = 128 * kMiB}).value();
    Manifest manifest = *database->manifest();
    manifest.device = {.random_reads_per_second = random_reads_per_second,
                       .sequential_bytes_per_second = 1e9,
                       .write_bytes_per_second = 1e9,
                       .gather_bytes_per_second = 1e9,
                       .measured_utc = "2025-01-02T03:04:05Z"};
    EXPECT_OK(database->store().UpdateManifest([&](Manifest& m) { return m = manifest, Status::Ok(); }));
    EXPECT_EQ(database->Calibrate(false).value().random_reads_per_second, random_reads_per_second)
        << "what is stored is not measured again";
    auto road = database->OpenLiveRoad(SmallOptions()).value();
    StreamStats stats;
    RunPass(*road, {.seeds = directory.graph().SplitNodes(Split::kTrain)}, &stats);
    return stats.read_requests;
  };
  EXPECT_GT(requests(1e9), 2 * requests(1));
}

TEST(DatabaseTest, IsOpenOnceAtATimeAndOnlyIfItIsOne) {
  const TinyDatabase directory({.nodes = 50});
  {
    auto first = Database::Open(directory.path());
    ASSERT_OK(first);
    EXPECT_EQ(Database::Open(directory.path()).status().code(), Code::kBusy);
  }
  EXPECT_OK(Database::Open(directory.path()));
  EXPECT_EQ(Database::Open(directory.path() + "-nothing").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace quarry
