// What streams take of a budget: that what is said to be enough is, batches that are larger than expected,
// and requests that are too large to look at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "partition/partitioned_store.h"
#include "quarry/layout/layout.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/service/allowance.h"
#include "quarry/service/road_opener.h"
#include "server/hub_util.h"
#include "server/served_database.h"
#include "support/status_matchers.h"
#include "support/thread_faults.h"

namespace quarry {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing_util::Eventually;
using testing_util::Exclusive;
using testing_util::HubUser;
using testing_util::HubWorld;
using testing_util::OpenDescriptors;
using testing_util::PendingBatch;
using testing_util::RunPass;
using testing_util::SmallLive;
using testing_util::SmallOptions;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

using Hashes = std::vector<std::pair<uint64_t, uint64_t>>;

Status OpenWith(HubWorld& world, uint64_t bytes, const wire::OpenStream& request) {
  world.budget = std::make_shared<MemoryBudget>(bytes);
  HubUser user = world.User();
  const Status status = user.Open(request);
  if (status.ok()) {
    EXPECT_OK(user.Close());
  }
  world.ExpectBudgetFree();
  return status;
}

TEST(StreamLimitsTest, TheLeastThatIsStatedIsEnough) {
  TinyGraph graph;
  graph.dim = 1024;  // batches are most of it
  const TinyDatabase database(graph);
  HubWorld world({}, database);
  int stated = 0;
  for (uint64_t bytes = 512 * kKiB; bytes < 16 * kMiB; bytes += 768 * kKiB) {
    const Status refused = OpenWith(world, bytes, Exclusive());
    if (refused.ok()) break;
    ASSERT_EQ(refused.code(), Code::kOutOfBudget) << refused.ToString();
    const std::string text(refused.message());
    std::smatch least;
    if (!std::regex_search(text, least, std::regex("(budget of|at least) ([0-9]+)MiB"))) continue;
    ++stated;
    const Status status = OpenWith(world, std::stoull(least[2]) * kMiB, Exclusive());
    EXPECT_OK(status) << text << "; and then: ";
  }
  EXPECT_GT(stated, 2);
}

// Nodes of a split have no neighbors, so small batches are expected; the others have.
class LargeBatchesTest : public testing::Test {
 protected:
  static TinyGraph Graph() {
    TinyGraph graph;
    graph.lonely_from = 300;
    graph.split_from = 300;
    return graph;
  }
  static wire::LiveSpec Live() {
    wire::LiveSpec live = SmallLive();
    live.cache_bytes = 600 * 512;  // all rows: the road itself takes any batch
    return live;
  }
  // Eight batches of 32, `large` seeds of each with neighbors, in order.
  static std::vector<NodeId> Seeds(uint32_t large) {
    std::vector<NodeId> seeds;
    for (uint32_t batch = 0; batch < 8; ++batch) {
      for (uint32_t i = 0; i < 32; ++i) {
        seeds.push_back(i < large ? 20 + batch * 32 + i : 300 + batch * 32 + i);
      }
    }
    return seeds;
  }
  Hashes Expected(const std::vector<NodeId>& seeds) {
    LiveRoadOptions options = SmallOptions();
    options.spec.cache_bytes = Live().cache_bytes;
    world_.open.Reopen(options);
    return RunPass(*world_.open.road, {.seeds = seeds, .shuffle = false, .ordered = true});
  }
  static wire::StartPass Pass(const std::vector<NodeId>& seeds) {
    return {.seeds = wire::NodeIds(seeds), .shuffle = false, .ordered = true};
  }
  // A stream that may hold two batches, since the budget allows no more: the least that opens it.
  HubUser UserOfTwoSlots() {
    uint64_t refused = 0, enough = 64 * kMiB;
    while (enough - refused > 16 * kKiB) {
      const uint64_t bytes = (refused + enough) / 2;
      (OpenWith(world_, bytes, Exclusive(Live())).ok() ? enough : refused) = bytes;
    }
    world_.budget = std::make_shared<MemoryBudget>(enough);
    HubUser user = world_.User();
    const Status status = user.Open(Exclusive(Live()));
    EXPECT_OK(status);
    EXPECT_EQ(user.opened.slots, 2u);
    return user;
  }

