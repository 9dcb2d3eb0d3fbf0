#include "quarry/storage/compaction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "pipeline/tiny_database.h"
#include "quarry/base/progress.h"
#include "quarry/base/units.h"
#include "quarry/verify/verify.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

using Bytes = std::vector<std::byte>;

constexpr uint64_t kCompactedNodes = 300;

// Small rows share checksums, large ones have their own.
class CompactionTest : public testing::TestWithParam<uint64_t> {
 protected:
  CompactionTest() { Reopen(); }
  void Reopen() {
    store_.reset();
    auto store = Store::Open(backend_, database_.path());
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }
  std::shared_ptr<const Snapshot> Now() { return store_->TakeSnapshot().value(); }
  Bytes RowOf(float value) const {
    const std::vector<float> values(GetParam(), value);
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }
  void Write(std::initializer_list<std::pair<uint64_t, float>> rows) {
    WriteBatch batch;
    for (const auto& [row, value] : rows) batch.Put("feature", row, RowOf(value));
    const auto timestamp = store_->Write(batch);
    ASSERT_OK(timestamp);
  }
  Result<CompactionReport> Compact(const ProgressFunction& progress = {}) {
    return CompactTable(*store_, budget_, "feature", false, progress);
  }
  // The rows of a snapshot: its file, and what is newer.
  std::vector<Bytes> Rows(const std::shared_ptr<const Snapshot>& snapshot) {
    const uint64_t row_bytes = GetParam() * sizeof(float);
    const auto table = store_->OpenTable(*snapshot, "feature");
    EXPECT_OK(table);
    Bytes all(kCompactedNodes * row_bytes);
    EXPECT_OK((*table)->ReadRows(backend_, 0, kCompactedNodes, all));
    const auto overlay = store_->OpenOverlay("feature", snapshot);
    EXPECT_OK(overlay);
    const std::vector<uint64_t> touched = (*overlay)->TouchedRows();
    const Status status = (*overlay)->Read(touched, [&](size_t i, std::span<const std::byte> value) {
      std::memcpy(all.data() + touched[i] * row_bytes, value.data(), row_bytes);
    });
    EXPECT_OK(status);
    std::vector<Bytes> rows;
    for (uint64_t row = 0; row < kCompactedNodes; ++row) {
      rows.emplace_back(all.begin() + static_cast<ptrdiff_t>(row * row_bytes),
                        all.begin() + static_cast<ptrdiff_t>((row + 1) * row_bytes));
    }
    return rows;
  }
  uint64_t Versions() {
    uint64_t count = 0;
    EXPECT_OK(
        store_->catalog()->ScanVersions("feature", [&](const RowVersion&) { return ++count, Status::Ok(); }));
    return count;
  }
  bool FileOfGeneration(uint64_t generation) const {
    return std::filesystem::exists(fmt::format("{}/features/feature-{}.qft", database_.path(), generation));
  }
  void ExpectSound() {
    const auto report = VerifyStore(*store_, {});
    ASSERT_OK(report);
    for (const Status& fault : report->faults) ADD_FAILURE() << fault.ToString();
  }

  const TinyDatabase database_{TinyGraph{.nodes = kCompactedNodes, .dim = GetParam()}};
  const std::unique_ptr<IoBackend> real_ = MakeDefaultBackend();
  IoBackend& backend_ = *real_;
  MemoryBudget budget_{kGiB};
  std::unique_ptr<Store> store_;
};

TEST_P(CompactionTest, TheNewFileHoldsTheNewestRowsAndTheVersionsGo) {
  EXPECT_EQ(Compact()->generation, 1u) << "nothing to do";
  Write({{3, 1}, {299, 2}});
  Write({{3, 3}, {0, 4}});
  WriteBatch deletion;
  deletion.Delete("feature", 7);
  ASSERT_OK(store_->Write(deletion));
  const std::vector<Bytes> before = Rows(Now());
  EXPECT_EQ(before[3], RowOf(3));
  EXPECT_EQ(before[7], RowOf(0));
  const auto report = Compact();
  ASSERT_OK(report);
  EXPECT_EQ(report->rows_changed, 4u);
  EXPECT_EQ(report->generation, 2u);
  EXPECT_EQ(report->timestamp, 3u);
  EXPECT_EQ(budget_.used_bytes(), 0u);
  EXPECT_TRUE(FileOfGeneration(2));
  EXPECT_FALSE(FileOfGeneration(1));
  EXPECT_EQ(Versions(), 0u);
  EXPECT_TRUE((*store_->OpenOverlay("feature", Now()))->empty());
  EXPECT_EQ(Rows(Now()), before);
  Write({{3, 9}});
  Reopen();
  EXPECT_EQ(Rows(Now())[3], RowOf(9));
  EXPECT_EQ(Rows(Now())[299], RowOf(2));
  ExpectSound();
  EXPECT_EQ(Compact()->generation, 3u);
  EXPECT_EQ(Rows(Now())[3], RowOf(9));
  EXPECT_EQ(Rows(Now())[0], RowOf(4));
}

