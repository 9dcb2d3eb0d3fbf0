// A table whose parts come and go holds what a table in memory does, whatever is held when, over checkpoints
// and restarts.
#include "quarry/embedding/parted_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "embedding/trained_tables.h"
#include "quarry/base/random.h"
#include "quarry/embedding/embedding_store.h"
#include "support/fault_backend.h"
#include "support/repetitions.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint32_t kParts = 7;

// Rows of 240 kB, so that a part has several pages of 1 MiB; the parts are uneven, and one is empty.
const EmbeddingSpec kSpec{.row_count = 49, .dim = 30'000, .seed = 3};
const std::vector<uint64_t> kStarts = {0, 10, 11, 11, 20, 33, 40, 49};

class PartedTableTest : public testing::Test {
 protected:
  PartedTableTest() : folder_(testing_util::Medium::kMemory) {
    EXPECT_OK(testing_util::CreateEmptyDatabase(backend_, path()));
    auto layout = LayOutParts(kSpec, kStarts);
    EXPECT_OK(layout);
    layout_ = *std::move(layout);
    OpenStore();
    EXPECT_OK(CreateEmbeddings(*store_, "x", layout_.file_spec(), layout_.page_bytes));
  }
  std::string path() const { return folder_.path() + "/db"; }
  void OpenStore() {
    table_.reset();
    store_.reset();
    auto store = Store::Open(backend_, path());
    ASSERT_OK(store);
    store_ = *std::move(store);
  }
  void Open(uint32_t frames) {
    OpenStore();
    auto table = StoredEmbeddings::OpenParts(*store_, budget_, "x", layout_, frames);
    ASSERT_OK(table);
    table_ = *std::move(table);
  }
  PartedTable& parts() { return *table_->parts(); }

  std::vector<uint32_t> DrawParts(Rng& rng, size_t count) {
    std::vector<uint32_t> parts(kParts);
    std::iota(parts.begin(), parts.end(), 0U);
    for (size_t i = parts.size(); i > 1; --i) std::swap(parts[i - 1], parts[rng.Below(i)]);
    parts.resize(count);
    return parts;
  }
  std::vector<RowId> DrawRows(Rng& rng, std::span<const uint32_t> held) {
    std::vector<RowId> rows;
    for (const uint32_t part : held) {
      for (RowId row = kStarts[part]; row < kStarts[part + 1]; ++row) {
        if (rng.Below(4) == 0) rows.push_back(row);
      }
    }
    std::ranges::sort(rows);
    return rows;
  }
  // Rows of the block, as they are after a write at the timestamp.
  static void Fill(RowBlock& block, int64_t timestamp) {
    block.Resize(kSpec);
    for (size_t i = 0; i < block.ids.size(); ++i) {
      const auto value = static_cast<float>(block.ids[i] * 1000) + static_cast<float>(timestamp);
      std::fill_n(&block.values[i * kSpec.dim], kSpec.dim, value);
      std::fill_n(&block.state[i * kSpec.dim], kSpec.dim, -value);
      block.timestamps[i] = timestamp;
    }
  }
  using Writes = std::map<RowId, int64_t>;
  void ExpectRows(std::span<const RowId> rows, const Writes& writes) {
    RowBlock block{.ids = {rows.begin(), rows.end()}};
    ASSERT_OK(parts().Read(block));
    std::vector<float> init(kSpec.dim);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto write = writes.find(rows[i]);
      const std::span<const float> values(&block.values[i * kSpec.dim], kSpec.dim);
      ASSERT_EQ(block.timestamps[i], write == writes.end() ? kNeverWritten : write->second);
      if (write != writes.end()) {
        const auto value = static_cast<float>(rows[i] * 1000) + static_cast<float>(write->second);
        ASSERT_EQ(values.front(), value);
        ASSERT_EQ(values.back(), value);
        ASSERT_EQ(block.state[i * kSpec.dim], -value);
        continue;
      }
      const uint32_t part = layout_.PartOf(rows[i]);
      InitRow(layout_.file_spec(), part * layout_.stride + rows[i] - kStarts[part], init);
      ASSERT_TRUE(std::ranges::equal(values, init));
    }
  }
  void ExpectAll(const Writes& writes) {
    std::vector<RowId> all(kSpec.row_count);
    std::iota(all.begin(), all.end(), RowId{0});
    ASSERT_NO_FATAL_FAILURE(ExpectRows(all, writes));
  }

  const std::unique_ptr<IoBackend> disk_ = MakeDefaultBackend();
  FaultBackend backend_{*disk_};
  testing_util::ScratchFolder folder_;
  MemoryBudget budget_{256 * kMiB};
  PartLayout layout_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<StoredEmbeddings> table_;
};

