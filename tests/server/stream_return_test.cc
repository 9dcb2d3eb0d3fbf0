// Members of a shared group whose connection is lost, and who come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "server/hub_util.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing_util::Grouped;
using testing_util::HubUser;
using testing_util::HubWorld;
using testing_util::Pending;
using testing_util::PendingBatch;
using wire::StreamMode;

using Hashes = std::vector<std::pair<uint64_t, uint64_t>>;

const wire::OpenStream kTwo = Grouped(StreamMode::kShared, 2);
const wire::StartPass kPass = {.pass = 3, .ordered = true};

HubUser UserOf(HubWorld& world, SessionId session, uint8_t client) {
  HubUser user = world.User(session);
  user.client.fill(std::byte{client});
  return user;
}

// Two members of clients 1 and 2 in the middle of a pass: the first has used two batches and holds the third.
struct TwoInAPass {
  explicit TwoInAPass(const StreamHubOptions& options = {.return_max = std::chrono::minutes(10)},
                      StreamMode mode = StreamMode::kShared)
      : world(options), first(UserOf(world, 1, 1)), second(UserOf(world, 2, 2)) {
    for (HubUser* user : {&first, &second}) EXPECT_OK(user->Open(Grouped(mode, 2)));
    const Pending<uint64_t> starts[] = {first.AskStart(kPass), second.AskStart(kPass)};
    for (const auto& start : starts) EXPECT_OK(start.Get());
    for (int i = 0; i < 3; ++i) {
      held = **first.Next();
      if (i < 2) {
        used.emplace_back(held.index, first.Hash(held));
        first.Release(held);
      }
    }
  }

  HubWorld world;
  HubUser first, second;
  StreamBatch held;
  Hashes used;
};

TEST(StreamReturnTest, AMemberThatComesBackGoesOnWhereItWas) {
  TwoInAPass two;
  const Hashes expected = two.world.Expected(3);
  Hashes others;
  two.first.CloseSession();
  std::thread other([&] { EXPECT_OK(two.second.Drain(others)); });
  testing_util::WaitUntilAllSleep();  // the other waits: what was missed is kept
  HubUser again = UserOf(two.world, 3, 1);
  const Status opened = again.Open(kTwo);
  EXPECT_OK(opened);
  EXPECT_EQ(again.Start(kPass).value(), expected.size());
  Hashes hashes = two.used;
  EXPECT_OK(again.Drain(hashes));
  other.join();
  EXPECT_EQ(hashes, expected) << "what it held comes again, and nothing twice";
  EXPECT_EQ(others, expected);
  // And it is a member as before.
  const Pending<uint64_t> start = again.AskStart({.pass = 4});
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(start.answered());
  EXPECT_OK(two.second.Start({.pass = 4}));
  EXPECT_OK(start.Get());
}

TEST(StreamReturnTest, WhoComesBackTooLateIsToldSoAndNobodyWaitsForIt) {
  TwoInAPass two({.return_max = milliseconds(50)});
  two.first.CloseSession();
  const Hashes expected = two.world.Expected(3);
  ASSERT_GT(expected.size(), 8U) << "so the pass cannot end while the second holds three of its four slots";
  Hashes others;
  std::vector<StreamBatch> kept;
  for (int i = 0; i < 7; ++i) {  // the seventh is not made before the first has lost its slots
    const StreamBatch batch = **two.second.Next();
    others.emplace_back(batch.index, two.second.Hash(batch));
    i < 4 ? two.second.Release(batch) : kept.push_back(batch);
  }
  const Status late = UserOf(two.world, 3, 1).Open(kTwo);
  EXPECT_THAT(late, IsStatus(Code::kBusy, HasSubstr("join when it has ended")));
  for (const StreamBatch& batch : kept) two.second.Release(batch);
  EXPECT_OK(two.second.Drain(others));
  EXPECT_EQ(others, expected);
  HubUser again = UserOf(two.world, 4, 1);
  EXPECT_OK(again.Open(kTwo)) << "there is a place between passes";
}

TEST(StreamReturnTest, OneWhoseOldConnectionIsNotKnownToBeLostHasItsPlace) {
  TwoInAPass two;
  const PendingBatch old = two.first.AskNext();
  EXPECT_OK(old.Get());
  HubUser again = UserOf(two.world, 3, 1);
  EXPECT_THAT(UserOf(two.world, 4, 9).Open(kTwo), IsStatus(Code::kBusy)) << "it is nobody else's";
  ASSERT_OK(again.Open(kTwo));
  EXPECT_THAT(two.first.Next(), IsStatus(Code::kUsage));
  two.first.CloseSession();  // which is of no consequence
  ASSERT_OK(again.Start(kPass));
  Hashes others, hashes = two.used;
  std::thread other([&] { EXPECT_OK(two.second.Drain(others)); });
  EXPECT_OK(again.Drain(hashes));
  other.join();
  EXPECT_EQ(hashes, two.world.Expected(3));
}

TEST(StreamReturnTest, NothingIsKeptForMembersWhoAllAreLost) {
  TwoInAPass two;
  two.first.CloseSession();
  two.second.CloseSession();
  two.world.ExpectBudgetFree();
  EXPECT_TRUE(two.world.hub->Streams().empty());
}

TEST(StreamReturnTest, WhoComesBackMayStartTheNextPassInstead) {
  TwoInAPass two;
  two.first.CloseSession();
  HubUser again = UserOf(two.world, 3, 1);
  ASSERT_OK(again.Open(kTwo));
  const Pending<uint64_t> next = again.AskStart({.pass = 4, .ordered = true});
  Hashes others;
  EXPECT_OK(two.second.Drain(others)) << "it is in the pass no more, and stops nobody";
  EXPECT_EQ(others, two.world.Expected(3));
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(next.answered());
  EXPECT_OK(two.second.Start({.pass = 4, .ordered = true}));
  EXPECT_OK(next.Get());
}

TEST(StreamReturnTest, APlaceThatIsKeptIsGivenToAnotherBetweenPasses) {
  HubWorld world;
  HubUser first = UserOf(world, 1, 1), second = UserOf(world, 2, 2), third = UserOf(world, 3, 3);
  ASSERT_OK(first.Open(kTwo));
  ASSERT_OK(second.Open(kTwo));
  first.CloseSession();
  ASSERT_OK(third.Open(kTwo));
  const Pending<uint64_t> starts[] = {second.AskStart(kPass), third.AskStart(kPass)};
  for (const auto& start : starts) EXPECT_OK(start.Get());
  EXPECT_THAT(UserOf(world, 4, 1).Open(kTwo), IsStatus(Code::kBusy));
}

TEST(StreamReturnTest, InASplitTheOthersHaveWhatItHad) {
  TwoInAPass two({}, StreamMode::kSplit);
  two.first.CloseSession();
  Hashes others;
  EXPECT_OK(two.second.Drain(others));
  EXPECT_EQ(others.size() + two.used.size(), two.world.Expected(3).size());
}

}  // namespace
}  // namespace quarry
