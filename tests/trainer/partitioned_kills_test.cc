// Training by parts that is killed at any operation on files, page or checkpoint: the database is whole
// afterwards, the last checkpoint that was acknowledged stands, and a run that goes on from it ends as one
// that nothing stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "embedding/trained_tables.h"
#include "partition/partitioned_store.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/random.h"
#include "quarry/io/scratch_file.h"
#include "quarry/storage/edges.h"
#include "quarry/trainer/link_run.h"
#include "support/killing_backend.h"
#include "support/repetitions.h"
#include "support/zygote.h"
#include "trainer/grouped_graph.h"

namespace quarry {
namespace {

using testing_util::KillingBackend;
using testing_util::PartitionedStore;
using testing_util::RandomAssignment;
using testing_util::SmallStore;
using testing_util::Zygote;
using Start = LinkRunOptions::Start;

constexpr uint64_t kSeed = 31;
const int kKills = static_cast<int>(testing_util::Repetitions(100));

LinkTrainOptions Training(bool with_patience) {
  LinkTrainOptions train = with_patience ? RestlessOptions() : SmallOptions();
  train.batch_edges = 300;
  train.epochs = with_patience ? 6 : 3;
  train.valid_every = with_patience ? 1 : 0;
  return train;
}

// An open database and what a run of it needs.
struct World {
  std::unique_ptr<Store> store;
  MemoryBudget budget{kGiB};
  std::unique_ptr<StoredPartitioning> partitioning;
  LinkData data;

  Status Open(IoBackend& backend, const std::string& path) {
    QUARRY_TRY(store, Store::Open(backend, path));
    QUARRY_TRY(partitioning, StoredPartitioning::Open(*store, budget, "default"));
    QUARRY_TRY(const auto edges, EdgeList::Open(*store, budget, "graph"));
    data.node_count = SmallStore::kNodes;
    data.relation_count = SmallStore::kRelations;
    data.train.resize(edges->size());
    edges->Read(0, data.train);
    data.test.assign(data.train.begin(), data.train.begin() + 100);
    // Edges that there are not have an MRR by luck, so that the best epoch is not the last one.
    for (size_t i = 100; i < 150; i++) {
      data.valid.push_back({data.train[i].tail, data.train[i].relation, data.train[i - 50].head});
    }
    return RenumberNodes(*partitioning, budget, data);
  }

  Result<LinkTrainSummary> Train(LinkRunOptions options, bool with_patience = false) {
    options.partitioning = partitioning.get();
    options.road = {.buffer = 4, .logical = 4};
    const LinkTrainOptions train = Training(with_patience);
    QUARRY_TRY(const auto run, LinkRun::Open(*store, budget, data, train, options));
    return TrainLinks(data, train, budget, {}, *run);
  }
};

// How a child dies, by its number: at an operation on files, or in a place of the engine.
struct Death {
  uint64_t operation = 0;  // 0: at the kill point
  size_t kill_point = 0;
  uint64_t passages = 0;
  uint64_t checkpoint_every = 0;
};
Death DeathOf(uint64_t number) {
  constexpr std::string_view kPoints[] = {
      "pages: writes on the way",          "pages: page written, not in the map",
      "pages: map written, not synced",    "embeddings: pages flushed",
      "embeddings: one map written",       "embeddings: maps written, not named",
      "embeddings: named, old maps there", "training: state written, not named",
      "training: named, old state there",  "manifest: not committed",
      "manifest: committed, not known"};
  Rng rng(MixSeed(kSeed, number));
  Death death{.checkpoint_every = rng.Below(3) == 0 ? 1 + rng.Below(12) : 0};
  if (rng.Below(2) == 0) {
    death.operation = 1 + rng.Below(50);
    return death;
  }
  const std::string_view point = kPoints[rng.Below(std::size(kPoints))];
  death.kill_point = static_cast<size_t>(std::ranges::find(kKillPoints, point) - std::begin(kKillPoints));
  death.passages = point.starts_with("pages: page") ? 1 + rng.Below(80) : 1 + rng.Below(4);
  return death;
}

// In the child, which returns where it was through before it had to die.
template <bool kWithPatience>
bool TrainAndDie(const std::string& path, uint64_t number) {
  const Death death = DeathOf(number);
  const auto disk = MakeDefaultBackend();
  KillingBackend backend(*disk, death.operation);
  World world;
  if (!world.Open(backend, path).ok()) _exit(3);
  if (death.operation == 0) ArmKillPoint(death.kill_point, death.passages);
  const bool resumes = world.store->manifest()->FindTraining("link") != nullptr;
  const auto trained = world.Train(
      {.start = resumes ? Start::kResume : Start::kNew, .checkpoint_every = death.checkpoint_every},
      kWithPatience);
  if (!trained.ok()) {
    fmt::print(stderr, "{}\n", trained.status().ToString());
    _exit(4);
  }
  return true;
}

// In the child, which dies when its file of scratch rows has a name yet.
bool OpenScratchAndDie(const std::string& path, uint64_t) {
  const auto disk = MakeDefaultBackend();
  KillingBackend backend(*disk, 2);
  return OpenScratchFile(backend, path + "/embeddings/rows").ok();
}

TEST(PartitionedKillsTest, AScratchFileThatKeptItsNameIsALeftoverAndGoes) {
  const auto backend = MakeDefaultBackend();
  PartitionedStore home(*backend);
  const std::string path = home.world.path();
  ASSERT_OK(BuildPartitioning(*home.store, home.budget, {}, RandomAssignment(SmallStore::kNodes, 8, 8), {}));
  home.store.reset();
  World world;
  ASSERT_OK(world.Open(*backend, path));
  ASSERT_OK(world.Train({.name = "first"}));  // makes the folder
  const auto scratch_files = [&] {
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path + "/embeddings")) {
      files += entry.path().filename().string().starts_with("rows-") ? 1 : 0;
    }
    return files;
  };
  ASSERT_EQ(scratch_files(), 0U);
  const Zygote::Child child = Zygote::Instance().Fork(OpenScratchAndDie, path, 0);
  ASSERT_FALSE(child.done);
  const int status = Zygote::Instance().Wait(child.pid);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
  EXPECT_EQ(scratch_files(), 1U) << "it died elsewhere";
  EXPECT_THAT(testing_util::FaultsOf(*world.store), testing::IsEmpty());
  ASSERT_OK(world.Train({.name = "second"}));
  EXPECT_EQ(scratch_files(), 0U);
}

