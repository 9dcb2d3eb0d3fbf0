#include "quarry/service/stream_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "answer_queue.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/pipeline/superbatch_road.h"
#include "server/hub_util.h"
#include "support/gate_backend.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing_util::Exclusive;
using testing_util::GateBackend;
using testing_util::HubUser;
using testing_util::HubWorld;
using testing_util::NextResult;
using testing_util::Pending;
using testing_util::PendingBatch;
using testing_util::RunPass;
using testing_util::SmallLive;
using testing_util::SmallOptions;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

using Hashes = std::vector<std::pair<uint64_t, uint64_t>>;

LayoutSpec SmallSpec() {
  LayoutSpec spec;
  spec.road = SmallOptions().spec;
  spec.epochs = 2;
  spec.road.cache_bytes = 40 * 512;
  return spec;
}

void BuildSmallLayout(HubWorld& world) {
  const auto built = BuildLayout(*world.open.store, *world.open.budget, SmallSpec(), false, {});
  ASSERT_OK(built);
}

// Opens the stream, and expects of each pass what `road` gives.
void ExpectBatchesOf(HubWorld& world, Road& road, const wire::OpenStream& request,
                     const std::vector<wire::StartPass>& passes) {
  HubUser user = world.User();
  const Status opened = user.Open(request);
  ASSERT_OK(opened);
  EXPECT_EQ(user.opened.feature_dim, road.feature_dim());
  EXPECT_EQ(user.opened.slots, 4u);
  EXPECT_EQ(user.opened.region->access(), wire::RegionAccess::kClientReads);
  for (const wire::StartPass& pass : passes) {
    SCOPED_TRACE(testing::Message() << "pass " << pass.pass << (pass.ordered ? ", ordered" : ""));
    PassOptions options{.shuffle = pass.shuffle, .pass = pass.pass, .ordered = true};
    if (const Split* split = std::get_if<Split>(&pass.seeds)) {
      options.seeds = *split == Split::kTrain ? road.TrainNodes() : road.SplitNodes(*split);
    } else {
      options.seeds = std::get<0>(std::get<wire::NodeIds>(pass.seeds));
    }
    const Hashes expected = RunPass(road, options);
    const Result<uint64_t> count = user.Start(pass);
    ASSERT_OK(count);
    EXPECT_EQ(*count, expected.size());
    Hashes hashes;
    const Status drained = user.Drain(hashes);
    ASSERT_OK(drained);
    if (!pass.ordered) std::ranges::sort(hashes);
    EXPECT_EQ(hashes, expected);
    EXPECT_EQ(user.Stats()->batches, expected.size());
    const NextResult again = user.Next();
    EXPECT_TRUE(again.ok() && !*again);
  }
  EXPECT_OK(user.Close());
  world.ExpectBudgetFree();
}

TEST(StreamHubTest, LiveBatchesAreThoseOfTheRoadByteForByte) {
  for (const ElementType type : {ElementType::kFloat32, ElementType::kInt8}) {
    TinyGraph graph;
    graph.type = type;
    graph.dim = 97;
    const TinyDatabase database(graph);
    HubWorld world({}, database);
    ExpectBatchesOf(
        world, *world.open.road, Exclusive(),
        {{.pass = 1, .ordered = true},
         {.pass = 2},
         {.seeds = Split::kValid, .shuffle = false, .ordered = true},
         {.seeds = wire::NodeIds(std::vector<NodeId>{599, 3, 0, 77}), .shuffle = false, .ordered = true},
         {.seeds = wire::NodeIds(std::vector<NodeId>())}});
  }
}

TEST(StreamHubTest, PlannedBatchesAreThoseOfTheRoadByteForByte) {
  HubWorld world;
  BuildSmallLayout(world);
  const auto road = PlannedRoad::Open(*world.open.store, *world.open.budget, {.live = SmallOptions()});
  ASSERT_OK(road);
  ExpectBatchesOf(world, **road, Exclusive(wire::PlannedSpec{.live = SmallLive()}),
                  {{.pass = 1, .ordered = true},
                   {.pass = 2, .ordered = true},
                   {.seeds = Split::kTest, .ordered = true},
                   {.pass = 3, .ordered = true}});
}

