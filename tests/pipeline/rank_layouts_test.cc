// Layouts for several trainers: together they have the batches of the layout for one, each once, and each by itself has all
// that its trainer reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "pipeline/batch_meaning.h"
#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/layout/rebuild.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/pipeline/planned_road.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"
#include "support/unsynced_backend.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::LabelledTrainNodes;
using testing_util::Meaning;
using testing_util::RunEpoch;
using testing_util::SmallOptions;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

class RankLayoutsTest : public testing::Test {
 protected:
  RankLayoutsTest() {
    auto opened = Store::Open(backend_, database_.path());
    EXPECT_OK(opened);
    store_ = std::move(opened).value();
  }
  LayoutSpec Spec() const {
    LayoutSpec spec{.road = SmallOptions().spec.ForOtherPasses(), .threads = 2};
    spec.road.cache_bytes = 200 * 512;
    return spec;
  }
  std::vector<NodeId> TrainNodes() const { return LabelledTrainNodes(database_.graph()); }
  Result<std::vector<Meaning>> Epoch(PlannedRoad& road) const { return RunEpoch(road, TrainNodes(), 1); }
  Result<std::unique_ptr<PlannedRoad>> Open(const std::string& layout) {
    return PlannedRoad::Open(*store_, budget_, {.layout = layout});
  }

  const TinyDatabase database_{TinyGraph{.nodes = 1200}};
  testing_util::UnsyncedBackend unsynced_;
  FaultBackend backend_{unsynced_};
  std::unique_ptr<Store> store_;
  MemoryBudget budget_{kGiB};
};

TEST_F(RankLayoutsTest, TogetherTheyHaveTheBatchesOfOne) {
  for (const PolicyKind policy : {PolicyKind::kBelady, PolicyKind::kStaticDegree}) {
    for (const uint64_t disk_bytes : {uint64_t{0}, 6 * kMiB}) {
      LayoutSpec spec = Spec();
      spec.policy = policy;
      spec.epochs = 2;
      ASSERT_OK(BuildLayout(*store_, budget_, spec, false, {}));
      std::vector<std::vector<Meaning>> expected(2);
      {
        ASSERT_OK_AND_ASSIGN(const auto road, Open("default"));
        for (auto& epoch : expected) {
          ASSERT_OK_AND_ASSIGN(epoch, Epoch(*road));
        }
      }
      spec.disk_bytes = disk_bytes;
      for (const uint32_t ranks : {1U, 2U, 3U, 8U}) {
        SCOPED_TRACE(testing::Message() << NameOf(policy) << ", " << ranks << " ranks, disk " << disk_bytes);
        ASSERT_OK_AND_ASSIGN(const auto records, BuildRankLayouts(*store_, budget_, spec, ranks, {}));
        ASSERT_EQ(records.size(), ranks);
        uint64_t batches = 0, disk = 0, read = 0;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          const LayoutRecord& record = records[rank];
          EXPECT_EQ(record.name, RankLayoutName("default", rank, ranks));
          EXPECT_EQ(record.share, (RankShare{.rank = rank, .ranks = ranks, .rank_partitioning = {}}));
          batches += record.batch_count;
          disk += record.total_bytes();
          read += record.plan_bytes_read;
          ASSERT_OK_AND_ASSIGN(const auto road, Open(record.name));
          for (int pass = 0; pass < 3; ++pass) {  // the cycle, and its beginning again
            ASSERT_OK_AND_ASSIGN(const std::vector<Meaning> got, Epoch(*road));
            const std::vector<Meaning>& whole = expected[pass % 2];
            ASSERT_EQ(got.size(), (whole.size() - rank + ranks - 1) / ranks);
            for (size_t i = 0; i < got.size(); ++i)
              ASSERT_EQ(got[i], whole[i * ranks + rank]) << "batch " << i;
          }
        }
        EXPECT_EQ(batches, 2 * expected[0].size());
        if (disk_bytes > 0) {
          EXPECT_LE(disk, disk_bytes);
        }
        EXPECT_LE(read, 1200 * 520U) << "the table is read once, for all";
      }
    }
  }
}

