// What training by parts reads and writes, counted at the disk: swaps times parts, and buckets, to the page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "partition/partitioned_store.h"
#include "quarry/base/random.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/pipeline/partitioned_road.h"
#include "support/counting_backend.h"

namespace quarry {
namespace {

using testing_util::PartitionedStore;
using testing_util::SmallStore;

// Edges of parts that hold the vectors of 600 nodes, 100 kB each, in pages of 1 MiB.
class PartitionedBytesTest : public testing::Test {
 protected:
  void Cut(uint32_t parts, uint64_t seed) {
    Assignment assignment{.parts = parts, .part_of = {}};
    Rng rng(seed);
    for (uint64_t node = 0; node < SmallStore::kNodes; ++node) {
      assignment.part_of.push_back(static_cast<uint32_t>(rng.Below(parts)));
    }
    ASSERT_OK(BuildPartitioning(*world_.store, budget_, {}, assignment, {}));
    partitioning_.reset();
    OpenParts();
    const EmbeddingSpec rows{.row_count = SmallStore::kNodes, .dim = 1000, .seed = seed};
    auto layout = LayOutParts(rows, partitioning_->directory().part_starts);
    ASSERT_OK(layout);
    layout_ = *std::move(layout);
    if (world_.store->manifest()->FindEmbedding("x") != nullptr) {
      ASSERT_OK(DropEmbeddings(*world_.store, "x"));
    }
    ASSERT_OK(CreateEmbeddings(*world_.store, "x", layout_.file_spec(), layout_.page_bytes));
  }
  void OpenParts() {
    auto opened = StoredPartitioning::Open(*world_.store, budget_, "default");
    ASSERT_OK(opened);
    partitioning_ = *std::move(opened);
  }
  uint64_t PagesOf(uint32_t part) const { return CeilDiv(layout_.part_rows(part), layout_.rows_per_page); }

  // An epoch in which every page of every part that is held is written to, and the checkpoint behind it.
  void TrainEpoch(const PartitionedRoadOptions& options, uint64_t seed, uint32_t epoch) {
    const uint32_t frames = RoadFrames(partitioning_->directory(), options);
    auto table = StoredEmbeddings::OpenParts(*world_.store, budget_, "x", layout_, frames);
    ASSERT_OK(table);
    PartedTable& parts = *(*table)->parts();
    const auto road = PartitionedRoad::Make(*partitioning_, counted_, budget_, &parts, options, seed, 500);
    ASSERT_OK(road);
    ASSERT_OK((*road)->StartEpoch(epoch));
    int64_t timestamp = int64_t{epoch} * 1000;
    for (uint64_t batch = 0; batch < (*road)->batch_count();) {
      ASSERT_OK((*road)->Enter(batch));
      const EdgeStep& step = (*road)->step();
      RowBlock block;
      for (const uint32_t part : step.parts()) {
        for (uint64_t row = 0; row < layout_.part_rows(part); row += layout_.rows_per_page) {
          block.ids.push_back(layout_.part_starts[part] + row);
        }
      }
      block.Resize(layout_.rows);
      std::ranges::fill(block.timestamps, ++timestamp);
      ASSERT_OK(parts.Write(block));
      batch += step.batch_count();
    }
    ASSERT_OK((*table)->Checkpoint(timestamp));
    EXPECT_EQ((*road)->stats().bytes_read, counted_.Of("parts.qpp").read - buckets_read_);
  }

