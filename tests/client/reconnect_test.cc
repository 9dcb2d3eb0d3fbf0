// Remote stores whose server goes away and comes back: nothing is lost, nothing happens twice, and what
// cannot go on says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "client/fake_server.h"
#include "client/query_util.h"
#include "client/server_process.h"
#include "client/store_util.h"
#include "quarry/embedding/embedding_store.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kSeed = 77;

class ReconnectTest : public testing::Test {
 protected:
  ReconnectTest() : database_({.nodes = 600, .dim = 64}), folder_("reconnect") {}
  std::string socket() const { return folder_ / "s/q.sock"; }
  std::unique_ptr<client::Store> Connect(const std::string& address, double timeout_seconds = 30) {
    auto store = client::Open(address, {.memory_bytes = 128 * kMiB, .timeout_seconds = timeout_seconds});
    EXPECT_OK(store);
    return store.ok() ? std::move(store).value() : nullptr;
  }
  // Rows of random nodes, held against the file's, until told to stop. Returns how many lookups.
  uint64_t LookUp(client::Store& store, uint64_t seed, const std::atomic<bool>& stop) {
    Rng rng(seed);
    uint64_t lookups = 0;
    for (; !stop; ++lookups) {
      std::vector<NodeId> ids(1 + rng.Below(50));
      for (NodeId& id : ids) id = static_cast<NodeId>(rng.Below(600));
      const auto rows = store.Lookup({.table = "feature", .ids = ids});
      EXPECT_OK(rows);
      if (!rows.ok()) break;
      for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_TRUE(
            std::ranges::equal((*rows)->bytes().subspan(i * 256, 256), database_.graph().Row(ids[i])));
      }
    }
    return lookups;
  }

  const TinyDatabase database_;
  const TemporaryFolder folder_;
};

TEST_F(ReconnectTest, LookupsGoOnWhenTheServerIsStartedAnew) {
  TestServer server(database_.path(), socket());
  const auto store = Connect(server.address());
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> lookups{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { lookups += LookUp(*store, MixSeed(kSeed, i), stop); });
  }
  for (int restart = 0; restart < 4; ++restart) {
    std::this_thread::sleep_for(50ms);
    server.Stop();
    std::this_thread::sleep_for(20ms);
    server.Start();
  }
  std::this_thread::sleep_for(50ms);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(lookups, 4u);
}

// States of 6 MiB go in two pieces: a server that is started anew between them has none, and gets both again.
TEST_F(ReconnectTest, StatesAreSavedWholeWhenTheServerIsStartedAnew) {
  TestServer server(database_.path(), socket());
  const auto store = Connect(server.address());
  std::atomic<bool> stop{false};
  uint8_t saved = 0;
  std::thread trainer([&] {
    while (!stop) {
      const std::vector<std::byte> state(6 << 20, static_cast<std::byte>(saved + 1));
      const auto training =
          store->SaveTraining({.name = "run", .settings = std::to_string(saved + 1), .state = state});
      ASSERT_OK(training);
      saved = static_cast<uint8_t>(saved + 1);
    }
  });
  for (int restart = 0; restart < 4; ++restart) {
    std::this_thread::sleep_for(50ms);
    server.Stop();
    server.Start();
  }
  stop = true;
  trainer.join();
  EXPECT_GT(saved, 0);
  const auto last = store->ReadTraining("run");
  ASSERT_OK(last);
  EXPECT_EQ(last->settings, std::to_string(saved));
  EXPECT_TRUE(last->state == std::vector<std::byte>(6 << 20, static_cast<std::byte>(saved)));
  EXPECT_EQ(server.store().manifest()->trainings.size(), 1u);
}