TEST_F(RankLayoutsTest, ByPartitionEachHasTheNodesOfItsParts) {
  constexpr uint32_t kParts = 4, kRanks = 2;
  Assignment assignment{.parts = kParts, .part_of = {}};
  for (uint64_t node = 0; node < 1200; ++node)
    assignment.part_of.push_back(static_cast<uint32_t>(node * 7 / 3 % kParts));
  const std::vector<uint32_t> part_of = assignment.part_of;
  ASSERT_OK(BuildPartitioning(*store_, budget_, {.name = "cut"}, assignment, {}));
  LayoutSpec spec = Spec();
  spec.share.rank_partitioning = "cut";
  ASSERT_OK(BuildRankLayouts(*store_, budget_, spec, kRanks, {}));
  std::vector<NodeId> seeds;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_OK_AND_ASSIGN(const auto road, Open(RankLayoutName("default", rank, kRanks)));
    ASSERT_OK_AND_ASSIGN(const std::vector<Meaning> got, Epoch(*road));
    for (const Meaning& batch : got) {
      for (const auto& [node, label] : batch.labels) {
        seeds.push_back(node);
        EXPECT_EQ(part_of[node] % kRanks, rank);
        EXPECT_EQ(label, database_.graph().Label(node));
      }
      for (const auto& group : batch.groups) {
        for (const auto& [node, row] : group) EXPECT_EQ(row, database_.graph().Row(node));
      }
    }
  }
  std::ranges::sort(seeds);
  EXPECT_EQ(seeds, TrainNodes());
  spec.share.rank_partitioning = "none";
  EXPECT_THAT(BuildRankLayouts(*store_, budget_, spec, kRanks, {}),
              IsStatus(Code::kNotFound, HasSubstr("none")));
}

// Passes over other splits are shared as well: live, where the road may.
TEST_F(RankLayoutsTest, OtherPassesAreSharedToo) {
  ASSERT_OK(BuildRankLayouts(*store_, budget_, Spec(), 3, {}));
  std::vector<NodeId> seeds;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    PlannedRoadOptions options{.layout = RankLayoutName("default", rank, 3)};
    options.live = SmallOptions();
    options.live->spec = options.live->spec.ForOtherPasses();
    ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(*store_, budget_, options));
    ASSERT_OK_AND_ASSIGN(const auto stream,
                         road->StartSplit(Split::kValid, {.shuffle = false, .ordered = true}));
    while (true) {
      ASSERT_OK_AND_ASSIGN(const auto batch, stream->Next());
      if (batch == nullptr) break;
      const auto own = batch->view().nodes.first(batch->view().seed_count);
      seeds.insert(seeds.end(), own.begin(), own.end());
    }
  }
  std::ranges::sort(seeds);
  EXPECT_EQ(seeds, database_.graph().SplitNodes(Split::kValid));
}

TEST_F(RankLayoutsTest, WhatCannotBeDividedIsRefused) {
  const uint64_t batches = (TrainNodes().size() + 31) / 32;
  EXPECT_THAT(BuildRankLayouts(*store_, budget_, Spec(), static_cast<uint32_t>(batches) + 1, {}),
              IsStatus(Code::kUsage, HasSubstr("fewer ranks")));
  EXPECT_OK(BuildRankLayouts(*store_, budget_, Spec(), static_cast<uint32_t>(batches), {}));
  EXPECT_THAT(BuildRankLayouts(*store_, budget_, Spec(), 0, {}), IsStatus(Code::kUsage));
  LayoutSpec spec = Spec();
  spec.cyclic = false;
  EXPECT_THAT(BuildRankLayouts(*store_, budget_, spec, 2, {}), IsStatus(Code::kUsage));
}

