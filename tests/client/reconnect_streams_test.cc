// Streams of every road, alone and in a group, whose connection or server goes away: the batches are those of
// an undisturbed run, none twice, none missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "client/fake_server.h"
#include "client/server_process.h"
#include "client/store_util.h"
#include "partition/partitioned_store.h"
#include "quarry/layout/layout.h"
#include "quarry/partition/stored_partitioning.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::HasSubstr;

const wire::LiveSpec kLive = {.fanouts = {4, 3}, .batch_size = 32, .seed = 5};

class ReconnectStreamsTest : public testing::Test {
 protected:
  ReconnectStreamsTest() : database_({.nodes = 600, .dim = 64}), folder_("reconnect") {}
  std::string socket() const { return folder_ / "s/q.sock"; }
  static std::unique_ptr<client::Store> Connect(const std::string& address) {
    auto store = client::Open(address, {.memory_bytes = 128 * kMiB, .timeout_seconds = 30});
    EXPECT_OK(store);
    return store.ok() ? std::move(store).value() : nullptr;
  }
  void BuildLayoutOf(uint32_t epochs) {
    const auto backend = MakeDefaultBackend();
    const auto store = quarry::Store::Open(*backend, database_.path()).value();
    MemoryBudget budget(kGiB);
    LayoutSpec spec;
    spec.road = kLive;
    spec.epochs = epochs;
    const auto built = BuildLayout(*store, budget, spec, false, {});
    ASSERT_OK(built);
  }
  void CutIntoParts(uint64_t seed) {
    const auto backend = MakeDefaultBackend();
    const auto store = quarry::Store::Open(*backend, database_.path()).value();
    MemoryBudget budget(kGiB);
    const auto built = BuildPartitioning(*store, budget, {.table = "feature"},
                                         RandomAssignment(store->manifest()->node_count, 8, seed), {});
    ASSERT_OK(built);
  }
  static wire::StartPass Pass(uint64_t pass) {
    return {.seeds = Split::kTrain, .pass = pass, .ordered = true};
  }

  // Passes 1, 2, ... of a stream, one list each.
  std::vector<Hashes> Undisturbed(const wire::OpenStream& request, uint64_t passes) {
    TestServer server(database_.path(), socket());
    const auto store = Connect(server.address());
    auto stream = store->OpenStream(request);
    EXPECT_OK(stream);
    std::vector<Hashes> all;
    for (uint64_t pass = 1; pass <= passes; ++pass) {
      EXPECT_OK((*stream)->StartPass(Pass(pass)));
      all.push_back(DrainPass(**stream));
    }
    return all;
  }

  const TinyDatabase database_;
  const TemporaryFolder folder_;
};

TEST_F(ReconnectStreamsTest, KilledServersChangeNoBatchOfAnyRoad) {
  BuildLayoutOf(1);
  CutIntoParts(1);
  const wire::OpenStream roads[] = {{.road = wire::PlannedSpec{.live = kLive}},
                                    {.road = wire::SuperbatchSpec{.live = kLive}},
                                    {.road = wire::PartitionedSpec{.live = kLive}}};
  for (const wire::OpenStream& request : roads) {
    SCOPED_TRACE(testing::Message() << "road " << request.road.index());
    const std::vector<Hashes> expected = Undisturbed(request, 3);
    ServerProcess server(database_.path(), socket());
    const auto store = Connect("unix:" + socket());
    ASSERT_OK_AND_ASSIGN(auto stream, store->OpenStream(request));
    for (uint64_t pass = 1; pass <= 3; ++pass) {
      ASSERT_OK(stream->StartPass(Pass(pass)));
      Hashes seen;
      for (int death = 0; death < 2; ++death) {
        std::ranges::move(DrainPass(*stream, 3), std::back_inserter(seen));
        server.Kill();
        server.Start();
      }
      std::ranges::move(DrainPass(*stream), std::back_inserter(seen));
      EXPECT_EQ(seen, expected[pass - 1]) << "pass " << pass;
    }
  }
}

// A partitioning that was built again has other parts, so nothing of it follows what was used.
TEST_F(ReconnectStreamsTest, PartsThatWereBuiltAnewEndTheirStream) {
  CutIntoParts(1);
  TestServer server(database_.path(), socket());
  const auto store = Connect(server.address());
  ASSERT_OK_AND_ASSIGN(auto stream, store->OpenStream({.road = wire::PartitionedSpec{.live = kLive}}));
  ASSERT_OK(stream->StartPass(Pass(1)));
  EXPECT_EQ(DrainPass(*stream, 2).size(), 2U);
  server.Stop();
  CutIntoParts(1);  // the same parts, in another file: who knows
  server.Start();
  Status status;
  while (status.ok()) {
    const auto batch = stream->Next();
    status = batch.status();
    ASSERT_FALSE(batch.ok() && *batch == nullptr) << "the pass went on";
  }
  EXPECT_THAT(status, IsStatus(Code::kIoError, HasSubstr("was built anew")));
  EXPECT_THAT(stream->StartPass(Pass(2)), IsStatus(Code::kIoError, HasSubstr("open the stream again")));
  ASSERT_OK_AND_ASSIGN(stream, store->OpenStream({.road = wire::PartitionedSpec{.live = kLive}}));
  ASSERT_OK(stream->StartPass(Pass(1)));
  EXPECT_GT(DrainPass(*stream).size(), 2U);
}

