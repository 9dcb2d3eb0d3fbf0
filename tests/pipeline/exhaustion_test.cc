// Roads, layouts, compactions and embedding pipelines under a system that has no thread for them: each goes
// on with those that there are, or is refused with a sentence; nothing hangs, and the next try succeeds. And
// threads that memory runs out in.
#include "support/thread_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <new>

#include "live_sampling.h"
#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/exhaustion.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/layout/layout.h"
#include "quarry/pipeline/embedding_pipeline.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/pipeline/superbatch_road.h"
#include "support/allocation_faults.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::OpenRoad;
using testing_util::PassOutcome;
using testing_util::RunPass;
using testing_util::SmallOptions;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;
using testing_util::TryPass;

// Against what is allocated, of seeds at few times and at as many as there are seeds.
TEST(ShuffleBytesTest, AreWhatShufflingByTimeTakes) {
  for (const uint64_t places : {1, 3, 1000}) {
    for (const uint64_t times : {2, 50, 4000}) {
      std::vector<NodeId> seeds;
      for (uint64_t node = 0; node < places * times; node += 1 + node % 3) {
        seeds.push_back(static_cast<NodeId>(node));
      }
      std::ranges::reverse(seeds);
      AllocationFaults::CountBytes();
      ShuffleSeeds(seeds, 5, 1, places);
      const uint64_t bytes = AllocationFaults::CountedBytes();
      EXPECT_LE(bytes, ShuffleBytes(seeds.size(), times)) << places << " places, " << times << " times";
      EXPECT_GT(2 * bytes, ShuffleBytes(seeds.size(), times)) << places << " places, " << times << " times";
      AllocationFaults::CountBytes();
      ShuffleSeeds(seeds, 5, 1);
      EXPECT_EQ(AllocationFaults::CountedBytes(), ShuffleBytes(seeds.size(), 1));
    }
  }
  EXPECT_EQ(SeedsBytes(1000, {.places = 10, .count = 1}), 4000U);
  EXPECT_EQ(SeedsBytes(1000, {.places = 10, .count = 200}), 2 * 4000U + 200 * 16);
}

class ThreadFaultsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { database_ = std::make_unique<TinyDatabase>(TinyGraph()); }
  static void TearDownTestSuite() { database_.reset(); }

  static LiveRoadOptions Options() {
    LiveRoadOptions options = SmallOptions();
    options.sampler_threads = 2;
    options.extractor_threads = 2;
    return options;
  }
  static LayoutSpec Spec() { return {.road = Options().spec, .threads = 3}; }
  static PassOptions Pass(const Road& road, uint64_t pass = 1) {
    return {.seeds = road.TrainNodes(), .pass = pass, .ordered = true};
  }
  // Passes of the road under the faults, and behind each of them one that must deliver `expected`.
  static uint64_t FailPasses(Road& road, const std::vector<std::pair<uint64_t, uint64_t>>& expected) {
    return FailEveryThreadStart(
        [&] {
          const PassOutcome outcome = TryPass(road, Pass(road));
          if (outcome.status.ok()) {
            EXPECT_EQ(outcome.hashes, expected);
          }
          return outcome.status;
        },
        [&] { EXPECT_EQ(RunPass(road, Pass(road)), expected); });
  }

  static std::unique_ptr<TinyDatabase> database_;
};
std::unique_ptr<TinyDatabase> ThreadFaultsTest::database_;

TEST_F(ThreadFaultsTest, ALivePassGoesOnWithAThreadOfEachStageOrIsRefused) {
  OpenRoad open(database_->path(), Options());
  ASSERT_OK(open.status);
  const auto expected = RunPass(*open.road, Pass(*open.road));
  // Alone: the releaser, the first sampler, the first extractor. All behind: those up to the first extractor.
  EXPECT_EQ(FailPasses(*open.road, expected), 3U + 4U);
}

TEST_F(ThreadFaultsTest, APlannedPassNeedsBothOfItsThreads) {
  OpenRoad open(database_->path(), Options());
  open.road.reset();
  ASSERT_OK(BuildLayout(*open.store, *open.budget, Spec(), false, {}));
  ASSERT_OK_AND_ASSIGN(auto road, PlannedRoad::Open(*open.store, *open.budget, {}));
  const auto expected = RunPass(*road, Pass(*road));
  EXPECT_EQ(FailPasses(*road, expected), 2U + 2U);
  road.reset();
  EXPECT_OK(DropLayout(*open.store, Spec().name));
}

TEST_F(ThreadFaultsTest, SuperbatchesAreBuiltByWhoeverThereIs) {
  OpenRoad open(database_->path(), Options());
  open.road.reset();
  ASSERT_OK_AND_ASSIGN(
      auto road, SuperbatchRoad::Open(*open.store, *open.budget, {.layout = Spec(), .live = Options()}));
  const auto expected = RunPass(*road, Pass(*road));
  EXPECT_GT(FailPasses(*road, expected), 0U);
  road.reset();
  EXPECT_EQ(open.budget->used_bytes(), 0U);
}

// All but the catalog's timer can be done without.
TEST_F(ThreadFaultsTest, ALayoutIsBuiltByTheCallerAlone) {
  OpenRoad open(database_->path(), Options());
  open.road.reset();
  constexpr uint64_t kStride = 3;
  FailEveryThreadStart([&] { return BuildLayout(*open.store, *open.budget, Spec(), false, {}).status(); },
                       [&] { static_cast<void>(DropLayout(*open.store, Spec().name)); }, kStride);
}

