// Clients that die, in every state: what they held is free soon, nothing of it is left in memory or
// descriptors, nobody else gets a wrong byte, and what they wrote is there whole or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <thread>

#include "deeds.h"
#include "fault_util.h"
#include "partition/partitioned_store.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/served_sql.h"
#include "storage/store_rows.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using namespace testing_util;         // NOLINT: a test of what it has
using namespace testing_util::deeds;  // NOLINT

constexpr int kWarmUps = 5;                // what the server opens once, and the allocator keeps
constexpr uint64_t kRssSlack = 32 * kMiB;  // of the allocator

// In each state.
int Kills() {
  const char* const kills = std::getenv("QUARRY_TEST_KILLS");
  return kills == nullptr ? 50 : std::max(1, std::atoi(kills) / 6);
}

class KillTest : public FaultTest {
 protected:
  using FaultTest::FaultTest;

  // What there is while nobody is connected.
  struct Ground {
    std::map<std::string, size_t> descriptors;
    size_t rings = 0;
    uint64_t rss = 0;
  };

  // Once what goes has gone.
  Ground TakeGround() {
    EXPECT_TRUE(NobodyIsHeld());
    std::map<std::string, size_t> before;
    Eventually([&] { return std::exchange(before, Descriptors()) == Descriptors() && IsStill(before); });
    return {before, Rings(), CurrentRssBytes()};
  }
  void ExpectAsBefore(const Ground& ground) {
    EXPECT_TRUE(NobodyIsHeld()) << Held().first << " bytes, " << Held().second << " sessions";
    EXPECT_TRUE(Eventually([&] { return Descriptors() == ground.descriptors; }))
        << testing::PrintToString(Descriptors()) << " instead of "
        << testing::PrintToString(ground.descriptors);
    const size_t rings_max = ground.rings + ServerOptions().workers;  // who had none yet has one by now
    EXPECT_TRUE(Eventually([&] { return Rings() <= rings_max; })) << Rings() << " of " << rings_max;
    const uint64_t rss = CurrentRssBytes();
    EXPECT_TRUE(IsInstrumented() || rss < ground.rss + kRssSlack) << rss << " instead of " << ground.rss;
  }

  void KillMany(Zygote::Deed deed) {
    SCOPED_TRACE(kFaultSeed);
    GoodClient(served_).Once();
    for (int round = 0; round < kWarmUps; ++round) Kill(deed, static_cast<uint64_t>(round));
    const Ground ground = TakeGround();
    {
      GoodClient good(served_);
      const std::pair<double, double> held = Held();
      good.Start();
      for (int round = 0; round < Kills(); ++round) Kill(deed, static_cast<uint64_t>(kWarmUps + round));
      EXPECT_TRUE(Eventually([&] { return Held() == held; })) << Held().first << " bytes, " << Held().second;
      const uint64_t rounds = good.rounds();
      EXPECT_TRUE(Eventually([&] { return good.rounds() > rounds + 3; })) << "the others go on";
      good.Stop();
    }
    ExpectAsBefore(ground);
  }

  // As another client reads them; nothing when it cannot.
  std::vector<std::byte> FirstRows(const std::string& table, size_t count) {
    WirePeer peer(served_.socket());
    EXPECT_TRUE(Open(peer));
    std::vector<NodeId> ids(count);
    std::iota(ids.begin(), ids.end(), NodeId{0});
    const auto rows = peer.CallFor<wire::Rows>(wire::Lookup{table, ids});
    EXPECT_OK(rows);
    if (!rows.ok()) return {};
    auto bytes = peer.Take(rows->payload);
    EXPECT_OK(bytes);
    return bytes.ok() ? std::move(bytes).value() : std::vector<std::byte>();
  }

 private:
  static bool IsStill(const std::map<std::string, size_t>& before) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return Descriptors() == before;
  }
};

TEST_F(KillTest, ClientsThatDieBeforeTheyHaveSaidAnything) {
  KillMany([](const std::string& socket, uint64_t) { return Peer(socket).fd() >= 0; });
}