// What is refused while it is sampled leaves no folder; what an earlier build has sampled goes with that of the next.
TEST_F(RankLayoutsTest, ARefusedLayoutLeavesNothing) {
  const auto in_layouts = [&] {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(database_.path() + "/layouts", none))
      names.push_back(entry.path().filename().string());
    return names;
  };
  LayoutSpec spec = Spec();
  spec.road.edge_ids = true;
  spec.road.direction = Direction::kOut;
  EXPECT_THAT(BuildLayout(*store_, budget_, spec, false, {}),
              IsStatus(Code::kUnsupported, HasSubstr("has no edge ids")));
  EXPECT_THAT(in_layouts(), IsEmpty());
  EXPECT_THAT(BuildRankLayouts(*store_, budget_, spec, 2, {}),
              IsStatus(Code::kUnsupported, HasSubstr("has no edge ids")));
  EXPECT_THAT(in_layouts(), IsEmpty());
  const uint64_t batches = (TrainNodes().size() + 31) / 32;
  EXPECT_THAT(BuildRankLayouts(*store_, budget_, Spec(), static_cast<uint32_t>(batches) + 1, {}),
              IsStatus(Code::kUsage, HasSubstr("fewer ranks")));
  EXPECT_THAT(in_layouts(), IsEmpty());
  // An interrupted one leaves what the next one goes on from.
  const auto stop = [](std::string_view phase, uint64_t, uint64_t) {
    return phase == "planning" ? Status(Code::kCancelled, "stop") : Status::Ok();
  };
  EXPECT_THAT(BuildLayout(*store_, budget_, Spec(), false, stop), IsStatus(Code::kCancelled));
  EXPECT_THAT(in_layouts(), testing::ElementsAre("default.building"));
  BuildReport report;
  ASSERT_OK(BuildLayout(*store_, budget_, Spec(), /*resume=*/true, {}, &report));
  EXPECT_TRUE(report.resumed);
}

// One is rebuilt as what it is.
TEST_F(RankLayoutsTest, ARebuiltOneKeepsItsShare) {
  ASSERT_OK_AND_ASSIGN(const auto records, BuildRankLayouts(*store_, budget_, Spec(), 2, {}));
  const std::string& name = records[1].name;
  std::vector<Meaning> before;
  {
    ASSERT_OK_AND_ASSIGN(const auto road, Open(name));
    ASSERT_OK_AND_ASSIGN(before, Epoch(*road));
  }
  RebuildReport report;
  ASSERT_OK_AND_ASSIGN(const LayoutRecord again,
                       RebuildLayout(*store_, budget_, name, {.full = true, .threads = 2}, {}, &report));
  EXPECT_EQ(again.share, records[1].share);
  ASSERT_OK_AND_ASSIGN(const auto road, Open(name));
  ASSERT_OK_AND_ASSIGN(const std::vector<Meaning> after, Epoch(*road));
  EXPECT_EQ(after, before);
  EXPECT_TRUE(IsLayoutOf(*store_->manifest(), again, [&] {
    LayoutSpec spec = Spec();
    spec.share = again.share;
    return spec;
  }()));
  EXPECT_FALSE(IsLayoutOf(*store_->manifest(), again, Spec()));
}

// All are named, or none; afterwards they can be built.
TEST_F(RankLayoutsTest, AFailureNamesNoneOfThem) {
  for (const FaultKind kind :
       {FaultKind::kRename, FaultKind::kSync, FaultKind::kCreate, FaultKind::kCreateDirectory}) {
    uint64_t strikes = 1;
    for (uint64_t k = 1; strikes > 0; k += kind == FaultKind::kRename ? 1 : 2) {
      SCOPED_TRACE(fmt::format("kind {}, operation {}", static_cast<int>(kind), k));
      backend_.SetPlans({{.kind = kind, .at = k, .error = EIO}});
      const auto built = BuildRankLayouts(*store_, budget_, Spec(), 2, {});
      strikes = backend_.strikes();
      backend_.SetPlans({});
      if (strikes == 0) {
        ASSERT_OK(built);
        break;
      }
      if (!built.ok()) {
        EXPECT_THAT(store_->manifest()->layouts, IsEmpty());
      }
      for (const LayoutRecord& record : std::vector(store_->manifest()->layouts))
        ASSERT_OK(DropLayout(*store_, record.name));
    }
    ASSERT_OK(BuildRankLayouts(*store_, budget_, Spec(), 2, {}));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_OK_AND_ASSIGN(const auto road, Open(RankLayoutName("default", rank, 2)));
      ASSERT_OK(Epoch(*road));
    }
    for (const LayoutRecord& record : std::vector(store_->manifest()->layouts))
      ASSERT_OK(DropLayout(*store_, record.name));
  }
}

}  // namespace
}  // namespace quarry