  const std::unique_ptr<IoBackend> disk_ = MakeDefaultBackend();
  CountingBackend counted_{*disk_};
  PartitionedStore world_{counted_};
  MemoryBudget budget_{512 * kMiB};
  std::unique_ptr<StoredPartitioning> partitioning_;
  PartLayout layout_;
  uint64_t buckets_read_ = 0;
};

TEST_F(PartitionedBytesTest, AnEpochMovesWhatItsPlanSaysToThePage) {
  int counted = 0;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    Rng rng(MixSeed(41, seed));
    const auto group = static_cast<uint32_t>(1 + rng.Below(2));
    auto logical = static_cast<uint32_t>(3 + rng.Below(4));
    PartitionedRoadOptions options{.order = static_cast<PartitionOrder>(rng.Below(3)),
                                   .prefetch = rng.Below(3) > 0};
    if (options.order == PartitionOrder::kEuler) logical |= 1;
    const uint32_t parts = group * logical;
    const bool is_beta = options.order == PartitionOrder::kBeta;
    options.logical = is_beta ? parts : logical;
    options.buffer = options.order == PartitionOrder::kEuler ? 2 * group
                     : is_beta                               ? static_cast<uint32_t>(2 + rng.Below(parts - 1))
                               : group * static_cast<uint32_t>(2 + rng.Below(logical - 1));
    SCOPED_TRACE(fmt::format("seed {}: {}, {} parts, {} held, {} logical, prefetch {}", seed,
                             PartitionOrderName(options.order), parts, options.buffer, options.logical,
                             options.prefetch));
    ASSERT_NO_FATAL_FAILURE(Cut(parts, seed));
    const PartitionDirectory& directory = partitioning_->directory();
    const SwapPlan plan = PlanSwaps({.order = options.order,
                                     .parts = parts,
                                     .buffer = options.buffer,
                                     .logical = options.logical,
                                     .seed = MixSeed(seed, 11, 2)})
                              .value();
    // Vectors of steps without edges are not brought in: this test is of plans without such steps.
    const bool all_used =
        std::ranges::none_of(plan.steps(), [](const SwapStep& step) { return step.buckets.empty(); });
    if (!all_used) continue;
    ++counted;
    buckets_read_ = counted_.Of("parts.qpp").read;
    ASSERT_NO_FATAL_FAILURE(TrainEpoch(options, seed, 1));  // from here on every page is in the file
    buckets_read_ = counted_.Of("parts.qpp").read;
    const CountingBackend::Bytes before = counted_.Of("x-1.qet");
    ASSERT_NO_FATAL_FAILURE(TrainEpoch(options, seed, 2));
    const CountingBackend::Bytes after = counted_.Of("x-1.qet");

    const SwapCost cost = CostOf(plan, std::vector<uint64_t>(parts), directory.BucketBytes());
    EXPECT_EQ(counted_.Of("parts.qpp").read - buckets_read_, cost.bytes_read);
    // A part is read when it comes and written when it goes, once each: but for one that is back before the frames of
    // the step and of the next are used anew.
    uint64_t expected = 0;
    std::set<uint32_t> kept;
    for (size_t i = 0; i < plan.steps().size(); ++i) {
      std::set<uint32_t> now(plan.steps()[i].parts.begin(), plan.steps()[i].parts.end());
      if (options.prefetch && i + 1 < plan.steps().size()) {
        now.insert(plan.steps()[i + 1].parts.begin(), plan.steps()[i + 1].parts.end());
      }
      for (const uint32_t part : now)
        expected += kept.contains(part) ? 0 : PagesOf(part) * layout_.page_bytes;
      kept = std::move(now);
    }
    EXPECT_EQ(after.read - before.read, expected);
    EXPECT_EQ(after.written - before.written, expected);
    const std::vector<uint64_t> page_bytes = [&] {
      std::vector<uint64_t> bytes;
      for (uint32_t part = 0; part < parts; ++part) bytes.push_back(PagesOf(part) * layout_.page_bytes);
      return bytes;
    }();
    const SwapCost rows = CostOf(plan, page_bytes, std::vector<uint64_t>(size_t{parts} * parts));
    EXPECT_LE(expected, rows.bytes_read);
    if (!options.prefetch) {
      EXPECT_EQ(expected, rows.bytes_read);
    }
  }
  EXPECT_GT(counted, 8);
}

}  // namespace
}  // namespace quarry