TEST_P(CompactionTest, ASnapshotKeepsItsFileAndItsVersions) {
  Write({{3, 1}, {5, 1}});
  const auto old = Now();
  const std::vector<Bytes> rows = Rows(old);
  Write({{3, 2}});
  ASSERT_OK(Compact());
  EXPECT_TRUE(FileOfGeneration(1)) << "a snapshot has it";
  EXPECT_EQ(Rows(old), rows);
  Write({{3, 3}, {6, 3}});
  ASSERT_OK(Compact());
  EXPECT_EQ(Rows(old), rows);
  EXPECT_EQ(Rows(Now())[3], RowOf(3));
  EXPECT_EQ(Rows(Now())[5], RowOf(1));
}

TEST_P(CompactionTest, TheFileGoesWithTheLastSnapshot) {
  Write({{3, 1}});
  auto old = Now();
  ASSERT_OK(Compact());
  EXPECT_TRUE(FileOfGeneration(1));
  old.reset();
  EXPECT_FALSE(FileOfGeneration(1));
  Write({{4, 1}});
  ASSERT_OK(Compact());
  EXPECT_EQ(Versions(), 0u) << "those that the snapshot had kept go too";
}

TEST_P(CompactionTest, WhatIsWrittenMeanwhileStaysAVersion) {
  Write({{3, 1}, {4, 1}});
  bool written = false;
  const auto report = Compact([&](std::string_view, uint64_t, uint64_t) {
    if (!written) Write({{3, 2}, {5, 2}});
    written = true;
    return Status::Ok();
  });
  ASSERT_OK(report);
  EXPECT_EQ(report->timestamp, 1u);
  const std::vector<Bytes> rows = Rows(Now());
  EXPECT_EQ(rows[3], RowOf(2));
  EXPECT_EQ(rows[4], RowOf(1));
  EXPECT_EQ(rows[5], RowOf(2));
  EXPECT_EQ((*store_->OpenOverlay("feature", Now()))->TouchedRows(), (std::vector<uint64_t>{3, 5}));
  ExpectSound();
}

// What a layout of an earlier generation asks.
TEST_P(CompactionTest, AnOverlayForAnOlderBaseHasWhatWasFoldedSince) {
  Write({{3, 1}, {4, 1}});
  ASSERT_OK(Compact());
  Write({{4, 2}, {5, 2}});
  ASSERT_OK(Compact());
  Write({{6, 3}});
  const auto touched_since = [&](uint64_t base, uint64_t timestamp = 0) {
    std::map<uint64_t, Bytes> found;
    const auto overlay = store_->OpenOverlay("feature", Now(), TableVersion{base, timestamp});
    EXPECT_OK(overlay);
    const std::vector<uint64_t> rows = (*overlay)->TouchedRows();
    const Status status = (*overlay)->Read(rows, [&](size_t i, std::span<const std::byte> value) {
      found[rows[i]] = Bytes(value.begin(), value.end());
    });
    EXPECT_OK(status);
    return found;
  };
  using Found = std::map<uint64_t, Bytes>;
  EXPECT_EQ(touched_since(1), (Found{{3, RowOf(1)}, {4, RowOf(2)}, {5, RowOf(2)}, {6, RowOf(3)}}));
  EXPECT_EQ(touched_since(2), (Found{{4, RowOf(2)}, {5, RowOf(2)}, {6, RowOf(3)}}));
  EXPECT_EQ(touched_since(3), (Found{{6, RowOf(3)}}));
  // For a base with versions beside its file, the newer of the two counts.
  EXPECT_EQ(touched_since(1, 1), touched_since(2)) << "what the first compaction folded, it has";
  EXPECT_EQ(touched_since(1, 2), (Found{{6, RowOf(3)}}));
  EXPECT_EQ(touched_since(1, 3), Found());
  EXPECT_EQ(store_->OpenOverlay("feature", Now(), TableVersion{1, 4}).status().code(), Code::kUnsupported);
  EXPECT_EQ(store_->OpenOverlay("feature", Now(), TableVersion{4, 0}).status().code(), Code::kUnsupported);
}