// What is served by a stream that is opened anew is the first of a layout's epochs.
TEST_F(ReconnectStreamsTest, ALaterEpochOfALayoutIsBegunAgain) {
  BuildLayoutOf(2);
  const wire::OpenStream request = {.road = wire::PlannedSpec{}};
  const std::vector<Hashes> expected = Undisturbed(request, 2);
  ASSERT_NE(expected[0], expected[1]);
  TestServer server(database_.path(), socket());
  const auto store = Connect(server.address());
  ASSERT_OK_AND_ASSIGN(auto stream, store->OpenStream(request));
  const auto restart = [&] {
    server.Stop();
    server.Start();
  };
  ASSERT_OK(stream->StartPass(Pass(1)));
  Hashes seen = DrainPass(*stream, 3);
  restart();
  std::ranges::move(DrainPass(*stream), std::back_inserter(seen));
  EXPECT_EQ(seen, expected[0]);
  ASSERT_OK(stream->StartPass(Pass(2)));
  EXPECT_EQ(DrainPass(*stream, 3), Hashes(expected[1].begin(), expected[1].begin() + 3));
  restart();
  const Status status = stream->Next().status();
  EXPECT_THAT(status, IsStatus(Code::kIoError, HasSubstr("begin the pass again")));
  ASSERT_OK(stream->StartPass(Pass(2)));
  EXPECT_EQ(DrainPass(*stream), expected[0]);
}

wire::OpenStream SharedByTwo() {
  return {.road = kLive, .mode = wire::StreamMode::kShared, .group = "all", .members = 2};
}

TEST_F(ReconnectStreamsTest, AMemberOfASharedGroupThatAloneLosesItsConnectionGoesOn) {
  TestServer server(database_.path(), socket());
  BreakingWire wire(folder_ / "wire.sock", socket());
  const std::unique_ptr<client::Store> stores[] = {Connect(wire.address()), Connect(server.address())};
  std::vector<std::unique_ptr<client::Stream>> streams;
  for (const auto& store : stores) streams.push_back(store->OpenStream(SharedByTwo()).value());
  const int connections = wire.connections();
  std::vector<Hashes> first, second;
  const auto drain = [](client::Stream& stream, std::vector<Hashes>& passes, auto before_pass) {
    for (uint64_t pass = 1; pass <= 6; ++pass) {
      before_pass(pass);
      const auto started = stream.StartPass(Pass(pass));
      ASSERT_OK(started);
      passes.push_back(DrainPass(stream));
    }
  };
  std::thread other([&] { drain(*streams[1], second, [](uint64_t) {}); });
  drain(*streams[0], first, [&](uint64_t pass) { wire.CutAfterAnswers(static_cast<int>(2 * pass)); });
  other.join();
  EXPECT_GE(wire.connections(), connections + 4);
  EXPECT_EQ(first, second);
  streams.clear();
  ASSERT_EQ(first.size(), 6u);
  server.Stop();
  for (uint64_t pass = 1; pass <= 6; ++pass) EXPECT_EQ(first[pass - 1], RoadPass(database_.path(), pass));
}

TEST_F(ReconnectStreamsTest, ASharedGroupOutlivesKilledServers) {
  const Hashes expected = RoadPass(database_.path(), 1);
  ServerProcess server(database_.path(), socket());
  const std::unique_ptr<client::Store> stores[] = {Connect("unix:" + socket()), Connect("unix:" + socket())};
  std::vector<std::unique_ptr<client::Stream>> streams;
  for (const auto& store : stores) streams.push_back(store->OpenStream(SharedByTwo()).value());
  Hashes seen[2];
  const auto together = [&](auto what) {
    std::thread other([&] { what(1); });
    what(0);
    other.join();
  };
  together([&](int i) { EXPECT_OK(streams[i]->StartPass(Pass(1))); });
  for (int death = 0; death < 3; ++death) {
    // Not as far as each other: what one has used, the other still needs.
    together([&](int i) { std::ranges::move(DrainPass(*streams[i], 2 + i), std::back_inserter(seen[i])); });
    server.Kill();
    server.Start();
  }
  together([&](int i) { std::ranges::move(DrainPass(*streams[i]), std::back_inserter(seen[i])); });
  EXPECT_EQ(seen[0], expected);
  EXPECT_EQ(seen[1], expected);
}

}  // namespace
}  // namespace quarry