  const TinyDatabase database_{Graph()};
  HubWorld world_{{.lag_max = milliseconds(100)}, database_};
};

TEST_F(LargeBatchesTest, ABatchThatIsLargerThanExpectedFitsBesideOneThatIsHeld) {
  const std::vector<NodeId> seeds = Seeds(2);
  const Hashes expected = Expected(seeds);
  HubUser user = UserOfTwoSlots();
  const uint64_t expected_bytes = user.opened.region->bytes().size() / 4;  // two places, each twice that
  ASSERT_OK(user.Start(Pass(seeds)));
  Hashes hashes;
  uint64_t larger = 0;
  std::optional<StreamBatch> held;
  while (true) {
    const testing_util::NextResult next = user.Next();
    ASSERT_OK(next);
    if (held) user.Release(*held);
    held = *next;
    if (!held) break;
    hashes.emplace_back(held->index, user.Hash(*held));
    larger += held->bytes > expected_bytes ? 1 : 0;
  }
  EXPECT_EQ(hashes, expected);
  EXPECT_GT(larger, 4u) << "this tests nothing";
}

TEST_F(LargeBatchesTest, OneThatFitsOnlyWhereAnotherIsHeldIsNotWaitedForForEver) {
  const std::vector<NodeId> seeds = Seeds(5);
  const Hashes expected = Expected(seeds);
  HubUser user = UserOfTwoSlots();
  ASSERT_OK(user.Start(Pass(seeds)));
  const StreamBatch held = **user.Next();
  const Status refused = user.Next().status();
  EXPECT_EQ(refused.code(), Code::kOutOfBudget);
  EXPECT_THAT(refused.message(), HasSubstr("release each before the next"));
  EXPECT_EQ(user.Hash(held), expected[0].second);
  user.Release(held);
  ASSERT_OK(user.Start(Pass(seeds)));
  Hashes hashes;
  const Status drained = user.Drain(hashes);  // one after the other
  EXPECT_OK(drained);
  EXPECT_EQ(hashes, expected);
}

TEST(StreamLimitsTest, ABatchThatTheBudgetCannotHoldIsNotSampledToTheEnd) {
  TinyGraph graph;
  graph.nodes = 60'000;
  graph.dim = 1;
  const TinyDatabase database(graph);
  HubWorld world({}, database);
  wire::LiveSpec live = SmallLive();
  live.batch_size = 60'000;
  live.fanouts = {1024, 1024, 1024};
  const Status status = OpenWith(world, 4 * kMiB, Exclusive(live));
  EXPECT_EQ(status.code(), Code::kOutOfBudget);
  EXPECT_THAT(status.message(), HasSubstr("one batch of 60000 seeds with fanouts 1024,1024,1024"));
  EXPECT_THAT(status.message(), HasSubstr("lower the batch size or the fanouts"));
}

// What the system lets a process have: threads and descriptors.
TEST(StreamLimitsTest, StreamsAreRefusedBeforeTheyTakeThreadsOrDescriptorsThatAreNotTheirs) {
  const StreamCost cost = CostOf(Exclusive());
  for (const bool threads : {true, false}) {
    const uint64_t limit = 3 * (threads ? cost.threads : cost.descriptors) + 1;
    Allowance allowance(limit + 5, 5, UINT64_MAX, threads ? "threads" : "descriptors", "raise it");
    HubWorld world(threads ? StreamHubOptions{.threads = &allowance}
                           : StreamHubOptions{.descriptors = &allowance});
    std::vector<HubUser> users;
    for (SessionId session = 1; session <= 3; ++session) {
      users.push_back(world.User(session));
      ASSERT_OK(users.back().Open(Exclusive()));
    }
    const size_t there = OpenDescriptors();
    HubUser late = world.User(4);
    const Status refused = late.Open(Exclusive());
    EXPECT_EQ(refused.code(), Code::kOutOfBudget);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(fmt::format("of the server's {} for streams and clients 1 are left", limit)));
    EXPECT_EQ(OpenDescriptors(), there);
    EXPECT_OK(users[1].Close());
    EXPECT_TRUE(Eventually([&] { return late.Open(Exclusive()).ok(); })) << "what one gave back";
    for (HubUser* user : {&users[0], &users[2], &late}) EXPECT_OK(user->Close());
    EXPECT_TRUE(Eventually([&] { return allowance.used() == 0; }));
  }
}

size_t ThreadsThatRun() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST(StreamLimitsTest, AStreamTakesNoMoreThanItIsCounted) {
  HubWorld world;
  ASSERT_OK(BuildLayout(*world.open.store, *world.open.budget,
                        {.road = {.fanouts = SmallOptions().spec.fanouts,
                                  .batch_size = SmallOptions().spec.batch_size,
                                  .seed = SmallOptions().spec.seed}},
                        false, {}));
  const uint64_t nodes = world.open.store->manifest()->node_count;
  ASSERT_OK(BuildPartitioning(*world.open.store, *world.open.budget, {.table = "feature"},
                              testing_util::RandomAssignment(nodes, 8, 7), {}));
  world.open.road.reset();
  const wire::OpenStream requests[] = {Exclusive(), Exclusive(wire::PlannedSpec{.layout = "default"}),
                                       Exclusive(wire::PlannedSpec{.layout = "default", .live = SmallLive()}),
                                       Exclusive(wire::SuperbatchSpec{.live = SmallLive()}),
                                       Exclusive(wire::PartitionedSpec{.live = SmallLive(), .buffer = 3})};
  for (const wire::OpenStream& request : requests) {
    SCOPED_TRACE(request.road.index());
    const StreamCost cost = CostOf(request);
    const size_t descriptors = OpenDescriptors(), threads = ThreadsThatRun();
    HubUser user = world.User();
    ASSERT_OK(user.Open(request));
    ASSERT_OK(user.Start({.seeds = Split::kTrain}));
    for (auto next = user.Next(); next.ok() && next->has_value(); next = user.Next()) {
      EXPECT_LE(OpenDescriptors() - descriptors, cost.descriptors);
      EXPECT_LE(ThreadsThatRun() - threads, cost.threads + 2) << "helpers that come and go";
      user.Release(**next);
    }
    EXPECT_OK(user.Close());
    world.ExpectBudgetFree();
  }
  EXPECT_OK(DropLayout(*world.open.store, "default"));
  EXPECT_OK(DropPartitioning(*world.open.store, "default"));
}

TEST(StreamLimitsTest, AStreamWithoutThreadsIsRefusedAndTheNextIsThere) {
  HubWorld world;
  const auto expected = world.Expected(1);
  world.open.road.reset();
  const auto pass = [&]() -> Status {
    HubUser user = world.User();
    QUARRY_RETURN_IF_ERROR(user.Open(Exclusive()));
    Hashes hashes;
    Status status = user.Start({.seeds = Split::kTrain, .pass = 1, .ordered = true}).status();
    if (status.ok()) status = user.Drain(hashes);
    if (status.ok()) {
      EXPECT_EQ(hashes, expected);
    }
    EXPECT_OK(user.Close());
    return status;
  };
  EXPECT_GT(FailEveryThreadStart(pass, [&] { EXPECT_OK(pass()); }), 4U);
  world.ExpectBudgetFree();
}

}  // namespace
}  // namespace quarry
