// The embedding table on pages: the same table as the one in memory, and as it was after a restart.
#include "quarry/embedding/pooled_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include "embedding/pooled_table_util.h"
#include "embedding/row_block_util.h"
#include "quarry/base/random.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::Each;
using testing_util::PooledTable;

void ExpectSameRows(EmbeddingTable& a, EmbeddingTable& b, const std::vector<RowId>& ids) {
  RowBlock in_a{.ids = ids}, in_b{.ids = ids};
  ASSERT_OK(a.Read(in_a));
  ASSERT_OK(b.Read(in_b));
  ASSERT_EQ(in_a.timestamps, in_b.timestamps);
  ASSERT_EQ(in_a.values, in_b.values);
  ASSERT_EQ(in_a.state, in_b.state);
}

std::vector<RowId> AllIds(uint64_t row_count) {
  std::vector<RowId> ids(row_count);
  for (RowId i = 0; i < row_count; ++i) ids[i] = i;
  return ids;
}

TEST(PooledTableTest, RowsNeverStraddlePages) {
  // 8 + 4 * 50 + 4 * 50 = 408 bytes.
  ASSERT_OK_AND_ASSIGN(const auto shape, ShapePooledTable({.row_count = 101, .dim = 50}, 4096 - 24));
  EXPECT_EQ(shape.row_bytes, 408u);
  EXPECT_EQ(shape.rows_per_page, 9u);
  EXPECT_EQ(shape.page_count, 12u);
  EXPECT_THAT(ShapePooledTable({.row_count = 1, .dim = 600}, 4096 - 24), IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(ShapePooledTable({.row_count = uint64_t{1} << 40, .dim = 50}, 4096 - 24),
              IsStatus(Code::kInvalidArgument));
}

TEST(PooledTableTest, CreatingATableWritesNothingAndRowsBeginAsInMemory) {
  const EmbeddingSpec spec{.row_count = 50'000'000, .dim = 50, .init = InitKind::kNormal, .seed = 9};
  PooledTable pooled(spec, 16 * 1024);
  Rng rng(1);
  const std::vector<RowId> ids = RandomIds(rng, spec.row_count, 500);
  RowBlock block{.ids = ids};
  ASSERT_OK(pooled.table->Read(block));
  EXPECT_THAT(block.timestamps, Each(kNeverWritten));
  EXPECT_THAT(block.state, Each(0.0F));
  std::vector<float> expected(spec.dim);
  for (size_t i = 0; i < ids.size(); ++i) {
    InitRow(spec, ids[i], expected);
    ASSERT_EQ(RowValues(block, spec, i), expected) << ids[i];
  }
  EXPECT_EQ(pooled.pool->stats().pages_written, 0u);
  EXPECT_LT(std::filesystem::file_size(pooled.file_spec.path), 1'000'000u);
}

TEST(PooledTableTest, EqualsTheTableInMemoryWithFewFrames) {
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBfloat16}) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " " << ElementTypeName(type));
      Rng rng(seed);
      const EmbeddingSpec spec{.row_count = 1 + rng.Below(1000),
                               .dim = 33,
                               .element_type = type,
                               .optimizer = OptimizerKind::kAdam};
      PooledTable pooled(spec);
      const auto in_memory = MakeMemoryEmbeddingTable(spec);
      for (int step = 0; step < 30; ++step) {
        const std::vector<RowId> ids = RandomIds(rng, spec.row_count, 1 + rng.Below(100));
        if (step % 2 == 0) {
          ASSERT_OK(pooled.table->Prefetch(ids));
        }
        ExpectSameRows(*pooled.table, *in_memory, ids);
        const auto timestamp = static_cast<int64_t>(rng.Below(100));
        const RowBlock block = FilledBlock(spec, ids, timestamp, static_cast<float>(rng.Unit()));
        ASSERT_OK(pooled.table->Write(block));
        ASSERT_OK(in_memory->Write(block));
      }
      ExpectSameRows(*pooled.table, *in_memory, AllIds(spec.row_count));
    }
  }
}

TEST(PooledTableTest, ARestartFindsTheTableOfTheCheckpoint) {
  const EmbeddingSpec spec{.row_count = 1000, .dim = 20};
  PooledTable pooled(spec);
  const auto in_memory = MakeMemoryEmbeddingTable(spec);
  Rng rng(3);
  for (int64_t timestamp = 0; timestamp < 25; ++timestamp) {
    const RowBlock block =
        FilledBlock(spec, RandomIds(rng, 1000, 60), timestamp, static_cast<float>(timestamp));
    ASSERT_OK(pooled.table->Write(block));
    ASSERT_OK(in_memory->Write(block));
  }
  pooled.Checkpoint();
  ASSERT_OK(pooled.table->Write(FilledBlock(spec, AllIds(1000), 1000, -1))) << "after it";
  pooled.Restart();
  ExpectSameRows(*pooled.table, *in_memory, AllIds(1000));
}

TEST(PooledTableTest, RefusesRowsBeyondTheTable) {
  const EmbeddingSpec spec{.row_count = 10, .dim = 20};
  PooledTable pooled(spec);
  RowBlock block{.ids = {3, 10}};
  EXPECT_THAT(pooled.table->Read(block), IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(pooled.table->Prefetch(block.ids), IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(pooled.table->Write(FilledBlock(spec, {3, 10}, 0, 0)), IsStatus(Code::kInvalidArgument));
}

// Twenty pages of a row each, in sixteen frames.
TEST(PooledTableTest, NoRowIsTornAndNoWriteIsLostUnderConcurrencyAndEviction) {
  const EmbeddingSpec spec{.row_count = 20, .dim = 400, .init = InitKind::kZeros};
  PooledTable pooled(spec);
  ASSERT_EQ(pooled.shape.rows_per_page, 1u);
  std::atomic<int64_t> clock{0};
  std::mutex mutex;
  std::vector<int64_t> newest(20, kNeverWritten);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(t);
      for (int64_t now = clock++; now < 1500; now = clock++) {
        const std::vector<RowId> ids = RandomIds(rng, 20, 4);
        ASSERT_OK(pooled.table->Write(FilledBlock(spec, ids, now, static_cast<float>(now))));
        {
          const std::lock_guard lock(mutex);
          for (const RowId id : ids) newest[id] = std::max(newest[id], now);
        }
        RowBlock block{.ids = RandomIds(rng, 20, 4)};
        ASSERT_OK(pooled.table->Read(block));
        for (size_t i = 0; i < block.ids.size(); ++i) {
          const auto expected = static_cast<float>(std::max<int64_t>(0, block.timestamps[i]));
          ASSERT_TRUE(RowIsFilled(block, spec, i, expected));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  RowBlock block{.ids = AllIds(20)};
  ASSERT_OK(pooled.table->Read(block));
  EXPECT_EQ(block.timestamps, newest);
  EXPECT_GT(pooled.pool->stats().evictions, 0u);
}

}  // namespace
}  // namespace quarry