TEST_F(PartedTableTest, PartsBeginAtPagesOfTheirOwn) {
  EXPECT_EQ(layout_.page_bytes, kMiB);
  EXPECT_EQ(layout_.rows_per_page, 4u);
  EXPECT_EQ(layout_.stride, 16u);
  EXPECT_EQ(layout_.pages_per_part(), 4u);
  EXPECT_EQ(layout_.file_spec().row_count, kParts * 16u);
  EXPECT_EQ(layout_.PartOf(10), 1u);
  EXPECT_EQ(layout_.PartOf(11), 3u) << "part 2 is empty";
  EXPECT_EQ(layout_.PartOf(48), 6u);
}

TEST_F(PartedTableTest, HoldsWhatWasWrittenWhateverIsHeldWhen) {
  for (const uint32_t frames : {2U, 4U, kParts}) {
    Rng rng(MixSeed(4, frames));
    Writes writes, saved;
    int64_t timestamp = 0;
    if (store_->manifest()->FindEmbedding("x") != nullptr) {
      table_.reset();
      ASSERT_OK(DropEmbeddings(*store_, "x"));
    }
    ASSERT_OK(CreateEmbeddings(*store_, "x", layout_.file_spec(), layout_.page_bytes));
    ASSERT_NO_FATAL_FAILURE(Open(frames));
    const uint64_t used = budget_.used_bytes();
    const uint64_t turns = testing_util::Repetitions(60);
    for (uint64_t turn = 0; turn < turns; ++turn) {
      SCOPED_TRACE(fmt::format("seed 4, {} frames, turn {}", frames, turn));
      const std::vector<uint32_t> held = DrawParts(rng, 1 + rng.Below(frames));
      ASSERT_OK(parts().Hold(held, DrawParts(rng, rng.Below(kParts))));
      for (int batch = 0; batch < 3; ++batch) {
        RowBlock block{.ids = DrawRows(rng, held)};
        ASSERT_NO_FATAL_FAILURE(ExpectRows(block.ids, writes));
        Fill(block, ++timestamp);
        ASSERT_OK(parts().Write(block));
        for (const RowId row : block.ids) writes[row] = timestamp;
      }
      const uint64_t what = rng.Below(8);
      if (what == 0) {  // those that are not held, too
        ASSERT_NO_FATAL_FAILURE(ExpectAll(writes));
      }
      if (what == 1 || what == 2) {
        ASSERT_OK(table_->Checkpoint(timestamp));
        saved = writes;
      }
      if (what == 2 || what == 3) {  // what is behind the checkpoint is lost
        ASSERT_NO_FATAL_FAILURE(Open(frames));
        writes = saved;
        timestamp = std::max<int64_t>(table_->timestamp(), 0);
      }
      ASSERT_EQ(budget_.used_bytes(), used);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectAll(writes));
    ASSERT_OK(table_->Checkpoint(timestamp));
    table_.reset();
    EXPECT_EQ(budget_.used_bytes(), 0u);
    EXPECT_THAT(testing_util::FaultsOf(*store_), IsEmpty());
  }
}