TEST_F(ReconnectTest, APassGoesOnBehindTheBatchesThatWereUsed) {
  const Hashes expected = RoadPass(database_.path(), 6);
  TestServer server(database_.path(), socket());
  const auto store = Connect(server.address());
  auto stream = store->OpenStream(SmallStream());
  ASSERT_OK(stream);
  for (const bool ordered : {true, false}) {
    SCOPED_TRACE(ordered ? "ordered" : "in any order");
    ASSERT_OK((*stream)->StartPass({.seeds = Split::kTrain, .pass = 6, .ordered = ordered}));
    Hashes seen;
    for (int restart = 0; restart < 3; ++restart) {
      std::ranges::move(DrainPass(**stream, 1), std::back_inserter(seen));
      // The batch is held over the restart: what it reads stays as it was.
      auto held = (*stream)->Next();
      ASSERT_TRUE(held.ok() && *held != nullptr) << held.status().ToString();
      server.Stop();
      server.Start();
      seen.emplace_back((*held)->index(), HashBatch((*held)->view()));
    }
    std::ranges::move(DrainPass(**stream), std::back_inserter(seen));
    if (!ordered) std::ranges::sort(seen);
    EXPECT_EQ(seen, expected);
  }
}

TEST_F(ReconnectTest, APassDoesNotGoOnOverOtherRows) {
  TestServer server(database_.path(), socket());
  const auto store = Connect(server.address());
  auto stream = store->OpenStream(SmallStream());
  ASSERT_OK(stream);
  ASSERT_OK((*stream)->StartPass({.seeds = Split::kTrain, .ordered = true}));
  EXPECT_EQ(DrainPass(**stream, 2).size(), 2u);
  server.Stop();
  server.Start();
  ASSERT_OK(store->Put({.tables = {RowsToPut("label", {1}, {BytesOf(int64_t{2})})}}));
  const auto next = (*stream)->Next();
  EXPECT_EQ(next.status().code(), Code::kIoError);
  EXPECT_THAT(next.status().ToString(), HasSubstr("begin the pass again"));
  EXPECT_EQ((*stream)->Next().status().ToString(), next.status().ToString()) << "and again";
  ASSERT_OK((*stream)->StartPass({.seeds = Split::kTrain, .ordered = true}));
  EXPECT_GT(DrainPass(**stream).size(), 2u);
}

TEST_F(ReconnectTest, ASplitPassIsBegunAgain) {
  TestServer server(database_.path(), socket());
  const auto store = Connect(server.address());
  wire::OpenStream request = SmallStream();
  request.mode = wire::StreamMode::kSplit;
  request.group = "mine";
  auto stream = store->OpenStream(request);
  ASSERT_OK(stream);
  ASSERT_OK((*stream)->StartPass({.seeds = Split::kTrain}));
  EXPECT_EQ(DrainPass(**stream, 1).size(), 1u);
  server.Stop();
  server.Start();
  EXPECT_THAT((*stream)->Next().status().ToString(), HasSubstr("begin the pass again"));
  const auto batches = (*stream)->StartPass({.seeds = Split::kTrain});
  ASSERT_OK(batches);
  EXPECT_EQ(DrainPass(**stream).size(), *batches);
}

TEST_F(ReconnectTest, SnapshotsAreTakenAgainUnlessTheyWouldBeOthers) {
  TestServer server(database_.path(), socket());
  const auto store = Connect(server.address());
  auto snapshot = store->TakeSnapshot();
  ASSERT_OK(snapshot);
  const wire::Lookup lookup = {
      .table = "label", .ids = std::vector<NodeId>{1}, .snapshot = (*snapshot)->id()};
  server.Stop();
  server.Start();
  EXPECT_OK(store->Lookup(lookup));
  server.Stop();
  server.Start();
  ASSERT_OK(store->Put({.tables = {RowsToPut("label", {1}, {BytesOf(int64_t{2})})}}));
  EXPECT_THAT(store->Lookup(lookup).status().ToString(), HasSubstr("take another one"));
}

TEST_F(ReconnectTest, APutWhoseAnswerWasLostHappensOnce) {
  TestServer server(database_.path(), socket());
  BreakingWire wire(folder_ / "wire.sock", socket());
  const auto store = Connect(wire.address());
  const wire::Put put = {.tables = {RowsToPut("label", {3}, {BytesOf(int64_t{4})})}};
  const uint64_t before = store->Put(put).value();
  wire.CutBeforeNextAnswer();
  const auto written = store->Put(put);
  ASSERT_OK(written);
  EXPECT_EQ(wire.connections(), 2);
  EXPECT_EQ(*written, before + 1) << "one commit";
  EXPECT_EQ(store->TakeSnapshot().value()->timestamp(), before + 1);
}

