#include "quarry/database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "objects/fake_store.h"
#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/process.h"
#include "quarry/objects/push.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using testing::HasSubstr;
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

// A variable of the environment, for as long as this lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

// At an address, what is large is read in place; what came over goes with the database, and nothing can be written.
TEST(DatabaseTest, OpensWhereItIsPublished) {
  FakeStore server;
  const TemporaryFolder folder("published");
  const std::string views = folder / "views";
  const TinyDatabase directory({.nodes = 4000, .dim = 1024});
  std::vector<NodeId> seeds = directory.graph().SplitNodes(Split::kTrain);
  std::erase_if(seeds, [&](NodeId node) { return directory.graph().Label(node) < 0; });
  const auto backend = MakeDefaultBackend();
  MemoryBudget budget(kGiB);
  std::vector<std::pair<uint64_t, uint64_t>> expected;
  {
    ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(*backend, directory.path()));
    const LayoutSpec spec{.road = SmallOptions().spec.ForOtherPasses(), .threads = 2};
    ASSERT_OK(BuildLayout(*store, budget, spec, false, {}));
    ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(*store, budget, {}));
    expected = RunPass(*road, {.seeds = seeds});
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto objects,
                         ObjectStore::Open({"bucket", "db"}, server.access(), budget, {}));
    ASSERT_OK(PushDatabase(*objects, *backend, budget,
                           {.folder = directory.path(), .database_id = "id", .publication = "p"}, {}));
  }
  folder.Write("views/quarry-view-dead/LOCK", "1");  // of a process that was killed
  const Variable endpoint("AWS_ENDPOINT_URL", server.endpoint()), id("AWS_ACCESS_KEY_ID", "id"),
      secret("AWS_SECRET_ACCESS_KEY", "secret"), temporary("TMPDIR", views),
      cache("QUARRY_CACHE_DIR", folder / "cache"), size("QUARRY_CACHE_SIZE", "1GiB");
  uint64_t requests[2] = {};
  for (uint64_t& run : requests) {
    const uint64_t before = server.requests();
    ASSERT_OK_AND_ASSIGN(const auto database, Database::Open("s3://bucket/db", {.memory_bytes = 512 * kMiB}));
    EXPECT_EQ(database->budget().limit_bytes(), 384 * kMiB);  // a quarter is for reading from the store
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(views), {}), 1);
    PlannedRoadOptions options;
    options.live = SmallOptions();
    options.live->spec = options.live->spec.ForOtherPasses();
    ASSERT_OK_AND_ASSIGN(const auto road, database->OpenLayout(options));
    EXPECT_EQ(RunPass(*road, {.seeds = seeds}), expected);
    EXPECT_THAT(database->OpenLiveRoad(SmallOptions()),
                IsStatus(Code::kUnsupported, HasSubstr("80 thousand")));
    WriteBatch batch;
    batch.SetLabel(3, 1);
    EXPECT_THAT(database->store().Write(batch), IsStatus(Code::kUnsupported, HasSubstr("--thin")));
    EXPECT_THAT(database->store().UpdateManifest([](Manifest&) { return Status::Ok(); }),
                IsStatus(Code::kUnsupported));
    EXPECT_THAT(database->BuildLayout({.name = "x", .road = SmallOptions().spec.ForOtherPasses()}),
                IsStatus(Code::kUnsupported));
    run = server.requests() - before;
  }
  EXPECT_LT(requests[1], requests[0]) << "blocks that were fetched are found in the cache";
  EXPECT_TRUE(std::filesystem::is_empty(views));
  EXPECT_THAT(Database::Open("s3://bucket/db", {.memory_bytes = kMiB}), IsStatus(Code::kOutOfBudget));
  EXPECT_THAT(Database::Open("s3://bucket/none", {.memory_bytes = 512 * kMiB}),
              IsStatus(Code::kNotFound, HasSubstr("s3://bucket/none")));
  EXPECT_THAT(Database::Open("s3://bucket"), IsStatus(Code::kUsage));
  const Variable wrong("QUARRY_CACHE_SIZE", "much");
  EXPECT_THAT(Database::Open("s3://bucket/db"), IsStatus(Code::kUsage, HasSubstr("QUARRY_CACHE_SIZE")));
  EXPECT_TRUE(std::filesystem::is_empty(views));
}

}  // namespace
}  // namespace quarry