TEST_F(PartedTableTest, OnlyPagesThatDifferAreWritten) {
  Open(2);
  const uint32_t first[] = {0, 4}, second[] = {5, 6};
  ASSERT_OK(parts().Hold(first, {}));
  RowBlock block{.ids = {0, 1, 9, 20}};  // two pages of part 0, one of part 4
  Fill(block, 1);
  ASSERT_OK(parts().Write(block));
  ASSERT_OK(parts().Hold(second, first));
  EXPECT_EQ(parts().stats().pages_written, 3u);
  ASSERT_OK(parts().Hold(first, {}));
  EXPECT_EQ(parts().stats().pages_written, 3u);
  EXPECT_EQ(parts().stats().pages_read, 3u) << "others have never been written";
}

// Each read and write in turn fails: an error comes back, nothing more is written, and a restart finds the last
// checkpoint.
TEST_F(PartedTableTest, AFaultLeavesTheLastCheckpoint) {
  const std::vector<std::vector<uint32_t>> holds = {{0, 4}, {5, 6}, {0, 5}, {3, 4}};
  Writes saved;
  int64_t timestamp = 0;
  const auto train = [&](Writes& writes) -> Status {
    ++timestamp;
    for (size_t i = 0; i < holds.size(); ++i) {
      QUARRY_RETURN_IF_ERROR(parts().Hold(holds[i], holds[(i + 1) % holds.size()]));
      for (const uint32_t part : holds[i]) {
        RowBlock block{.ids = {kStarts[part], kStarts[part + 1] - 1}};
        if (block.ids[0] == block.ids[1]) block.ids.pop_back();
        Fill(block, timestamp);
        QUARRY_RETURN_IF_ERROR(parts().Write(block));
        for (const RowId row : block.ids) writes[row] = timestamp;
      }
    }
    return table_->Checkpoint(timestamp);
  };
  Open(3);
  ASSERT_OK(train(saved));
  for (const FaultKind kind : {FaultKind::kRead, FaultKind::kWrite}) {
    uint64_t struck = 0;
    for (uint64_t at = 1; struck < 100; at += testing_util::OneIn()) {
      SCOPED_TRACE(fmt::format("{} {}", kind == FaultKind::kRead ? "read" : "write", at));
      ASSERT_NO_FATAL_FAILURE(Open(3));
      backend_.SetPlans({{.kind = kind, .at = at, .error = EIO}});
      Writes writes = saved;
      const Status status = train(writes);
      const bool strikes = backend_.strikes() > 0;
      backend_.SetPlans({});
      if (!strikes) break;
      ++struck;
      ASSERT_EQ(status.code(), Code::kIoError) << status.ToString();
      ASSERT_NO_FATAL_FAILURE(Open(3));
      ASSERT_NO_FATAL_FAILURE(ExpectAll(saved));
    }
    EXPECT_GT(struck, 5 / testing_util::OneIn());
    EXPECT_LT(struck, 100);
    if (kind == FaultKind::kRead) {  // the run that nothing struck has its checkpoint
      RowBlock block{.ids = {0}};
      ASSERT_OK(parts().Read(block));
      ASSERT_EQ(block.timestamps[0], table_->timestamp());
      for (auto& [row, when] : saved) when = table_->timestamp();
    }
  }
}

TEST_F(PartedTableTest, WhatCannotBeIsRefused) {
  Open(2);
  const uint32_t held[] = {0};
  ASSERT_OK(parts().Hold(held, {}));
  RowBlock block{.ids = {12}};
  Fill(block, 1);
  const Status status = parts().Write(block);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("part 3 is not held"));
  table_.reset();
  std::vector<uint64_t> starts = kStarts;
  starts.pop_back();
  starts.back() = kSpec.row_count;
  const auto other = StoredEmbeddings::OpenParts(*store_, budget_, "x", *LayOutParts(kSpec, starts), 2);
  EXPECT_THAT(other, IsStatus(Code::kInvalidArgument));
  MemoryBudget small(PartedTable::Bytes(layout_, 2));
  const auto refused = StoredEmbeddings::OpenParts(*store_, small, "x", layout_, 2);
  EXPECT_THAT(refused, IsStatus(Code::kOutOfBudget));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("2 of 7 parts of vectors"));
}

}  // namespace
}  // namespace quarry