TEST_P(CompactionTest, CancelledItLeavesTheTableAsItWas) {
  Write({{3, 1}});
  const auto cancelled =
      Compact([](std::string_view, uint64_t, uint64_t) { return Status(Code::kCancelled, "enough"); });
  EXPECT_EQ(cancelled.status().code(), Code::kCancelled);
  EXPECT_FALSE(FileOfGeneration(2));
  EXPECT_EQ(Rows(Now())[3], RowOf(1));
  const auto dry = CompactTable(*store_, budget_, "feature", true, {});
  ASSERT_OK(dry);
  EXPECT_EQ(dry->rows_changed, 1u);
  EXPECT_EQ(dry->generation, 2u);
  EXPECT_FALSE(FileOfGeneration(2));
}

TEST_P(CompactionTest, ALeftoverIsRemovedByTheNextWriterUnlessItMayBeTheOnlyCopy) {
  const std::string folder = database_.path() + "/features/";
  std::filesystem::copy(folder + "feature-1.qft", folder + "feature-2.qft");
  std::filesystem::copy(folder + "feature-1.qft", folder + "feature-x.qft");
  Reopen();
  EXPECT_TRUE(FileOfGeneration(2)) << "reading";
  ASSERT_OK(store_->PrepareToWrite());
  EXPECT_FALSE(FileOfGeneration(2));
  EXPECT_TRUE(FileOfGeneration(1));
  EXPECT_TRUE(std::filesystem::exists(folder + "feature-x.qft")) << "none of ours";
  // As an older manifest sees the files that a newer one named.
  std::filesystem::rename(folder + "feature-1.qft", folder + "feature-2.qft");
  Reopen();
  ASSERT_OK(store_->PrepareToWrite());
  EXPECT_TRUE(FileOfGeneration(2)) << "the only copy of the rows";
  std::filesystem::rename(folder + "feature-2.qft", folder + "feature-1.qft");
}

TEST_P(CompactionTest, ADroppedTableGoesWholeOnceNobodyReadsIt) {
  Write({{3, 1}});
  ASSERT_OK(Compact());
  Write({{4, 2}});
  EXPECT_EQ(store_->DropTable("features").code(), Code::kNotFound);
  {
    const auto reader = Now();
    const std::vector<Bytes> rows = Rows(reader);
    const Status refused = store_->DropTable("feature");
    EXPECT_EQ(refused.code(), Code::kBusy) << refused.ToString();
    EXPECT_EQ(Rows(reader), rows);
  }
  const std::string file = database_.path() + "/features/feature-2.qft";
  std::filesystem::copy(file, database_.path() + "-kept");
  const Status dropped = store_->DropTable("feature");
  ASSERT_OK(dropped);
  EXPECT_EQ(store_->manifest()->FindTable("feature"), nullptr);
  EXPECT_FALSE(FileOfGeneration(2));
  EXPECT_EQ(Versions(), 0u);
  EXPECT_EQ(store_->catalog()->ReadFolded("feature", 2, 0).value(), std::nullopt);
  EXPECT_NE(Now()->FindTable("label"), nullptr);
  ExpectSound();
  // What a crash behind the commit leaves.
  std::filesystem::rename(database_.path() + "-kept", file);
  Reopen();
  ASSERT_OK(store_->PrepareToWrite());
  EXPECT_FALSE(FileOfGeneration(2));
  EXPECT_EQ(store_->DropTable("feature").code(), Code::kNotFound);
  ExpectSound();
}

INSTANTIATE_TEST_SUITE_P(Rows, CompactionTest, testing::Values(5, 128));

}  // namespace
}  // namespace quarry
