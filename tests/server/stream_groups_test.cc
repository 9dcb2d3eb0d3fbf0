// Streams of several members: shared, split, and how a pass begins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "quarry/pipeline/planned_road.h"
#include "server/hub_util.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing_util::Exclusive;
using testing_util::Grouped;
using testing_util::HubUser;
using testing_util::HubWorld;
using testing_util::NextResult;
using testing_util::Pending;
using testing_util::PendingBatch;
using testing_util::SmallLive;
using testing_util::SmallOptions;
using wire::StreamMode;

using Hashes = std::vector<std::pair<uint64_t, uint64_t>>;

// Members of one group, each of a session of its own.
std::vector<HubUser> OpenMembers(HubWorld& world, const wire::OpenStream& request) {
  std::vector<HubUser> members;
  for (uint32_t i = 0; i < request.members; ++i) {
    members.push_back(world.User(i + 1));
    const Status status = members.back().Open(request);
    EXPECT_OK(status);
  }
  return members;
}

void StartAll(std::vector<HubUser>& members, const wire::StartPass& pass) {
  std::vector<Pending<uint64_t>> starts;
  for (HubUser& member : members) starts.push_back(member.AskStart(pass));
  for (const auto& start : starts) EXPECT_OK(start.Get());
}

// All members at once, each in a thread of its own.
std::vector<Hashes> DrainAll(std::vector<HubUser>& members) {
  std::vector<Hashes> hashes(members.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] { EXPECT_OK(members[i].Drain(hashes[i])); });
  }
  for (std::thread& thread : threads) thread.join();
  return hashes;
}

TEST(StreamGroupsTest, FourSharedMembersGetEveryBatchAndReadTheDiskOnce) {
  HubWorld world;
  LayoutSpec spec;
  spec.road = SmallOptions().spec.ForOtherPasses();
  const auto built = BuildLayout(*world.open.store, *world.open.budget, spec, false, {});
  ASSERT_OK(built);
  ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(*world.open.store, *world.open.budget, {}));
  StreamStats own;
  const Hashes expected =
      testing_util::RunPass(*road, {.seeds = road->TrainNodes(), .pass = 1, .ordered = true}, &own);

  std::vector<HubUser> members = OpenMembers(world, Grouped(StreamMode::kShared, 4, wire::PlannedSpec{}));
  EXPECT_EQ(members[0].opened.region, members[3].opened.region);
  StartAll(members, {.pass = 1, .ordered = true});
  for (const Hashes& hashes : DrainAll(members)) EXPECT_EQ(hashes, expected);
  for (HubUser& member : members) {
    EXPECT_EQ(member.Stats()->feature_bytes_read, own.feature_bytes_read);
    EXPECT_EQ(member.Stats()->read_requests, own.read_requests);
  }
}

TEST(StreamGroupsTest, InASplitEveryBatchGoesToTheMemberOfItsNumber) {
  HubWorld world;
  std::vector<HubUser> members = OpenMembers(world, Grouped(StreamMode::kSplit, 3));
  EXPECT_EQ(members[0].opened.slots, 2u);
  for (const bool ordered : {true, false}) {
    StartAll(members, {.pass = 4, .ordered = ordered});
    Hashes all;
    const std::vector<Hashes> hashes = DrainAll(members);
    for (size_t i = 0; i < hashes.size(); ++i) {
      EXPECT_TRUE(!ordered || std::ranges::is_sorted(hashes[i]));
      for (const auto& [index, hash] : hashes[i]) {
        EXPECT_EQ(index % 3, i);
        all.emplace_back(index, hash);
      }
    }
    std::ranges::sort(all);
    EXPECT_EQ(all, world.Expected(4));
  }
}

