// Commits in pieces, of stores of all kinds: seen whole or not at all, and larger than what a server grants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "client/fake_server.h"
#include "client/store_util.h"
#include "support/eventually.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::HasSubstr;

constexpr uint64_t kNodes = 1000;
constexpr uint64_t kDim = 512;  // 2 KiB a row
constexpr uint64_t kRowBytes = kDim * sizeof(float);

// Row `id` of version `version`.
std::vector<std::byte> RowOf(uint64_t id, uint64_t version) {
  const std::vector<float> values(kDim, static_cast<float>(1000 * version + id));
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

wire::PutRows RowsFrom(uint64_t first, uint64_t count, uint64_t version) {
  std::vector<uint64_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  std::vector<std::vector<std::byte>> rows;
  for (const uint64_t id : ids) rows.push_back(RowOf(id, version));
  return RowsToPut("feature", ids, rows);
}

// How many rows are as `version` has them; looked up a few at a time, for small sessions.
uint64_t RowsOfVersion(client::Store& store, uint64_t version) {
  constexpr uint64_t kSome = 50;
  uint64_t same = 0;
  for (uint64_t first = 0; first < kNodes; first += kSome) {
    std::vector<NodeId> ids(kSome);
    std::iota(ids.begin(), ids.end(), static_cast<NodeId>(first));
    const auto rows = store.Lookup({.table = "feature", .ids = ids});
    EXPECT_OK(rows);
    if (!rows.ok()) return 0;
    for (uint64_t i = 0; i < kSome; ++i) {
      same +=
          std::ranges::equal((*rows)->bytes().subspan(i * kRowBytes, kRowBytes), RowOf(first + i, version));
    }
  }
  return same;
}

Status AddRows(client::LargePut& put, const wire::PutRows& rows) { return put.Add({&rows, 1}); }

class LargePutTest : public testing::TestWithParam<StoreKind> {
 protected:
  OpenedStore Open(const client::OpenOptions& options = {}) {
    return OpenedStore(GetParam(), database_.path(), options);
  }
  const TinyDatabase database_{{.nodes = kNodes, .dim = kDim}};
};

INSTANTIATE_TEST_SUITE_P(Kinds, LargePutTest,
                         testing::Values(StoreKind::kEmbedded, StoreKind::kRemote, StoreKind::kInline),
                         [](const auto& kind) { return NameOf(kind.param); });

TEST_P(LargePutTest, NobodySeesARowBeforeTheCommitAndAllAfterIt) {
  OpenedStore store = Open();
  auto put = store->BeginPut().value();
  for (uint64_t first = 0; first < kNodes; first += 100) {
    const wire::PutRows tables[] = {RowsFrom(first, 100, 1),
                                    RowsToPut("label", {first}, {BytesOf(int64_t{4})})};
    ASSERT_OK(put->Add(tables));
    EXPECT_EQ(RowsOfVersion(*store, 1), 0U);
  }
  const auto beside = store->Put({.tables = {RowsToPut("label", {7}, {BytesOf(int64_t{3})})}});
  ASSERT_OK(beside) << "others go on";
  ASSERT_OK_AND_ASSIGN(const auto written, put->Commit());
  EXPECT_GT(written, *beside);
  EXPECT_EQ(store->TakeSnapshot().value()->timestamp(), written);
  EXPECT_EQ(RowsOfVersion(*store, 1), kNodes);
  const auto labels = store->Lookup({.table = "label", .ids = std::vector<NodeId>{7, 900}}).value();
  EXPECT_EQ(At<int64_t>(labels->bytes(), 0), 3);
  EXPECT_EQ(At<int64_t>(labels->bytes(), 1), 4);
  EXPECT_THAT(AddRows(*put, RowsFrom(0, 1, 2)), IsStatus(Code::kUsage)) << "it is done";
  EXPECT_THAT(put->Commit(), IsStatus(Code::kUsage));
}

TEST_P(LargePutTest, OneIsUnderWayAtATimeAndGivenUpItLeavesNothing) {
  OpenedStore store = Open();
  auto first = store->BeginPut().value();
  ASSERT_OK(AddRows(*first, RowsFrom(0, 500, 1)));
  auto second = store->BeginPut().value();
  EXPECT_THAT(AddRows(*second, RowsFrom(0, 1, 2)), IsStatus(Code::kBusy));
  second.reset();
  ASSERT_OK(AddRows(*first, RowsFrom(500, 500, 1))) << "it goes on";
  first.reset();
  EXPECT_EQ(RowsOfVersion(*store, 1), 0U);
  auto third = store->BeginPut().value();
  ASSERT_OK(AddRows(*third, RowsFrom(0, kNodes, 3)));
  ASSERT_OK(third->Commit());
  EXPECT_EQ(RowsOfVersion(*store, 3), kNodes);
}

TEST_P(LargePutTest, ARowThatDoesNotFitTakesAllWithIt) {
  OpenedStore store = Open();
  auto put = store->BeginPut().value();
  ASSERT_OK(AddRows(*put, RowsFrom(0, 100, 1)));
  const Status refused = AddRows(*put, RowsToPut("feature", {kNodes}, {RowOf(0, 1)}));
  EXPECT_THAT(refused, IsStatus(Code::kInvalidArgument, HasSubstr("row 1000 is beyond")));
  EXPECT_EQ(AddRows(*put, RowsFrom(100, 100, 1)).ToString(), refused.ToString()) << "from then on";
  EXPECT_EQ(put->Commit().status().ToString(), refused.ToString());
  EXPECT_EQ(RowsOfVersion(*store, 1), 0U);
  auto other = store->BeginPut().value();
  EXPECT_OK(AddRows(*other, RowsFrom(0, 10, 2)));
  EXPECT_OK(other->Commit());

  wire::PutRows cut = RowsFrom(0, 10, 3);
  std::get<std::vector<std::byte>>(cut.block).pop_back();
  EXPECT_THAT(AddRows(*store->BeginPut().value(), cut), IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(store->BeginPut().value()->Add({}), IsStatus(Code::kInvalidArgument));
  const wire::PutRows range = {
      .table = "label", .rows = 1, .row_bytes = 8, .block = wire::Range{.region = 1, .bytes = 16}};
  EXPECT_THAT(AddRows(*store->BeginPut().value(), range), IsStatus(Code::kInvalidArgument));
}

TEST_P(LargePutTest, NoRowsAreACommitOfNothing) {
  OpenedStore store = Open();
  const uint64_t before = store->TakeSnapshot().value()->timestamp();
  EXPECT_EQ(store->BeginPut().value()->Commit().value(), before);
}

// 2 MiB of rows in a session of 1 MiB.
TEST_P(LargePutTest, APutMayBeLargerThanWhatAServerGrants) {
  if (GetParam() == StoreKind::kEmbedded) GTEST_SKIP() << "its memory is the caller's";
  OpenedStore store = Open({.memory_bytes = kMiB});
  ASSERT_OK_AND_ASSIGN(const auto written, store->Put({.tables = {RowsFrom(0, kNodes, 1)}}));
  EXPECT_EQ(RowsOfVersion(*store, 1), kNodes);
  EXPECT_EQ(store->TakeSnapshot().value()->timestamp(), written);

  auto put = store->BeginPut().value();
  ASSERT_OK(AddRows(*put, RowsFrom(0, kNodes, 2)));
  ASSERT_OK(AddRows(*put, RowsToPut("feature", {1, 2}, {})));
  ASSERT_OK(put->Commit());
  EXPECT_EQ(RowsOfVersion(*store, 2), kNodes - 2) << "two were deleted";
}

class LargePutOverAWireTest : public testing::Test {
 protected:
  LargePutOverAWireTest()
      : folder_("large-put"),
        server_(database_.path(), folder_ / "s/q.sock"),
        wire_(folder_ / "wire.sock", folder_ / "s/q.sock"),
        store_(client::Open(wire_.address(), {.memory_bytes = kMiB, .timeout_seconds = 20}).value()) {}

  const TinyDatabase database_{{.nodes = kNodes, .dim = kDim}};
  const TemporaryFolder folder_;
  TestServer server_;
  BreakingWire wire_;
  const std::unique_ptr<client::Store> store_;
};

TEST_F(LargePutOverAWireTest, ACommitWhoseAnswerWasLostHappensOnce) {
  auto put = store_->BeginPut().value();
  ASSERT_OK(AddRows(*put, RowsFrom(0, kNodes, 1)));
  wire_.CutBeforeNextAnswer();
  ASSERT_OK_AND_ASSIGN(const auto written, put->Commit());
  EXPECT_EQ(wire_.connections(), 2);
  EXPECT_EQ(store_->TakeSnapshot().value()->timestamp(), written);
  EXPECT_EQ(RowsOfVersion(*store_, 1), kNodes);
}

TEST_F(LargePutOverAWireTest, PiecesThatWereLostAreToldAndOthersMayFollowThem) {
  auto put = store_->BeginPut().value();
  ASSERT_OK(AddRows(*put, RowsFrom(0, 300, 1)));
  wire_.CutBeforeNextAnswer();
  const Status lost = AddRows(*put, RowsFrom(300, 300, 1));
  EXPECT_THAT(lost, IsStatus(Code::kIoError, HasSubstr("nothing was committed")));
  EXPECT_EQ(put->Commit().status().ToString(), lost.ToString());
  EXPECT_EQ(RowsOfVersion(*store_, 1), 0U);
  // The server may not have heard yet that the first connection is gone, with its pieces.
  Status written;
  ASSERT_TRUE(Eventually([&] {
    written = store_->Put({.tables = {RowsFrom(0, kNodes, 2)}}).status();
    return written.code() != Code::kBusy;
  }));
  ASSERT_OK(written);
  EXPECT_EQ(RowsOfVersion(*store_, 2), kNodes);
}

// The server notices later than the client, so that it has the pieces of both connections for a while.
TEST_F(LargePutOverAWireTest, APutInPiecesBeginsAnewWhereItsConnectionIsLost) {
  wire_.server_lag = std::chrono::milliseconds(300);
  wire_.CutAfterAnswers(4);
  const auto written = store_->Put({.tables = {RowsFrom(0, kNodes, 1)}});
  ASSERT_OK(written);
  EXPECT_GE(wire_.connections(), 2);
  EXPECT_EQ(RowsOfVersion(*store_, 1), kNodes);
}

TEST_F(LargePutOverAWireTest, OfAServerThatWasStartedAnewNobodyKnowsWhetherItCommitted) {
  auto put = store_->BeginPut().value();
  ASSERT_OK(AddRows(*put, RowsFrom(0, kNodes, 1)));
  wire_.on_cut = [&] {
    server_.Stop();
    server_.Start();
  };
  wire_.CutBeforeNextAnswer();
  const auto written = put->Commit();
  EXPECT_THAT(written, IsStatus(Code::kIoError, HasSubstr("look whether it has")));
  EXPECT_EQ(RowsOfVersion(*store_, 1), kNodes) << "it had";
}

}  // namespace
}  // namespace quarry