TEST(StreamHubTest, SuperbatchesAreThoseOfTheRoadByteForByte) {
  for (const bool replace : {false, true}) {
    SCOPED_TRACE(replace);
    HubWorld world;
    wire::SuperbatchSpec spec{.live = SmallLive()};
    spec.live.replace = replace;
    LiveRoadOptions live = SmallOptions();
    live.spec.replace = replace;
    LayoutSpec layout = SmallSpec();
    layout.road = live.spec;
    layout.packing = Packing::kCheaper;
    const auto road =
        SuperbatchRoad::Open(*world.open.store, *world.open.budget, {.layout = layout, .live = live});
    ASSERT_OK(road);
    ExpectBatchesOf(world, **road, Exclusive(spec),
                    {{.pass = 1, .ordered = true}, {.pass = 2, .ordered = true}, {.seeds = Split::kValid}});
  }
}

TEST(StreamHubTest, AMemberHoldsAsManyBatchesAsItHasSlots) {
  HubWorld world;
  HubUser user = world.User();
  ASSERT_OK(user.Open(Exclusive()));
  ASSERT_OK(user.Start({.ordered = true}));
  std::vector<StreamBatch> held;
  for (uint32_t slot = 0; slot < user.opened.slots; ++slot) held.push_back(**user.Next());
  const PendingBatch fifth = user.AskNext(), sixth = user.AskNext();
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(fifth.answered());
  const auto states = world.hub->Streams();
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].held, 4u);
  EXPECT_EQ(states[0].waiting, 2u);
  EXPECT_EQ(states[0].batches, 4u);
  EXPECT_EQ(states[0].road, "live");
  user.Release(held[2]);
  EXPECT_EQ((**fifth.Get()).index, 4u);
  EXPECT_EQ((**fifth.Get()).offset, held[2].offset);
  user.Release(held[2]);  // of what is not held: nothing
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(sixth.answered());
  const Hashes expected = world.Expected(0);
  for (const size_t i : {0, 1, 3}) EXPECT_EQ(user.Hash(held[i]), expected[i].second);
}

TEST(StreamHubTest, NextThatIsCancelledTakesNoBatch) {
  HubWorld world;
  HubUser user = world.User();
  ASSERT_OK(user.Open(Exclusive()));
  ASSERT_OK(user.Start({.ordered = true}));
  std::vector<StreamBatch> held;
  for (uint32_t slot = 0; slot < user.opened.slots; ++slot) held.push_back(**user.Next());
  const PendingBatch fourth = user.AskNext(7), fifth = user.AskNext(8);
  user.CancelNext(7);
  user.CancelNext(99);
  EXPECT_EQ(fourth.Get().status().code(), Code::kCancelled);
  user.Release(held[0]);
  EXPECT_EQ((**fifth.Get()).index, 4u);
}

TEST(StreamHubTest, AnotherPassTakesThePlaceOfTheOneThatRuns) {
  HubWorld world;
  HubUser user = world.User();
  ASSERT_OK(user.Open(Exclusive()));
  EXPECT_EQ(user.Next().status().code(), Code::kUsage);
  ASSERT_OK(user.Start({.pass = 1, .ordered = true}));
  std::vector<StreamBatch> held;
  for (uint32_t slot = 0; slot < user.opened.slots; ++slot) held.push_back(**user.Next());
  const uint64_t hash = user.Hash(held[0]);
  const PendingBatch waiting = user.AskNext();
  const Pending<uint64_t> started = user.AskStart({.pass = 2, .ordered = true});
  EXPECT_EQ(waiting.Get().status().code(), Code::kCancelled);
  EXPECT_OK(started.Get());
  EXPECT_EQ(user.Hash(held[0]), hash);  // leases outlive the pass
  for (const StreamBatch& batch : held) user.Release(batch);
  Hashes hashes;
  EXPECT_OK(user.Drain(hashes));
  EXPECT_EQ(hashes, world.Expected(2));
}