TEST(StreamGroupsTest, BatchesOfAMemberThatLeftGoToTheOthers) {
  HubWorld world;
  std::vector<HubUser> members = OpenMembers(world, Grouped(StreamMode::kSplit, 3));
  StartAll(members, {.ordered = true});
  // It holds batch 1, has released 4, and has 7 to ask for when there is one.
  const StreamBatch first = **members[1].Next();
  const StreamBatch second = **members[1].Next();
  EXPECT_EQ(first.index, 1u);
  EXPECT_EQ(second.index, 4u);
  members[1].Release(second);
  members[1].CloseSession();
  EXPECT_THAT(members[1].Next(), IsStatus(Code::kUsage));
  members.erase(members.begin() + 1);
  std::vector<Hashes> hashes = DrainAll(members);
  Hashes all = hashes[0];
  all.insert(all.end(), hashes[1].begin(), hashes[1].end());
  std::ranges::sort(all);
  Hashes expected = world.Expected(0);
  expected.erase(expected.begin() + 4);
  EXPECT_EQ(all, expected);
  for (const Hashes& own : hashes) EXPECT_TRUE(std::ranges::is_sorted(own));
  EXPECT_GE(hashes[0].size(), expected.size() / 3);
  EXPECT_GE(hashes[1].size(), expected.size() / 3);

  StartAll(members, {.pass = 1, .ordered = true});  // who left is not waited for
  hashes = DrainAll(members);
  EXPECT_EQ(hashes[0].size() + hashes[1].size(), world.Expected(1).size());
}

TEST(StreamGroupsTest, APassBeginsWhenAllHaveStartedIt) {
  HubWorld world;
  for (const StreamMode mode : {StreamMode::kShared, StreamMode::kSplit}) {
    const wire::OpenStream request = Grouped(mode, 3);
    std::vector<HubUser> members;
    for (SessionId session : {1, 2}) {
      members.push_back(world.User(session));
      ASSERT_OK(members.back().Open(request));
    }
    std::vector<Pending<uint64_t>> starts;
    for (HubUser& member : members) starts.push_back(member.AskStart({.pass = 1}));
    const PendingBatch early = members[0].AskNext();
    testing_util::WaitUntilAllSleep();
    EXPECT_FALSE(starts[0].answered());  // the third has not come yet
    members.push_back(world.User(3));
    ASSERT_OK(members[2].Open(request));
    testing_util::WaitUntilAllSleep();
    EXPECT_FALSE(starts[0].answered());

    const Status other = members[2].Start({.pass = 2}).status();
    EXPECT_THAT(other, IsStatus(Code::kInvalidArgument, HasSubstr("pass 2, the group has 1")));
    EXPECT_THAT(members[2].Start({.seeds = Split::kValid, .pass = 1}).status().message(), HasSubstr("seeds"));
    EXPECT_THAT(members[2].Start({.pass = 1, .ordered = true}).status().message(), HasSubstr("ordered"));
    testing_util::WaitUntilAllSleep();
    EXPECT_FALSE(starts[0].answered());
    members[2].CloseSession();  // in the middle of the barrier
    EXPECT_OK(starts[0].Get());
    EXPECT_OK(starts[1].Get());
    EXPECT_OK(early.Get());
    for (const SessionId session : {1, 2}) world.hub->CloseSession(session);
  }
}

TEST(StreamGroupsTest, WhoJoinsMustWantTheSame) {
  HubWorld world;
  HubUser first = world.User(1), second = world.User(2), third = world.User(3);
  ASSERT_OK(first.Open(Grouped(StreamMode::kShared, 2)));
  const auto refused = [&](const wire::OpenStream& request, const char* what) {
    const Status status = second.Open(request);
    EXPECT_THAT(status, IsStatus(Code::kInvalidArgument, HasSubstr(what)));
  };
  wire::LiveSpec live = SmallLive();
  live.fanouts = {4, 4};
  refused(Grouped(StreamMode::kShared, 2, live), "fanouts 4,4, the group has 4,3");
  live = SmallLive();
  live.seed = 6;
  refused(Grouped(StreamMode::kShared, 2, live), "seed 6, the group has 5");
  live = SmallLive();
  live.edge_ids = true;
  refused(Grouped(StreamMode::kShared, 2, live), "edge ids true, the group has false");
  refused(Grouped(StreamMode::kSplit, 2), "mode");
  refused(Grouped(StreamMode::kShared, 3), "members 3, the group has 2");
  refused(Grouped(StreamMode::kShared, 2, wire::PlannedSpec{}), "a planned road, the group has a live road");
  refused({.mode = StreamMode::kShared, .group = ""}, "name");
  ASSERT_OK(second.Open(Grouped(StreamMode::kShared, 2)));
  EXPECT_THAT(third.Open(Grouped(StreamMode::kShared, 2)), IsStatus(Code::kBusy));
}