TEST_F(KillTest, ClientsThatDieInTheMiddleOfAFrame) {
  KillMany([](const std::string& socket, uint64_t round) {
    const auto frame = wire::EncodeRequest(1, wire::Hello{});
    return Peer(socket).SendBytes(std::span(*frame).first(1 + round % (frame->size() - 1)));
  });
}

TEST_F(KillTest, ClientsThatDieOnceTheyAreGreeted) {
  KillMany([](const std::string& socket, uint64_t) { return Peer(socket).Hello().ok(); });
}

TEST_F(KillTest, ClientsThatDieWhileTheyWaitForMemory) {
  KillMany([](const std::string& socket, uint64_t) {
    WirePeer& peer = Peer(socket);
    if (!peer.Hello().ok()) return false;
    const uint64_t all = ServedDatabase::kBudgetBytes / 4 * 3;
    peer.Send(wire::OpenSession{.budget_bytes = all, .budget_bytes_min = all, .wait_ms = 60'000});
    return true;
  });
}

TEST_F(KillTest, ClientsThatDieWithASessionOpen) {
  KillMany([](const std::string& socket, uint64_t) { return Open(Peer(socket)); });
}

TEST_F(KillTest, ClientsThatDieWhileBatchesAreMadeForThem) { KillMany(Stream); }

TEST_F(KillTest, ClientsThatDieWhilePartsSwapForThem) {
  const uint64_t nodes = served_.store->manifest()->node_count;
  MemoryBudget budget(kGiB);
  ASSERT_OK(BuildPartitioning(*served_.store, budget, {.table = "feature"},
                              testing_util::RandomAssignment(nodes, 8, 7), {}));
  KillMany(StreamParts);
}

TEST_F(KillTest, ClientsThatDieHoldingLeasesAndSnapshots) { KillMany(HoldLeases); }

TEST_F(KillTest, ClientsThatDieWhileTheyPutLeaveWholeRows) {
  KillMany(Put);
  const std::vector<std::byte> bytes = FirstRows("feature", 4);
  ASSERT_EQ(bytes.size(), 4u * 512);
  for (NodeId row = 0; row < 4; ++row) {
    std::vector<float> values(128);
    std::memcpy(values.data(), &bytes[row * 512], 512);
    const bool written = std::ranges::all_of(values, [&](float value) { return value == values[0]; });
    EXPECT_TRUE(written || std::memcmp(values.data(), served_.tiny.graph().Row(row).data(), 512) == 0) << row;
  }
}

TEST_F(KillTest, ClientsThatDieWhileTheyCommitLeaveWholeRows) {
  KillMany(Commit);
  WirePeer peer(served_.socket());
  ASSERT_TRUE(Open(peer));
  ASSERT_OK_AND_ASSIGN(const auto read, peer.CallFor<wire::EmbeddingRows>(
                                            wire::ReadEmbeddings{"nodes", std::vector<uint64_t>{1, 2}}));
  auto block = peer.Take(read.payload);
  const auto arrays = wire::OpenRowBlock(std::span(*block), {2, 16, 16});
  EXPECT_EQ(arrays->timestamps[0], arrays->timestamps[1]);
  for (const float value : arrays->values) EXPECT_EQ(value, arrays->values[0]);
}

TEST_F(KillTest, ClientsThatDieWhileTheyUploadLeaveWholePuts) {
  KillMany(Upload);
  const std::vector<std::byte> bytes = FirstRows("feature", kUntouched);
  ASSERT_FALSE(bytes.empty());
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  EXPECT_EQ(std::ranges::count(values, values[0]), std::ssize(values)) << "of one put";
}

TEST_F(KillTest, ClientsThatDieHalfWayThroughAPutInPiecesLeaveAllOfItOrNothing) {
  KillMany(PutPieces);
  const std::vector<std::byte> bytes = FirstRows("feature", kPiecesRows);
  ASSERT_FALSE(bytes.empty());
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  EXPECT_EQ(std::ranges::count(values, values[0]), std::ssize(values)) << "of one put";
  EXPECT_TRUE(Eventually([&] { return served_.store->BeginLargeWrite().ok(); })) << "none is under way";
}

class GrowthKillTest : public KillTest {
 protected:
  // Every change that is there is whole, and some are.
  void ExpectWholeChanges() {
    ASSERT_TRUE(Eventually([&] { return served_.store->HoldRuns(Store::RunsRight::kMake) != nullptr; }))
        << "a change is under way";
    const uint64_t before = served_.tiny.graph().nodes, now = served_.store->manifest()->node_count;
    ASSERT_GT(now, before);
    ASSERT_EQ((now - before) % kGrownAtOnce, 0u);
    const std::vector<std::byte> rows = FirstRows("feature", now), labels = FirstRows("label", now);
    ASSERT_EQ(rows.size(), now * 512);
    ASSERT_EQ(labels.size(), now * 8);
    ASSERT_OK_AND_ASSIGN(const auto topology, served_.store->OpenTopology("graph"));
    ASSERT_OK(topology->LoadIndices(served_.store->backend(), Adjacency::kCsc));
    const std::span<const uint64_t> indptr = topology->indptr(Adjacency::kCsc);
    const std::span<const NodeId> indices = topology->indices(Adjacency::kCsc);
    for (uint64_t node = before; node < now; ++node) {
      const uint64_t place = (node - before) % kGrownAtOnce, first = node - place;
      std::vector<float> values(128), of_first(128);
      std::memcpy(values.data(), &rows[node * 512], 512);
      std::memcpy(of_first.data(), &rows[first * 512], 512);
      ASSERT_EQ(values, of_first) << "row " << node;
      ASSERT_EQ(std::ranges::count(values, values[0]), std::ssize(values)) << "row " << node;
      int64_t label = 0;
      std::memcpy(&label, &labels[node * 8], 8);
      ASSERT_EQ(label, static_cast<int64_t>(values[0]) % 5) << "label of " << node;
      const auto list = indices.subspan(indptr[node], indptr[node + 1] - indptr[node]);
      ASSERT_THAT(std::vector<NodeId>(list.begin(), list.end()),
                  testing::ElementsAre(place, first + (place + 1) % kGrownAtOnce))
          << "list of " << node;
    }
    EXPECT_EQ(FaultsIn(*served_.store), "");
  }
};

TEST_F(GrowthKillTest, ClientsThatDieWhileTheyChangeTheGraphLeaveWholeChanges) {
  KillMany(Grow);
  ExpectWholeChanges();
}

TEST_F(GrowthKillTest, ClientsThatDieHalfWayThroughAChangeOfTheGraphLeaveAllOfItOrNothing) {
  KillMany(GrowInPieces);
  ExpectWholeChanges();
}

TEST_F(KillTest, ClientsThatDieHalfWayThroughATrainingsStateLeaveTheOneBefore) {
  KillMany(SaveTraining);
  WirePeer peer(served_.socket());
  ASSERT_TRUE(Open(peer));
  const auto training = peer.CallFor<wire::Training>(wire::ReadTraining{.name = "run"});
  ASSERT_OK(training) << "every other state had come up whole";
  ASSERT_OK_AND_ASSIGN(const auto state, peer.Take(training->state));
  EXPECT_EQ(state.size(), size_t{1} << 20);
  EXPECT_EQ(std::ranges::count(state, state.front()), std::ssize(state)) << "of one client";
  const std::filesystem::directory_iterator files(served_.tiny.path() + "/training");
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "of the others nothing is left";
}

// ---- with SQL. A statement's snapshot goes with its session's memory, which is looked at.

class SqlKillTest : public KillTest {
 protected:
  SqlKillTest() : KillTest(uint64_t{1} << 30) {}
  ServerOptions Options() override { return {.sql = MakeSqlRunner(*served_.store)}; }
};

TEST_F(SqlKillTest, ClientsThatDieHoldingACursor) { KillMany(HoldCursor); }

TEST_F(SqlKillTest, ClientsThatDieWhileTheirStatementRuns) { KillMany(RunStatement); }

TEST_F(SqlKillTest, ClientsThatDieInATransactionLeaveAllOfItOrNothing) {
  KillMany(HoldTransaction);
  const std::vector<std::byte> bytes = FirstRows("label", kLabelsWritten);
  ASSERT_EQ(bytes.size(), kLabelsWritten * sizeof(int64_t));
  std::vector<int64_t> labels(kLabelsWritten), before;
  std::memcpy(labels.data(), bytes.data(), bytes.size());
  for (NodeId id = 0; id < kLabelsWritten; ++id) before.push_back(served_.tiny.graph().Label(id));
  const std::vector<int64_t> after(kLabelsWritten, kLabelWritten);
  EXPECT_TRUE(labels == before || labels == after) << testing::PrintToString(labels);
}

// ---- members of groups, of which another one goes on

class Survivor {
 public:
  Survivor(const ServedDatabase& served, wire::StreamMode mode, uint64_t number) : peer_(served.socket()) {
    EXPECT_OK(peer_.Open(8 * kMiB, wire::kSharedMemory, static_cast<uint8_t>(100 + number)));
    const auto opened = peer_.OpenStream(
        {.road = FaultRoad(), .mode = mode, .group = fmt::format("group-{}", number), .members = 2});
    EXPECT_OK(opened);
    stream_ = opened->stream;
  }
  // One pass; the other member dies meanwhile, and every batch of it comes here, once.
  void Pass() {
    ASSERT_OK_AND_ASSIGN(const auto started,
                         peer_.CallFor<wire::PassStarted>(wire::StartPass{.stream = stream_}));
    std::vector<uint64_t> batches;
    while (true) {
      ASSERT_OK_AND_ASSIGN(const auto next, peer_.Call(wire::NextBatch{stream_}));
      const auto* const batch = std::get_if<wire::Batch>(&next);
      if (batch == nullptr) break;
      batches.push_back(batch->index);
      peer_.Send(wire::ReleaseLeases{{std::get<wire::Lease>(batch->payload).id}});
    }
    std::ranges::sort(batches);
    std::vector<uint64_t> all(started.batches);
    std::iota(all.begin(), all.end(), uint64_t{0});
    EXPECT_EQ(batches, all);
  }

 private:
  WirePeer peer_;
  uint64_t stream_ = 0;
};

class GroupKillTest : public KillTest {
 protected:
  GroupKillTest() : KillTest(uint64_t{1} << 30) {}

  // In so many groups at a time: where the place of a lost member is kept, each kill takes two seconds.
  void KillMembers(wire::StreamMode mode, Zygote::Deed deed, int groups) {
    std::vector<std::unique_ptr<Survivor>> survivors;
    for (int i = 0; i < groups; ++i) {
      survivors.push_back(std::make_unique<Survivor>(served_, mode, static_cast<uint64_t>(i)));
    }
    for (int killed = 0; killed < Kills(); killed += groups) {
      std::vector<Zygote::Child> children;
      for (int i = 0; i < groups; ++i) {
        children.push_back(Zygote::Instance().Fork(deed, served_.socket(), static_cast<uint64_t>(i)));
        EXPECT_TRUE(children.back().done) << "the deed failed";
      }
      std::vector<std::thread> passes;
      for (const auto& survivor : survivors) passes.emplace_back([&survivor] { survivor->Pass(); });
      for (const Zygote::Child& child : children) {
        std::this_thread::sleep_for(
            std::chrono::microseconds(MixSeed(kFaultSeed, static_cast<uint64_t>(child.pid)) % 2000));
        EndChild(child);
      }
      for (std::thread& pass : passes) pass.join();
    }
  }
  void KillGroupMembers(wire::StreamMode mode, Zygote::Deed deed, int groups) {
    GoodClient(served_).Once();
    const Ground ground = TakeGround();
    {
      GoodClient good(served_);
      good.Start();
      KillMembers(mode, deed, groups);
      good.Stop();
    }
    ExpectAsBefore(ground);
  }
};

TEST_F(GroupKillTest, MembersOfASharedGroupThatDieLeaveTheOthersAllBatches) {
  KillGroupMembers(wire::StreamMode::kShared, JoinGroup<wire::StreamMode::kShared>, 25);
}

TEST_F(GroupKillTest, MembersOfASplitGroupThatDieLeaveTheirBatchesToTheOthers) {
  KillGroupMembers(wire::StreamMode::kSplit, JoinGroup<wire::StreamMode::kSplit>, 1);
}

}  // namespace
}  // namespace quarry

int main(int count, char** arguments) {
  quarry::testing_util::Zygote::Instance();
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