TEST(StreamHubTest, PassesThatFollowEachOtherAtOnceEndInTheLast) {
  HubWorld world;
  HubUser user = world.User();
  ASSERT_OK(user.Open(Exclusive()));
  std::vector<Pending<uint64_t>> starts;
  for (uint64_t pass = 1; pass <= 20; ++pass)
    starts.push_back(user.AskStart({.pass = pass, .ordered = true}));
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const Status status = starts[i].Get().status();
    EXPECT_TRUE(status.ok() || status.code() == Code::kCancelled) << status.ToString();
  }
  EXPECT_OK(starts.back().Get());
  Hashes hashes;
  EXPECT_OK(user.Drain(hashes));
  EXPECT_EQ(hashes, world.Expected(20));
}

TEST(StreamHubTest, WhatCannotBeIsRefused) {
  HubWorld world;
  HubUser user = world.User();
  wire::LiveSpec unknown = SmallLive();
  unknown.feature_table = "nope";
  EXPECT_EQ(user.Open(Exclusive(unknown)).code(), Code::kNotFound);
  EXPECT_EQ(user.Open(Exclusive(wire::PlannedSpec{.layout = "nope"})).code(), Code::kNotFound);
  EXPECT_EQ(user.Start({}).status().code(), Code::kUsage);
  EXPECT_EQ(user.Next().status().code(), Code::kUsage);
  EXPECT_EQ(user.Close().code(), Code::kUsage);
  EXPECT_EQ(user.Stats().status().code(), Code::kUsage);
  EXPECT_TRUE(world.hub->Streams().empty());

  ASSERT_OK(user.Open(Exclusive()));
  const auto ids = [](std::vector<NodeId> values) { return wire::StartPass{.seeds = wire::NodeIds(values)}; };
  const Status beyond = user.Start(ids({1, 600})).status();
  EXPECT_EQ(beyond.code(), Code::kInvalidArgument);
  EXPECT_THAT(beyond.message(), HasSubstr("seed 600"));
  EXPECT_THAT(user.Start(ids({4, 1, 4})).status().message(), HasSubstr("seed 4 is given twice"));
  EXPECT_EQ(user.Next().status().code(), Code::kInvalidArgument);  // of the pass that did not begin
  HubUser other = world.User(2);
  other.opened = user.opened;  // another session's stream
  EXPECT_EQ(other.Next().status().code(), Code::kUsage);
  EXPECT_EQ(other.Close().code(), Code::kUsage);
  EXPECT_OK(user.Start({}));
}

TEST(StreamHubTest, ASessionHasALimitOfStreams) {
  HubWorld world;
  for (size_t i = 0; i <= StreamHub::kStreamsMax; ++i) {  // what has failed does not count
    EXPECT_EQ(world.User().Open(Exclusive(wire::PlannedSpec{.layout = "nope"})).code(), Code::kNotFound);
  }
  std::vector<Pending<OpenedStream>> opens;
  const wire::OpenStream request = testing_util::Grouped(wire::StreamMode::kShared, 1000);
  for (size_t i = 0; i <= StreamHub::kStreamsMax; ++i) opens.push_back(world.User().AskOpen(request));
  EXPECT_EQ(opens.back().Get().status().code(), Code::kBusy);
  EXPECT_OK(opens.front().Get());
}

TEST(StreamHubTest, AShortBudgetGivesFewerSlotsAndThenSaysWhatWouldDo) {
  HubWorld world;
  const auto try_with = [&world](uint64_t bytes, OpenedStream& opened) {
    world.budget = std::make_shared<MemoryBudget>(bytes);
    HubUser user = world.User();
    const Status status = user.Open(Exclusive());
    opened = user.opened;
    if (status.ok()) {
      EXPECT_OK(user.Start({}));
      Hashes hashes;
      EXPECT_OK(user.Drain(hashes));
      EXPECT_OK(user.Close());
    }
    world.ExpectBudgetFree();
    return status;
  };
  std::set<uint32_t> slots;
  Status refused;
  uint64_t least = 0;
  for (uint64_t bytes = 8 * kMiB; bytes >= kMiB; bytes -= 64 * kKiB) {
    OpenedStream opened;
    const Status status = try_with(bytes, opened);
    if (!status.ok()) {
      refused = status;
      break;
    }
    least = bytes;
    slots.insert(opened.slots);
  }
  EXPECT_EQ(slots, (std::set<uint32_t>{2, 3, 4})) << "down to " << least;
  EXPECT_EQ(refused.code(), Code::kOutOfBudget);
  EXPECT_THAT(refused.message(), HasSubstr("MiB"));
}