// A stage without any thread ends the run; the others are told, however far they are.
TEST_F(ThreadFaultsTest, AnEmbeddingRunWithoutAThreadOfAStageIsRefused) {
  class Task final : public EmbeddingTask {
   public:
    Status Prepare(EmbeddingItem& item) override {
      item.blocks[0].ids = {item.batch % 7, 7 + item.batch % 5};
      return Status();
    }
    Status Compute(EmbeddingItem&) override { return Status(); }
  } task;
  const uint64_t refused = FailEveryThreadStart([&] {
    const auto table = MakeMemoryEmbeddingTable({.row_count = 20, .dim = 4});
    EmbeddingTable* const tables[] = {table.get()};
    const auto pipeline = EmbeddingPipeline::Make(tables, task, {.prepare_workers = 2, .update_workers = 2});
    const Status status = pipeline->Run(0, 50);
    if (!status.ok()) {
      EXPECT_THAT(pipeline->Run(0, 1), IsStatus(Code::kCancelled));
    }
    return status;
  });
  // Alone: the first thread of each stage. All behind: those up to the first one of the last stage.
  EXPECT_EQ(refused, 2U + 3U);
}

TEST_F(ThreadFaultsTest, AnEmbeddingStageThatFindsNoMemoryEndsTheRun) {
  for (const bool computing : {false, true}) {
    class Task final : public EmbeddingTask {
     public:
      explicit Task(bool in_compute) : in_compute_(in_compute) {}
      Status Prepare(EmbeddingItem& item) override {
        item.blocks[0].ids = {item.batch};
        if (!in_compute_ && item.batch == 9) throw std::bad_alloc();
        return Status();
      }
      Status Compute(EmbeddingItem& item) override {
        if (in_compute_ && item.batch == 9) throw std::bad_alloc();
        return Status();
      }

     private:
      const bool in_compute_;
    } task(computing);
    const auto table = MakeMemoryEmbeddingTable({.row_count = 1000, .dim = 4});
    EmbeddingTable* const tables[] = {table.get()};
    const auto pipeline = EmbeddingPipeline::Make(tables, task, {});
    EXPECT_THAT(pipeline->Run(0, 1000), IsStatus(Code::kOutOfBudget)) << computing;
  }
}

// Allocations of a pass that fail one after the other, whosever they are. What a thread had begun is then
// half done, so the road may refuse to go on; what it does deliver is right, and nobody waits for ever.
class AllocationFaultsTest : public ThreadFaultsTest {
 protected:
  using Reopen = std::function<Road*()>;

  // How many of the faults came to the road's notice, in some `tries` of them spread over a pass.
  static uint64_t FailAllocations(const Reopen& reopen, uint64_t tries) {
    Road* road = reopen();
    const auto expected = RunPass(*road, Pass(*road));
    const auto run = [&] {
      return CatchExhaustion("the consumer", [&] { return Deliver(*road, expected); });
    };
    constexpr uint64_t kNever = INT64_MAX;
    AllocationFaults::Arm(kNever);
    EXPECT_OK(run());
    const uint64_t allocations = AllocationFaults::Count();
    uint64_t noticed = 0;
    for (uint64_t kth = 1; kth <= allocations; kth += std::max<uint64_t>(1, allocations / tries)) {
      SCOPED_TRACE(testing::Message() << "allocation " << kth << " of " << allocations);
      AllocationFaults::Arm(kth);
      const Status status = run();
      AllocationFaults::Disarm();
      if (!status.ok()) {
        ++noticed;
        EXPECT_THAT(status, IsStatus(Code::kOutOfBudget));
      }
      const PassOutcome after = TryPass(*road, Pass(*road));
      if (after.status.ok()) {
        EXPECT_EQ(after.hashes, expected);
      } else {
        EXPECT_THAT(std::string(after.status.message()), HasSubstr("ran out of memory in its midst"));
        road = reopen();
      }
    }
    return noticed;
  }

 private:
  static Status Deliver(Road& road, const std::vector<std::pair<uint64_t, uint64_t>>& expected) {
    const PassOutcome outcome = TryPass(road, Pass(road));
    if (outcome.status.ok()) {
      EXPECT_EQ(outcome.hashes, expected);
    }
    return outcome.status;
  }
};

TEST_F(AllocationFaultsTest, ALivePassEndsAndNobodyWaits) {
  OpenRoad open(database_->path(), Options());
  EXPECT_GT(FailAllocations(
                [&] {
                  open.Reopen(Options());
                  return open.road.get();
                },
                200),
            20U);
}

TEST_F(AllocationFaultsTest, APlannedPassEndsAndNobodyWaits) {
  OpenRoad open(database_->path(), Options());
  open.road.reset();
  ASSERT_OK(BuildLayout(*open.store, *open.budget, Spec(), false, {}));
  std::unique_ptr<PlannedRoad> road;
  EXPECT_GT(FailAllocations(
                [&] {
                  road.reset();
                  road = PlannedRoad::Open(*open.store, *open.budget, {}).value();
                  return road.get();
                },
                200),
            20U);
  road.reset();
  EXPECT_OK(DropLayout(*open.store, Spec().name));
}

}  // namespace
}  // namespace quarry