TEST_F(ReconnectTest, APutIsSentToAnotherServerUnderANewTimestamp) {
  TestServer server(database_.path(), socket());
  BreakingWire wire(folder_ / "wire.sock", socket());
  const auto store = Connect(wire.address());
  const wire::Put put = {.tables = {RowsToPut("label", {3}, {BytesOf(int64_t{4})})}};
  const uint64_t before = store->Put(put).value();
  wire.on_cut = [&] {
    server.Stop();
    server.Start();
  };
  wire.CutBeforeNextAnswer();
  const auto written = store->Put(put);
  ASSERT_OK(written);
  EXPECT_EQ(*written, before + 2) << "it was done, and done again";
  const auto label = store->Lookup({.table = "label", .ids = std::vector<NodeId>{3}});
  ASSERT_OK(label);
  EXPECT_EQ(At<int64_t>((*label)->bytes(), 0), 4);
}

TEST_F(ReconnectTest, EmbeddingsAreCommittedOnceAndNeverToAnotherServer) {
  {
    const auto backend = MakeDefaultBackend();
    const auto store = quarry::Store::Open(*backend, database_.path()).value();
    ASSERT_OK(CreateEmbeddings(*store, "nodes", {.row_count = 50, .dim = 4}));
  }
  TestServer server(database_.path(), socket());
  BreakingWire wire(folder_ / "wire.sock", socket());
  const auto store = Connect(wire.address());
  const std::vector<uint64_t> ids = {1, 2};
  auto rows = store->ReadEmbeddings("nodes", ids);
  ASSERT_OK(rows);
  (*rows)->arrays().values[0] = 9;
  wire.CutBeforeNextAnswer();
  auto committed = store->CommitEmbeddings(std::vector<client::Store::Update>{{"nodes", rows->get()}});
  ASSERT_OK(committed);
  EXPECT_GE(committed->timestamp, 0) << "the second time it would be stale";
  rows = store->ReadEmbeddings("nodes", ids);
  ASSERT_OK(rows);
  EXPECT_EQ((*rows)->arrays().values[0], 9);
  server.Stop();
  server.Start();
  committed = store->CommitEmbeddings(std::vector<client::Store::Update>{{"nodes", rows->get()}});
  EXPECT_EQ(committed.status().code(), Code::kIoError);
  EXPECT_THAT(committed.status().ToString(), HasSubstr("started anew"));
}

// The wire breaks after 1, 2, ... pieces of what the server sends: whatever was under way goes on.
TEST_F(ReconnectTest, AWireThatBreaksAnywhereBreaksNothing) {
  const Hashes expected = RoadPass(database_.path(), 1);
  TestServer server(database_.path(), socket());
  BreakingWire wire(folder_ / "wire.sock", socket());
  const auto store = Connect(wire.address());
  auto stream = store->OpenStream(SmallStream());
  ASSERT_OK(stream);
  for (int answers = 0; answers < 25; ++answers) {
    SCOPED_TRACE(testing::Message() << "after " << answers);
    wire.CutAfterAnswers(answers);
    ASSERT_OK((*stream)->StartPass({.seeds = Split::kTrain, .pass = 1, .ordered = true}));
    EXPECT_EQ(DrainPass(**stream), expected);
    ASSERT_OK(store->Lookup({.table = "label", .ids = std::vector<NodeId>{1}}));
  }
  EXPECT_GT(wire.connections(), 10);
}

// The server still holds it for the other, which it does not know to be gone.
TEST_F(ReconnectTest, ASessionThatTakesThePlaceOfAnotherHasItsMemory) {
  TestServer server(database_.path(), socket(), 32 * kMiB);
  BreakingWire wire(folder_ / "wire.sock", socket());
  wire.server_lag = 300ms;
  auto store = client::Open(wire.address(), {.memory_bytes = 20 * kMiB, .memory_bytes_min = kMiB});
  ASSERT_OK(store);
  for (int cut = 0; cut < 2; ++cut) {
    wire.CutBeforeNextAnswer();
    ASSERT_OK((*store)->Ping());
    const auto stream = (*store)->OpenStream(SmallStream());
    EXPECT_OK(stream);
  }
}