TEST(StreamGroupsTest, AnotherMayTakeAPlaceBetweenPasses) {
  HubWorld world;
  std::vector<HubUser> members = OpenMembers(world, Grouped(StreamMode::kSplit, 2));
  StartAll(members, {.ordered = true});
  members[0].CloseSession();
  HubUser third = world.User(3);
  EXPECT_THAT(third.Open(Grouped(StreamMode::kSplit, 2)), IsStatus(Code::kBusy));
  Hashes rest;
  ASSERT_OK(members[1].Drain(rest));
  EXPECT_EQ(rest.size(), world.Expected(0).size());
  ASSERT_OK(third.Open(Grouped(StreamMode::kSplit, 2)));
  members[0] = third;
  StartAll(members, {.pass = 1, .ordered = true});
  const std::vector<Hashes> hashes = DrainAll(members);
  EXPECT_EQ(hashes[0].size() + hashes[1].size(), world.Expected(1).size());
  for (const auto& [index, hash] : hashes[0]) EXPECT_EQ(index % 2, 0u);
}

TEST(StreamGroupsTest, AMemberThatStartsAnotherPassWaitsUntilTheOthersDo) {
  HubWorld world;
  for (const StreamMode mode : {StreamMode::kShared, StreamMode::kSplit}) {
    std::vector<HubUser> members = OpenMembers(world, Grouped(mode, 2));
    StartAll(members, {.ordered = true});
    Hashes hashes;
    for (uint32_t slot = 0; slot < members[1].opened.slots; ++slot) {  // so the other has some ready too
      const StreamBatch batch = **members[1].Next();
      hashes.emplace_back(batch.index, members[1].Hash(batch));
      members[1].Release(batch);
    }
    const Pending<uint64_t> next = members[0].AskStart({.pass = 1, .ordered = true});
    EXPECT_OK(members[1].Drain(hashes));  // all of them: nobody else is in the pass
    std::ranges::sort(hashes);
    EXPECT_EQ(hashes, world.Expected(0));
    testing_util::WaitUntilAllSleep();
    EXPECT_FALSE(next.answered());
    EXPECT_OK(members[1].Start({.pass = 1, .ordered = true}));
    EXPECT_OK(next.Get());
    Hashes all;
    for (const Hashes& own : DrainAll(members)) all.insert(all.end(), own.begin(), own.end());
    EXPECT_EQ(all.size(), world.Expected(1).size() * (mode == StreamMode::kShared ? 2 : 1));
    for (HubUser& member : members) EXPECT_OK(member.Close());
  }
}

TEST(StreamGroupsTest, AnErrorReachesAllMembersEveryTime) {
  HubWorld world;
  std::vector<HubUser> members = OpenMembers(world, Grouped(StreamMode::kShared, 3));
  world.open.backend.SetPlans({{.kind = FaultKind::kRead, .at = 1, .sticky = true, .error = EIO}});
  StartAll(members, {});
  for (HubUser& member : members) {
    EXPECT_THAT(member.Next(), IsStatus(Code::kIoError));
    EXPECT_THAT(member.Next(), IsStatus(Code::kIoError));
  }
  world.open.backend.SetPlans({});
  StartAll(members, {.ordered = true});
  for (const Hashes& hashes : DrainAll(members)) EXPECT_EQ(hashes, world.Expected(0));
}