// Trains in children that die `kills_wanted` times, over and over until a training has ended, and holds what is left
// against a run that nobody killed.
void KillTraining(Zygote::Deed deed, int kills_wanted, bool with_patience) {
  const auto backend = MakeDefaultBackend();
  PartitionedStore home(*backend);
  const std::string path = home.world.path();
  ASSERT_OK(BuildPartitioning(*home.store, home.budget, {}, RandomAssignment(SmallStore::kNodes, 8, 8), {}));
  home.store.reset();
  double expected_mrr = 0;
  int64_t expected_timestamp = 0;
  {
    World world;
    ASSERT_OK(world.Open(*backend, path));
    const auto whole = world.Train({.name = "whole"}, with_patience);
    ASSERT_OK(whole);
    ASSERT_TRUE(!with_patience || whole->epochs > whole->kept_epoch) << "the best epoch was the last one";
    expected_mrr = whole->test->filtered.mrr;
    expected_timestamp = world.store->manifest()->FindTraining("whole")->timestamp;
  }
  int kills = 0, ends = 0;
  int64_t last = kNeverWritten;
  for (uint64_t number = 1; kills < kills_wanted || ends == 0; ++number) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", child " << number);
    ASSERT_LT(number, 10U * kills_wanted + 100) << "hardly any child dies, or hardly any ends";
    const Zygote::Child child = Zygote::Instance().Fork(deed, path, number);
    if (child.done) kill(child.pid, SIGKILL);
    const int status = Zygote::Instance().Wait(child.pid);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
    kills += child.done ? 0 : 1;

    World world;
    ASSERT_OK(world.Open(*backend, path));
    ASSERT_THAT(testing_util::FaultsOf(*world.store), testing::IsEmpty());
    const TrainingRecord* const record = world.store->manifest()->FindTraining("link");
    ASSERT_TRUE(record != nullptr || last == kNeverWritten) << "the checkpoint is lost";
    if (record != nullptr) {
      const EmbeddingRecord& parts = *world.store->manifest()->FindEmbedding("link-parts");
      // A training with patience ends with its best epoch.
      const bool ended =
          with_patience && parts.kept_map_file.empty() && record->timestamp == expected_timestamp;
      ASSERT_TRUE(ended || record->timestamp >= last) << "an older checkpoint is back";
      last = record->timestamp;
      ASSERT_EQ(parts.timestamp, last);
    }
    if (child.done) {
      ASSERT_EQ(last, expected_timestamp);
      const auto again = world.Train({.start = Start::kResume}, with_patience);
      ASSERT_OK(again);
      ASSERT_EQ(again->edges, 0U) << "it was at its end";
      ASSERT_EQ(again->test->filtered.mrr, expected_mrr);
      ++ends;
      ASSERT_OK(DropTraining(*world.store, "link"));
      for (const char* const table : {"link-parts", "link-relations"}) {
        ASSERT_OK(DropEmbeddings(*world.store, table));
      }
      last = kNeverWritten;
    }
  }
  EXPECT_GT(ends, kills_wanted / 30) << "runs that died often enough came to their end";
  fmt::print("{} kills, {} runs came to their end\n", kills, ends);
}

TEST(PartitionedKillsTest, TrainingMayDieAnywhere) { KillTraining(TrainAndDie<false>, kKills, false); }

TEST(PartitionedKillsTest, TrainingWithPatienceMayDieAnywhere) {
  KillTraining(TrainAndDie<true>, kKills / 4, true);
}

}  // namespace
}  // namespace quarry