TEST(StreamHubTest, AnErrorOfTheRoadComesAgainUntilThePassIsStartedAnew) {
  HubWorld world;
  HubUser user = world.User();
  ASSERT_OK(user.Open(Exclusive()));
  world.open.backend.SetPlans({{.kind = FaultKind::kRead, .at = 1, .sticky = true, .error = EIO}});
  ASSERT_OK(user.Start({.pass = 1}));
  const PendingBatch first = user.AskNext(), second = user.AskNext();
  EXPECT_EQ(first.Get().status().code(), Code::kIoError);
  EXPECT_EQ(second.Get().status().code(), Code::kIoError);
  EXPECT_EQ(user.Next().status().code(), Code::kIoError);
  world.open.backend.SetPlans({});
  ASSERT_OK(user.Start({.pass = 1, .ordered = true}));
  Hashes hashes;
  EXPECT_OK(user.Drain(hashes));
  EXPECT_EQ(hashes, world.Expected(1));
}

TEST(StreamHubTest, ClosingInAnyStateAnswersWhatIsPendingAndFreesTheBudget) {
  enum State { kOpening, kOpen, kStarting, kPassing, kFull, kEnded, kStates };
  HubWorld world;
  for (int state = 0; state < kStates; ++state) {
    for (const bool whole_session : {false, true}) {
      SCOPED_TRACE(testing::Message() << "state " << state << (whole_session ? ", session" : ", stream"));
      HubUser user = world.User();
      Pending<OpenedStream> open = user.AskOpen(Exclusive());
      Pending<uint64_t> start;
      std::vector<PendingBatch> batches;
      if (state >= kOpen) user.opened = *open.Get();
      if (state >= kStarting) start = user.AskStart({});
      if (state >= kPassing) {
        ASSERT_OK(start.Get());
        batches.push_back(user.AskNext());
      }
      if (state == kFull) {
        for (int i = 0; i < 8; ++i) batches.push_back(user.AskNext());
        for (int i = 0; i < 4; ++i) ASSERT_OK(batches[i].Get());
      }
      Hashes hashes;
      if (state == kEnded) {
        ASSERT_OK(user.Drain(hashes));
      }
      if (state == kOpening) user.opened.stream = world.hub->Streams().at(0).id;
      if (whole_session) {
        user.CloseSession();
      } else {
        EXPECT_OK(user.Close());
      }
      if (state == kOpening) (void)open.Get();
      if (state == kStarting) (void)start.Get();
      for (const PendingBatch& batch : batches) (void)batch.Get();
      EXPECT_EQ(user.Next().status().code(), Code::kUsage);
      world.ExpectBudgetFree();
    }
  }
}

// A stream of superbatches holds memory until the epoch that is being built has gone, which is held up here, though
// closing the stream answers at once. Others have the rest, so the next stream needs what that one holds.
TEST(StreamHubTest, TheNextStreamHasTheBudgetOfTheOneThatWasClosed) {
  GateBackend backend("superbatch");
  const auto store = Store::Open(backend, testing_util::SharedDatabase().path());
  ASSERT_OK(store);
  const auto budget = std::make_shared<MemoryBudget>(64 * kMiB);
  const auto hub = StreamHub::Make(**store, {});
  HubUser user(*hub, 1, budget);
  for (int i = 0; i < 3; ++i) {
    const Status superbatches = user.Open(Exclusive(wire::SuperbatchSpec{.live = SmallLive()}));
    ASSERT_OK(superbatches);
    EXPECT_GT(budget->used_bytes(), 8 * kMiB);
    backend.CloseGate();
    const Pending<uint64_t> start = user.AskStart({.pass = 1});
    backend.WaitForOne();  // its first epoch is being built
    const auto rest = budget->Reserve(budget->limit_bytes() - budget->used_bytes(), "others");
    ASSERT_OK(rest);
    EXPECT_OK(user.Close());
    EXPECT_EQ(start.Get().status().code(), Code::kCancelled);
    const Pending<OpenedStream> live = user.AskOpen(Exclusive());
    testing_util::WaitUntilAllSleep();
    EXPECT_FALSE(live.answered()) << "its budget is still taken";
    backend.OpenGate();
    const Result<OpenedStream> opened = live.Get();
    ASSERT_OK(opened);
    user.opened = *opened;
    ASSERT_OK(user.Close());
  }
}