TEST(StreamGroupsTest, AFailedOpenIsToldToAllAndLeavesTheNameFree) {
  HubWorld world;
  wire::LiveSpec unknown = SmallLive();
  unknown.topology = "nope";
  HubUser first = world.User(1), second = world.User(2);
  const auto a = first.AskOpen(Grouped(StreamMode::kShared, 2, unknown));
  const auto b = second.AskOpen(Grouped(StreamMode::kShared, 2, unknown));
  EXPECT_THAT(a.Get(), IsStatus(Code::kNotFound));
  EXPECT_THAT(b.Get(), IsStatus(Code::kNotFound));
  EXPECT_OK(first.Open(Grouped(StreamMode::kShared, 2)));
}

TEST(StreamGroupsTest, WhoStopsTheOthersOfASharedGroupIsDroppedAndItsBatchesStayAsTheyAre) {
  HubWorld world({.lag_max = milliseconds(60)});
  std::vector<HubUser> members = OpenMembers(world, Grouped(StreamMode::kShared, 3));
  StartAll(members, {.pass = 3, .ordered = true});
  const Hashes expected = world.Expected(3);
  std::vector<StreamBatch> held;  // and never released
  for (uint32_t slot = 0; slot < members[1].opened.slots; ++slot) held.push_back(**members[1].Next());
  const PendingBatch waiting = members[1].AskNext();
  std::vector<HubUser> others = {members[0], members[2]};
  for (const Hashes& hashes : DrainAll(others)) EXPECT_EQ(hashes, expected);
  const Status dropped = waiting.Get().status();
  EXPECT_THAT(dropped, IsStatus(Code::kCancelled, HasSubstr("fell behind")));
  EXPECT_THAT(members[1].Next(), IsStatus(Code::kCancelled));
  EXPECT_THAT(members[1].Start({}), IsStatus(Code::kCancelled));
  for (size_t i = 0; i < held.size(); ++i) EXPECT_EQ(members[1].Hash(held[i]), expected[i].second);

  StartAll(others, {.pass = 1, .ordered = true});  // it is not waited for
  for (const Hashes& hashes : DrainAll(others)) EXPECT_EQ(hashes, world.Expected(1));
  EXPECT_OK(members[1].Close());
  EXPECT_OK(members[1].Open(Grouped(StreamMode::kShared, 3)));  // there is a place again
}

TEST(StreamGroupsTest, WhoIsSlowButReleasesStays) {
  HubWorld world({.lag_max = milliseconds(100)});
  std::vector<HubUser> members = OpenMembers(world, Grouped(StreamMode::kShared, 2));
  StartAll(members, {.ordered = true});
  Hashes fast;
  std::thread other([&] { EXPECT_OK(members[1].Drain(fast)); });
  size_t seen = 0;
  for (NextResult batch = members[0].Next(); batch.ok() && *batch; batch = members[0].Next(), ++seen) {
    std::this_thread::sleep_for(milliseconds(40));
    members[0].Release(**batch);
  }
  other.join();
  EXPECT_EQ(seen, world.Expected(0).size());
}

TEST(StreamGroupsTest, MembersThatWereDroppedWithAllOfTheRegionEndThePass) {
  HubWorld world({.lag_max = milliseconds(30)});
  std::vector<HubUser> members = OpenMembers(world, Grouped(StreamMode::kShared, 3));
  StartAll(members, {.ordered = true});
  const uint32_t slots = members[0].opened.slots;
  std::vector<StreamBatch> held;
  Hashes seen;
  for (uint32_t i = 0; i < slots; ++i) {
    held.push_back(**members[0].Next());
    members[1].Release(**members[1].Next());
    members[2].Release(**members[2].Next());
  }
  const PendingBatch waiting = members[2].AskNext();
  const StreamBatch last = **members[1].Next();  // once the first is dropped
  EXPECT_OK(waiting.Get());
  members[2].Release(**waiting.Get());
  const Status full = members[2].Next().status();
  EXPECT_THAT(full, IsStatus(Code::kBusy, HasSubstr("hold all of its shared memory")));
  EXPECT_EQ(last.index, slots);
  EXPECT_OK(members[0].Close());
  EXPECT_OK(members[1].Close());
  EXPECT_OK(members[2].Start({.ordered = true}));
  EXPECT_OK(members[2].Drain(seen));
  EXPECT_EQ(seen, world.Expected(0));
}