TEST_F(ReconnectTest, CallsEndWhenTheirTimeIsOver) {
  // Nobody answers.
  FakeServer silent(folder_ / "silent.sock", [](uint64_t, const wire::Request& request) {
    return std::holds_alternative<wire::Hello>(request) || std::holds_alternative<wire::OpenSession>(request)
               ? std::optional(FakeServer::Reply())
               : std::nullopt;
  });
  const auto slow = Connect(silent.address(), 0.2);
  ASSERT_NE(slow, nullptr);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(slow->Ping().code(), Code::kIoError);
  EXPECT_EQ(slow->Lookup({.table = "label", .ids = std::vector<NodeId>{1}}).status().code(), Code::kIoError);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  // Nobody is there any more.
  std::unique_ptr<client::Store> alone;
  {
    TestServer server(database_.path(), socket());
    alone = Connect(server.address(), 0.3);
  }
  const Status lost = alone->Ping();
  EXPECT_EQ(lost.code(), Code::kIoError);
  EXPECT_THAT(lost.ToString(), HasSubstr("no other came in time"));
}

TEST_F(ReconnectTest, AKilledServerIsWaitedFor) {
  const Hashes expected = RoadPass(database_.path(), 8);
  ServerProcess server(database_.path(), socket());
  const auto store = Connect("unix:" + socket());
  ASSERT_NE(store, nullptr);
  auto before = store->TakeSnapshot();
  ASSERT_OK(before);
  auto stream = store->OpenStream(SmallStream());
  ASSERT_OK(stream);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] { EXPECT_GT(LookUp(*store, MixSeed(kSeed, 100 + i), stop), 0u); });
  }
  ASSERT_OK((*stream)->StartPass({.seeds = Split::kTrain, .pass = 8, .ordered = true}));
  Hashes seen;
  for (int death = 0; death < 3; ++death) {
    std::ranges::move(DrainPass(**stream, 2), std::back_inserter(seen));
    server.Kill();
    std::this_thread::sleep_for(30ms);
    server.Start();
  }
  std::ranges::move(DrainPass(**stream), std::back_inserter(seen));
  EXPECT_EQ(seen, expected);
  // Writes that were acknowledged are there, however their server ends.
  uint64_t last = 0;
  for (int64_t round = 0; round < 6; ++round) {
    const auto written = store->Put({.tables = {RowsToPut("label", {9}, {BytesOf(round % 5)})}});
    ASSERT_OK(written);
    EXPECT_GT(*written, last);
    last = *written;
    if (round % 2 == 0) {
      server.Kill();
      server.Start();
    }
    const auto label = store->Lookup({.table = "label", .ids = std::vector<NodeId>{9}});
    ASSERT_OK(label);
    EXPECT_EQ(At<int64_t>((*label)->bytes(), 0), round % 5);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ReconnectTest, StatementsOfAServerThatIsStoppedFailAndTheNextOnesGoOn) {
  ServerProcess server(database_.path(), socket());
  const auto store = Connect("unix:" + socket(), 1);
  const auto sql = store->Connect().value();
  const auto endless = sql->Query(kEndlessRows).value();
  ASSERT_TRUE(endless->Next().value());
  server.Stop();
  Status status;
  const double seconds = SecondsOf([&] {
    while (status.ok()) status = endless->Next().status();  // of pages that are there, some more
  });
  EXPECT_EQ(status.code(), Code::kIoError) << status.ToString();
  EXPECT_THAT(status.ToString(), HasSubstr("has not answered in time"));
  EXPECT_LT(seconds, 10);
  EXPECT_THAT(LinesOf(*sql, "SELECT 1"), ElementsAre(HasSubstr("has not answered in time")));
  server.GoOn();
  EXPECT_THAT(LinesOf(*sql, "SELECT 1"), ElementsAre("1"));
}

// Serves until it is killed.
int Serve(const std::string& database, const std::string& socket) {
  TestServer server(database, socket);
  if (testing::Test::HasFailure()) return 1;
  std::fputc('1', stdout);
  std::fflush(stdout);
  pause();
  return 0;
}

}  // namespace
}  // namespace quarry

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  if (count == 4 && std::string(arguments[1]) == "--serve") return quarry::Serve(arguments[2], arguments[3]);
  return RUN_ALL_TESTS();
}