TEST(StreamHubTest, EndingTheHubAnswersWhatIsPending) {
  HubWorld world;
  HubUser a = world.User(1), b = world.User(2), c = world.User(3);
  ASSERT_OK(a.Open(Exclusive()));
  ASSERT_OK(a.Start({}));
  std::vector<PendingBatch> batches;
  for (int i = 0; i < 6; ++i) batches.push_back(a.AskNext());
  for (int i = 0; i < 4; ++i) ASSERT_OK(batches[i].Get());
  ASSERT_OK(b.Open(testing_util::Grouped(wire::StreamMode::kSplit, 2)));
  const Pending<uint64_t> start = b.AskStart({});
  const Pending<OpenedStream> open = c.AskOpen(Exclusive());
  world.hub.reset();
  EXPECT_EQ(batches[4].Get().status().code(), Code::kCancelled);
  EXPECT_EQ(batches[5].Get().status().code(), Code::kCancelled);
  EXPECT_EQ(start.Get().status().code(), Code::kCancelled);
  (void)open.Get();
  EXPECT_EQ(world.budget->used_bytes(), 0u);
}

TEST(AnswerQueueTest, AnswersAreGivenOneByOneInTheOrderInWhichTheyWereAdded) {
  AnswerQueue queue;
  std::mutex mutex;
  int added = 0;
  std::vector<int> given;  // no lock: one at a time
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 2000; ++n) {
        {
          const std::lock_guard lock(mutex);
          queue.Add([&given, number = added++] {
            if (number % 16 == 0) std::this_thread::yield();
            given.push_back(number);
          });
        }
        queue.Run();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(given.size(), 8000u);
  EXPECT_TRUE(std::ranges::is_sorted(given));
}

TEST(StreamHubTest, AnswersComeInTheOrderOfTheCalls) {
  HubWorld world;
  HubUser user = world.User();
  ASSERT_OK(user.Open(Exclusive()));
  for (uint64_t pass = 0; pass < 20; ++pass) {
    SCOPED_TRACE(testing::Message() << "pass " << pass);
    const Result<uint64_t> count = user.Start({.pass = pass, .ordered = true});
    ASSERT_OK(count);
    std::vector<uint64_t> calls;  // as they are answered
    std::promise<void> ended;
    for (uint64_t call = 0; call <= *count; ++call) {
      world.hub->Next(1, user.opened.stream, call, [&, call](const NextResult& batch) {
        calls.push_back(call);
        if (!*batch) return ended.set_value();
        EXPECT_EQ((*batch)->index, call);
        user.Release(**batch);
      });
    }
    ASSERT_EQ(ended.get_future().wait_for(testing_util::kPatience), std::future_status::ready);
    EXPECT_EQ(calls.size(), *count + 1);
    EXPECT_TRUE(std::ranges::is_sorted(calls));
  }
}

TEST(StreamHubTest, CallbacksMayCallTheHub) {
  HubWorld world;
  HubUser user = world.User();
  ASSERT_OK(user.Open(Exclusive()));
  ASSERT_OK(user.Start({.ordered = true}));
  std::promise<Status> ended;
  std::vector<uint64_t> seen;
  std::function<void(NextResult)> next = [&](NextResult batch) {
    if (!batch.ok() || !*batch) return ended.set_value(batch.status());
    seen.push_back((*batch)->index);
    user.Release(**batch);
    world.hub->Next(1, user.opened.stream, 0, next);
  };
  world.hub->Next(1, user.opened.stream, 0, next);
  const auto end = ended.get_future();
  ASSERT_EQ(end.wait_for(testing_util::kPatience), std::future_status::ready);
  EXPECT_EQ(seen.size(), world.Expected(0).size());
  EXPECT_TRUE(std::ranges::is_sorted(seen));
}

}  // namespace
}  // namespace quarry
