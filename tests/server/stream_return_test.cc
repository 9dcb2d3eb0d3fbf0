// Members of a shared group whose connection is lost, and who come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "server/hub_util.h"

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
  explicit TwoInAPass(const StreamHubOptions& options = {}, StreamMode mode = StreamMode::kShared)
      : world(options), first(UserOf(world, 1, 1)), second(UserOf(world, 2, 2)) {
    for (HubUser* user : {&first, &second}) EXPECT_TRUE(user->Open(Grouped(mode, 2)).ok());
    const Pending<uint64_t> starts[] = {first.AskStart(kPass), second.AskStart(kPass)};
    for (const auto& start : starts) EXPECT_TRUE(start.Get().ok());
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
  std::thread other([&] { EXPECT_TRUE(two.second.Drain(others).ok()); });
  std::this_thread::sleep_for(milliseconds(100));  // the other waits: what was missed is kept
  HubUser again = UserOf(two.world, 3, 1);
  const Status opened = again.Open(kTwo);
  EXPECT_TRUE(opened.ok()) << opened.ToString();
  EXPECT_EQ(again.Start(kPass).value(), expected.size());
  Hashes hashes = two.used;
  EXPECT_TRUE(again.Drain(hashes).ok());
  other.join();
  EXPECT_EQ(hashes, expected) << "what it held comes again, and nothing twice";
  EXPECT_EQ(others, expected);
  // And it is a member as before.
  const Pending<uint64_t> start = again.AskStart({.pass = 4});
  EXPECT_FALSE(start.answered(milliseconds(30)));
  EXPECT_TRUE(two.second.Start({.pass = 4}).ok());
  EXPECT_TRUE(start.Get().ok());
}

TEST(StreamReturnTest, WhoComesBackTooLateIsToldSoAndNobodyWaitsForIt) {
  TwoInAPass two({.return_max = milliseconds(50)});
  two.first.CloseSession();
  Hashes others;
  for (int i = 0; i < 8; ++i) {  // more than are made while the first has all its slots
    const StreamBatch batch = **two.second.Next();
    others.emplace_back(batch.index, two.second.Hash(batch));
    two.second.Release(batch);
  }
  const Status late = UserOf(two.world, 3, 1).Open(kTwo);
  EXPECT_EQ(late.code(), Code::kBusy);
  EXPECT_THAT(late.message(), HasSubstr("join when it has ended"));
  EXPECT_TRUE(two.second.Drain(others).ok());
  EXPECT_EQ(others, two.world.Expected(3));
  HubUser again = UserOf(two.world, 4, 1);
  EXPECT_TRUE(again.Open(kTwo).ok()) << "there is a place between passes";
}

TEST(StreamReturnTest, OneWhoseOldConnectionIsNotKnownToBeLostHasItsPlace) {
  TwoInAPass two;
  const PendingBatch old = two.first.AskNext();
  EXPECT_TRUE(old.Get().ok());
  HubUser again = UserOf(two.world, 3, 1);
  EXPECT_EQ(UserOf(two.world, 4, 9).Open(kTwo).code(), Code::kBusy) << "it is nobody else's";
  ASSERT_TRUE(again.Open(kTwo).ok());
  EXPECT_EQ(two.first.Next().status().code(), Code::kUsage);
  two.first.CloseSession();  // which is of no consequence
  ASSERT_TRUE(again.Start(kPass).ok());
  Hashes others, hashes = two.used;
  std::thread other([&] { EXPECT_TRUE(two.second.Drain(others).ok()); });
  EXPECT_TRUE(again.Drain(hashes).ok());
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
  ASSERT_TRUE(again.Open(kTwo).ok());
  const Pending<uint64_t> next = again.AskStart({.pass = 4, .ordered = true});
  Hashes others;
  EXPECT_TRUE(two.second.Drain(others).ok()) << "it is in the pass no more, and stops nobody";
  EXPECT_EQ(others, two.world.Expected(3));
  EXPECT_FALSE(next.answered());
  EXPECT_TRUE(two.second.Start({.pass = 4, .ordered = true}).ok());
  EXPECT_TRUE(next.Get().ok());
}

TEST(StreamReturnTest, APlaceThatIsKeptIsGivenToAnotherBetweenPasses) {
  HubWorld world;
  HubUser first = UserOf(world, 1, 1), second = UserOf(world, 2, 2), third = UserOf(world, 3, 3);
  ASSERT_TRUE(first.Open(kTwo).ok());
  ASSERT_TRUE(second.Open(kTwo).ok());
  first.CloseSession();
  ASSERT_TRUE(third.Open(kTwo).ok());
  const Pending<uint64_t> starts[] = {second.AskStart(kPass), third.AskStart(kPass)};
  for (const auto& start : starts) EXPECT_TRUE(start.Get().ok());
  EXPECT_EQ(UserOf(world, 4, 1).Open(kTwo).code(), Code::kBusy);
}

TEST(StreamReturnTest, InASplitTheOthersHaveWhatItHad) {
  TwoInAPass two({}, StreamMode::kSplit);
  two.first.CloseSession();
  Hashes others;
  EXPECT_TRUE(two.second.Drain(others).ok());
  EXPECT_EQ(others.size() + two.used.size(), two.world.Expected(3).size());
}

}  // namespace
}  // namespace quarry