TEST(StreamGroupsTest, ALateMemberOfAnExclusiveOrSplitStreamIsWaitedFor) {
  HubWorld world({.lag_max = milliseconds(10)});
  std::vector<HubUser> members = OpenMembers(world, Grouped(StreamMode::kSplit, 2));
  StartAll(members, {.ordered = true});
  std::vector<StreamBatch> held;
  for (uint32_t slot = 0; slot < members[1].opened.slots; ++slot) held.push_back(**members[1].Next());
  Hashes first;
  std::thread other([&] { EXPECT_OK(members[0].Drain(first)); });
  const PendingBatch third = members[1].AskNext();
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(third.answered());  // although what the other one released is free
  for (const StreamBatch& batch : held) members[1].Release(batch);
  held.push_back(**third.Get());
  members[1].Release(held.back());
  Hashes second;
  EXPECT_OK(members[1].Drain(second));
  other.join();
  EXPECT_EQ(first.size() + second.size() + held.size(), world.Expected(0).size());
}

// Members that do what they like, against the batches that the road has.
void RunAtRandom(HubWorld& world, SessionId session, uint64_t seed, const std::vector<Hashes>& expected) {
  Rng rng(seed);
  for (int life = 0; life < 4; ++life) {
    HubUser user = world.User(session);
    const uint64_t mode = rng.Below(3);
    const wire::OpenStream request = mode == 0 ? Exclusive() : Grouped(static_cast<StreamMode>(mode), 2);
    if (!user.Open(request).ok()) continue;  // the group is of another mode, full, or in a pass
    for (int pass = 0; pass < 3; ++pass) {
      const uint64_t number = rng.Below(2);
      const Pending<uint64_t> start = user.AskStart({.pass = number, .ordered = rng.Below(2) == 0});
      if (!start.answered(milliseconds(rng.Below(30))) || !start.Get().ok()) break;
      std::vector<StreamBatch> held;
      for (uint64_t step = rng.Below(40); step > 0; --step) {
        if (!held.empty() && (held.size() == user.opened.slots || rng.Below(2) == 0)) {
          const size_t which = rng.Below(held.size());
          EXPECT_EQ(user.Hash(held[which]), expected[number][held[which].index].second);
          user.Release(held[which]);
          held.erase(held.begin() + static_cast<ptrdiff_t>(which));
          continue;
        }
        const PendingBatch next = user.AskNext(step);
        if (!next.answered(milliseconds(rng.Below(20)))) user.CancelNext(step);
        const NextResult batch = next.Get();
        if (!batch.ok() && batch.status().code() == Code::kCancelled) continue;
        if (!batch.ok() || !*batch) break;
        held.push_back(**batch);
      }
      for (const StreamBatch& batch : held) {
        EXPECT_EQ(user.Hash(batch), expected[number][batch.index].second);
        if (rng.Below(3) > 0) user.Release(batch);
      }
    }
    if (rng.Below(2) == 0) {
      user.CloseSession();
    } else {
      EXPECT_OK(user.Close());
    }
  }
  world.User(session).CloseSession();
}

TEST(StreamGroupsTest, AnyScheduleGivesTheRightBatchesAndEndsWithNothingHeld) {
  HubWorld world({.lag_max = milliseconds(20)});
  const std::vector<Hashes> expected = {world.Expected(0), world.Expected(1)};
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::vector<std::thread> sessions;
    for (SessionId session = 1; session <= 4; ++session) {
      sessions.emplace_back([&world, session, seed, &expected] {
        RunAtRandom(world, session, MixSeed(seed, session), expected);
      });
    }
    for (std::thread& thread : sessions) thread.join();
    world.ExpectBudgetFree();
    EXPECT_TRUE(world.hub->Streams().empty());
  }
}

}  // namespace
}  // namespace quarry
