// Commits in pieces: nothing of one is seen before its commit, all of it after, and nothing is left of one
// that was given up or cut off; whatever else is written, compacted or copied meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "delta_log.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/storage/checkpoint.h"
#include "quarry/storage/compaction.h"
#include "storage/small_store.h"
#include "storage/store_rows.h"
#include "support/database.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::FaultsIn;
using testing_util::Medium;
using testing_util::ScratchFolder;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

constexpr uint64_t kNodes = 120;
constexpr uint64_t kDim = 4;

using Rows = std::map<uint64_t, float>;  // first value of a row

std::vector<std::byte> RowOf(float value) {
  const std::vector<float> values(kDim, value);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

WriteBatch BatchOf(const Rows& rows) {
  WriteBatch batch;
  for (const auto& [row, value] : rows) batch.Put("feature", row, RowOf(value));
  return batch;
}

// All rows, as the snapshot has them.
std::vector<float> RowsOf(Store& store, const std::shared_ptr<const Snapshot>& snapshot) {
  const uint64_t row_bytes = kDim * sizeof(float);
  std::vector<std::byte> bytes(kNodes * row_bytes);
  const auto table = store.OpenTable(*snapshot, "feature");
  EXPECT_OK(table);
  EXPECT_OK((*table)->ReadRows(store.backend(), 0, kNodes, bytes));
  const auto newer = store.OpenOverlay("feature", snapshot);
  EXPECT_OK(newer);
  const std::vector<uint64_t> touched = (*newer)->TouchedRows();
  const Status status = FoldRows(**newer, touched, 0, row_bytes, bytes);
  EXPECT_OK(status);
  std::vector<float> values(kNodes);
  for (uint64_t row = 0; row < kNodes; ++row) {
    std::memcpy(&values[row], bytes.data() + row * row_bytes, sizeof(float));
  }
  return values;
}

class LargeWriteTest : public testing::Test {
 protected:
  LargeWriteTest() {
    store_.Reopen();
    original_ = RowsOf(*store_, store_.Now());
  }
  std::unique_ptr<LargeWrite> Begin() {
    auto large = store_->BeginLargeWrite();
    EXPECT_OK(large);
    return std::move(large).value();
  }
  uint64_t Write(const Rows& rows) {
    const auto timestamp = store_->Write(BatchOf(rows));
    EXPECT_OK(timestamp);
    return timestamp.value();
  }
  std::vector<float> With(const Rows& rows) const {
    std::vector<float> all = original_;
    for (const auto& [row, value] : rows) all[row] = value;
    return all;
  }
  std::vector<float> Newest() { return RowsOf(*store_, store_.Now()); }
  uint64_t Versions() {
    uint64_t count = 0;
    EXPECT_OK(
        store_->catalog()->ScanVersions("feature", [&](const RowVersion&) { return ++count, Status::Ok(); }));
    return count;
  }

  const ScratchFolder folder_{Medium::kMemory};
  const TinyDatabase database_{TinyGraph{.nodes = kNodes, .dim = kDim}, folder_.path() + "/"};
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  testing_util::TestStore store_{*backend_, database_.path()};
  std::vector<float> original_;
};

TEST_F(LargeWriteTest, AllOfItIsSeenFromTheCommitOn) {
  Write({{1, 10}});
  auto large = Begin();
  ASSERT_OK(large->Add(BatchOf({{1, 20}, {2, 20}})));
  WriteBatch labels;
  labels.SetLabel(5, 77);
  ASSERT_OK(large->Add(labels));
  ASSERT_OK(large->Add(BatchOf({{2, 21}, {3, 21}})));
  EXPECT_EQ(Newest(), With({{1, 10}}));
  EXPECT_EQ((*store_->OpenOverlay("feature", store_.Now()))->TouchedRows(), std::vector<uint64_t>{1});
  EXPECT_EQ(Write({{3, 30}, {4, 30}}), 2u) << "others go on";
  const auto before = store_.Now();
  EXPECT_EQ(FaultsIn(*store_), "");
  ASSERT_OK_AND_ASSIGN(const auto timestamp, large->Commit());
  EXPECT_GT(timestamp, 2u);
  EXPECT_EQ(store_.Now()->timestamp, timestamp);
  EXPECT_EQ(RowsOf(*store_, before), With({{1, 10}, {3, 30}, {4, 30}}));
  const Rows expected = {{1, 20}, {2, 21}, {3, 21}, {4, 30}};
  EXPECT_EQ(Newest(), With(expected)) << "it is the later commit";
  large.reset();
  EXPECT_EQ(Write({{4, 40}}), timestamp + 1);
  store_.Reopen();
  EXPECT_EQ(Newest(), With({{1, 20}, {2, 21}, {3, 21}, {4, 40}}));
  EXPECT_EQ(testing_util::RowsNow(*store_, "label")[5][0], std::byte{77});
  EXPECT_EQ(FaultsIn(*store_), "");
}

TEST_F(LargeWriteTest, GivenUpItLeavesNothing) {
  Write({{1, 10}});
  {
    const auto large = Begin();
    ASSERT_OK(large->Add(BatchOf({{1, 20}, {2, 20}})));
    EXPECT_EQ(Versions(), 3u);
  }
  EXPECT_EQ(Versions(), 1u);
  EXPECT_EQ(Newest(), With({{1, 10}}));
  EXPECT_EQ(Begin()->Commit().value(), 1u) << "nothing is no commit";
  const auto next = Begin();  // of the same timestamp
  ASSERT_OK(next->Add(BatchOf({{3, 30}})));
  ASSERT_OK(next->Commit());
  EXPECT_EQ(Newest(), With({{1, 10}, {3, 30}}));
}

TEST_F(LargeWriteTest, WhatDoesNotFitIsRefusedAndTheRestMayGoOn) {
  const auto large = Begin();
  ASSERT_OK(large->Add(BatchOf({{1, 20}})));
  const Status refused = large->Add(BatchOf({{2, 20}, {kNodes, 20}}));
  EXPECT_THAT(refused, IsStatus(Code::kInvalidArgument, HasSubstr("row 120")));
  const auto other = store_->BeginLargeWrite();
  EXPECT_THAT(other, IsStatus(Code::kBusy));
  ASSERT_OK(large->Commit());
  EXPECT_EQ(Newest(), With({{1, 20}}));
  EXPECT_OK(store_->BeginLargeWrite()) << "that one is done";
}

// A copy of the catalog is what a crash would leave.
TEST_F(LargeWriteTest, OfOneThatWasCutOffTheNextWriterLeavesNothing) {
  const std::string path = folder_.path() + "/copy";
  MemoryBudget budget(kGiB);
  Write({{1, 10}});
  const auto large = Begin();
  ASSERT_OK(large->Add(BatchOf({{1, 20}, {2, 20}})));
  ASSERT_OK_AND_ASSIGN(const auto copied, CheckpointStore(*store_, budget, path, {}));
  EXPECT_EQ(copied.timestamp, 1u);
  EXPECT_TRUE(Catalog::Open(path, true).value()->StagedTimestamp().value());
  ASSERT_OK_AND_ASSIGN(const auto copy, Store::Open(*backend_, path));
  EXPECT_EQ(RowsOf(*copy, copy->TakeSnapshot().value()), With({{1, 10}}));
  EXPECT_EQ(FaultsIn(*copy), "");
  ASSERT_OK(copy->PrepareToWrite());
  EXPECT_EQ(copy->catalog()->StagedTimestamp().value(), std::nullopt);
  EXPECT_EQ(FaultsIn(*copy), "");
  ASSERT_OK(large->Commit()) << "the original does not mind";
  EXPECT_EQ(Newest(), With({{1, 20}, {2, 20}}));
}

TEST_F(LargeWriteTest, ReadersBesideAllKindsOfWritersSeeWholeCommits) {
  constexpr int kCommits = 30;
  std::atomic<int> writing{2};
  std::thread large([&] {
    for (int i = 1; i <= kCommits; ++i) {
      const std::unique_ptr<LargeWrite> commit = Begin();
      ASSERT_OK(commit->Add(BatchOf({{1, 100.0f + static_cast<float>(i)}})));
      ASSERT_OK(commit->Add(BatchOf({{2, 100.0f + static_cast<float>(i)}})));
      if (i % 3 != 0) {
        ASSERT_OK(commit->Commit());
      }
    }
    --writing;
  });
  std::thread small([&] {
    for (int i = 1; i <= kCommits; ++i) {
      const auto value = 200.0f + static_cast<float>(i);
      ASSERT_OK(store_->Write(BatchOf({{1, value}, {2, value}}), {.sync = i % 4 == 0}));
    }
    --writing;
  });
  while (writing > 0) {
    const std::vector<float> rows = Newest();
    if (rows[1] >= 100) {
      ASSERT_EQ(rows[1], rows[2]);
    }
  }
  large.join();
  small.join();
  EXPECT_EQ(Versions(), 2u * (kCommits + kCommits / 3 * 2));
  EXPECT_EQ(FaultsIn(*store_), "");
}

// Timestamps of others must not reach that of the large one.
TEST_F(LargeWriteTest, OnlySoManyCommitsCanComeMeanwhile) {
  store_.Close();
  const std::shared_ptr<Catalog> catalog = Catalog::Open(database_.path(), false).value();
  const auto manifest = std::make_shared<const Manifest>(catalog->ReadManifest().value());
  const DeltaLog::CatalogFunction open = [&](bool) { return Result<std::shared_ptr<Catalog>>(catalog); };
  DeltaLog log("db", open, /*commits_beside_max=*/3);
  auto large = log.BeginLargeWrite(manifest).value();
  ASSERT_OK(large->Add(BatchOf({{9, 9}})));
  EXPECT_EQ(log.Write(*manifest, BatchOf({{1, 1}}), {}).value(), 1u);
  EXPECT_EQ(log.Write(*manifest, BatchOf({{1, 2}}), {}).value(), 2u);
  const auto refused = log.Write(*manifest, BatchOf({{1, 3}}), {});
  EXPECT_THAT(refused, IsStatus(Code::kBusy, HasSubstr("2 commits have come")));
  EXPECT_EQ(large->Commit().value(), 3u);
  EXPECT_EQ(log.Write(*manifest, BatchOf({{1, 4}}), {}).value(), 4u);
}

// Random operations against a map of versions: the rows of every commit, by timestamp.
class LargeWriteModel : public LargeWriteTest {
 protected:
  void Run(uint64_t seed, int operations) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(MixSeed(seed, 1));
    for (int i = 0; i < operations && !HasFailure(); ++i) Operate(rng);
    snapshots_.clear();  // they keep files that the catalog no longer names
    EXPECT_EQ(FaultsIn(*store_), "");
  }

 private:
  Rows SomeRows(Rng& rng) {
    Rows rows;
    for (uint64_t count = 1 + rng.Below(8); count > 0; --count) rows[rng.Below(kNodes)] = ++value_;
    return rows;
  }

  void Operate(Rng& rng) {
    switch (rng.Below(9)) {
      case 0:
      case 1: {
        const Rows rows = SomeRows(rng);
        commits_[Write(rows)] = rows;
        break;
      }
      case 2:
      case 3: {
        if (large_ == nullptr) large_ = Begin();
        const Rows rows = SomeRows(rng);
        ASSERT_OK(large_->Add(BatchOf(rows)));
        for (const auto& [row, value] : rows) staged_[row] = value;
        break;
      }
      case 4: {
        if (large_ == nullptr) break;
        ASSERT_OK_AND_ASSIGN(const auto timestamp, large_->Commit());
        commits_[timestamp] = staged_;
        GiveUp();
        break;
      }
      case 5:
        if (rng.Below(3) == 0) GiveUp();
        break;
      case 6: {
        MemoryBudget budget(kGiB);
        const auto report = CompactTable(*store_, budget, "feature", false, {});
        ASSERT_OK(report);
        break;
      }
      case 7:
        snapshots_.push_back(store_.Now());
        if (snapshots_.size() > 3) snapshots_.erase(snapshots_.begin());
        break;
      default:
        if (rng.Below(4) != 0) break;
        GiveUp();
        snapshots_.clear();
        store_.Reopen();
    }
    CheckAll();
  }

  void GiveUp() {
    large_.reset();
    staged_.clear();
  }

  void CheckAll() {
    snapshots_.push_back(store_.Now());
    for (const auto& snapshot : snapshots_) {
      Rows expected;
      for (const auto& [timestamp, rows] : commits_) {
        if (timestamp > snapshot->timestamp) break;
        for (const auto& [row, value] : rows) expected[row] = value;
      }
      ASSERT_EQ(RowsOf(*store_, snapshot), With(expected)) << "as of " << snapshot->timestamp;
    }
    ASSERT_EQ(snapshots_.back()->timestamp, commits_.empty() ? 0 : commits_.rbegin()->first);
    snapshots_.pop_back();
  }

  std::map<uint64_t, Rows> commits_;
  Rows staged_;
  std::unique_ptr<LargeWrite> large_;
  std::vector<std::shared_ptr<const Snapshot>> snapshots_;
  float value_ = 1000;
};

class LargeWriteModelTest : public LargeWriteModel, public testing::WithParamInterface<uint64_t> {};

TEST_P(LargeWriteModelTest, EverySnapshotHasTheCommitsUpToIt) { Run(GetParam(), 60); }

INSTANTIATE_TEST_SUITE_P(Seeds, LargeWriteModelTest, testing::Range<uint64_t>(1, 17));

}  // namespace
}  // namespace quarry
