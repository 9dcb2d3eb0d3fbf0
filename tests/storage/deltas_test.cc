#include "quarry/storage/deltas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "pipeline/tiny_database.h"
#include "quarry/storage/node_properties.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

using Bytes = std::vector<std::byte>;

constexpr uint64_t kDeltaNodes = 200;
constexpr uint64_t kDim = 4;

Bytes RowOf(float value) {
  const std::vector<float> values(kDim, value);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

class DeltasTest : public testing::Test {
 protected:
  DeltasTest() { Reopen(); }
  void Reopen() {
    store_.reset();
    auto store = Store::Open(*backend_, database_.path());
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }
  std::shared_ptr<const Snapshot> Now() {
    auto snapshot = store_->TakeSnapshot();
    EXPECT_OK(snapshot);
    return std::move(snapshot).value();
  }
  uint64_t Write(const WriteBatch& batch) {
    const auto timestamp = store_->Write(batch);
    EXPECT_OK(timestamp);
    return timestamp.ok() ? *timestamp : 0;
  }
  uint64_t WriteRow(uint64_t row, float value) {
    WriteBatch batch;
    batch.Put("feature", row, RowOf(value));
    return Write(batch);
  }
  // First values of the rows that the snapshot has newer than the table, by row.
  std::map<uint64_t, float> RowsIn(std::shared_ptr<const Snapshot> snapshot) {
    auto overlay = store_->OpenOverlay("feature", std::move(snapshot));
    EXPECT_OK(overlay);
    std::map<uint64_t, float> values;
    const std::vector<uint64_t> rows = (*overlay)->TouchedRows();
    const Status status = (*overlay)->Read(rows, [&](size_t i, std::span<const std::byte> value) {
      std::memcpy(&values[rows[i]], value.data(), sizeof(float));
      EXPECT_EQ(value.size(), kDim * sizeof(float));
    });
    EXPECT_OK(status);
    return values;
  }
  Status Refusal(const WriteBatch& batch) { return store_->Write(batch).status(); }

  const TinyDatabase database_{TinyGraph{.nodes = kDeltaNodes, .dim = kDim}};
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  std::unique_ptr<Store> store_;
};

TEST_F(DeltasTest, ASnapshotSeesWhatWasCommittedBeforeIt) {
  const auto before = Now();
  EXPECT_EQ(before->timestamp, 0u);
  EXPECT_EQ(WriteRow(7, 1.5f), 1u);
  const auto between = Now();
  EXPECT_EQ(WriteRow(7, 2.5f), 2u);
  EXPECT_EQ(WriteRow(9, 3.5f), 3u);
  using Values = std::map<uint64_t, float>;
  EXPECT_EQ(RowsIn(before), Values());
  EXPECT_EQ(RowsIn(between), (Values{{7, 1.5f}}));
  EXPECT_EQ(RowsIn(Now()), (Values{{7, 2.5f}, {9, 3.5f}}));
  Reopen();
  EXPECT_EQ(RowsIn(Now()), (Values{{7, 2.5f}, {9, 3.5f}}));
  EXPECT_EQ(WriteRow(9, 4.5f), 4u) << "timestamps go on";
}

TEST_F(DeltasTest, ABatchHasOneTimestampAndItsLastWriteOfARowCounts) {
  WriteBatch batch;
  batch.Put("feature", 3, RowOf(1));
  batch.Put("feature", 4, RowOf(2));
  batch.Put("feature", 3, RowOf(5));
  batch.Delete("feature", 4);
  batch.SetLabel(3, 42);
  batch.SetSplit(3, Split::kTest);
  EXPECT_EQ(Write(batch), 1u);
  EXPECT_EQ(RowsIn(Now()), (std::map<uint64_t, float>{{3, 5.0f}, {4, 0.0f}}));
  const auto properties = LoadNodeProperties(*store_, kDeltaNodes, Now());
  ASSERT_OK(properties);
  EXPECT_EQ(properties->labels[3], 42);
  EXPECT_EQ(properties->labels[4], database_.graph().Label(4));
  EXPECT_EQ(properties->splits[3], static_cast<uint8_t>(Split::kTest));
  batch.Clear();
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(Write(batch), 1u) << "an empty batch commits nothing";
}

TEST_F(DeltasTest, WhatDoesNotFitIsRefusedWholeAndNamed) {
  const auto refused = [&](auto fill, const std::string& why) {
    WriteBatch batch;
    batch.Put("feature", 0, RowOf(9));
    fill(batch);
    const Status status = Refusal(batch);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  refused([](WriteBatch& b) { b.Put("feature", kDeltaNodes, RowOf(1)); },
          "table \"feature\", row 200: the table has 200");
  refused([](WriteBatch& b) { b.Put("feature", 1, Bytes(15)); }, "15 bytes, a row has 16");
  refused([](WriteBatch& b) { b.Put("absent", 1, RowOf(1)); }, "no such table");
  refused([](WriteBatch& b) { b.SetSplit(1, static_cast<Split>(4)); }, "split 4");
  refused([](WriteBatch& b) { b.Delete("label", 1); }, "set to none");
  EXPECT_EQ(Now()->timestamp, 0u);
  EXPECT_TRUE(RowsIn(Now()).empty());
}

TEST_F(DeltasTest, ConcurrentWritersCommitWholeBatchesInOneOrder) {
  constexpr int kWriters = 4, kBatches = 40;
  std::vector<std::vector<uint64_t>> timestamps(kWriters);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) {  // rows 0 and 1 are always written together
      const std::map<uint64_t, float> rows = RowsIn(Now());
      if (!rows.empty()) {
        ASSERT_TRUE(rows.contains(0) && rows.contains(1));
        ASSERT_EQ(rows.at(0), rows.at(1));
      }
    }
  });
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < kBatches; ++i) {
        WriteBatch batch;
        const Bytes row = RowOf(static_cast<float>(w * kBatches + i));
        batch.Put("feature", 0, row);
        batch.Put("feature", 1, row);
        const auto timestamp = store_->Write(batch, {.sync = i % 4 == 0});
        ASSERT_OK(timestamp);
        timestamps[static_cast<size_t>(w)].push_back(*timestamp);
        // What a writer was told, it sees.
        ASSERT_GE(Now()->timestamp, *timestamp);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  done = true;
  reader.join();
  std::vector<uint64_t> all;
  for (const auto& mine : timestamps) {
    EXPECT_TRUE(std::ranges::is_sorted(mine));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::ranges::sort(all);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i + 1);
}

TEST_F(DeltasTest, WritesOutliveManifestCommits) {
  WriteRow(5, 1);
  ASSERT_OK(store_->UpdateManifest([&](Manifest& m) { return m = *store_->manifest(), Status::Ok(); }));
  WriteRow(6, 2);
  Reopen();
  ASSERT_OK(store_->UpdateManifest([&](Manifest& m) { return m = *store_->manifest(), Status::Ok(); }));
  EXPECT_EQ(RowsIn(Now()), (std::map<uint64_t, float>{{5, 1.0f}, {6, 2.0f}}));
}

}  // namespace
}  // namespace quarry
