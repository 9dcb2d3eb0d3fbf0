// A group's rules, call by call: no thread, and a clock that the test moves.
#include "group_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using wire::StreamMode;
using Clock = GroupMembers::Clock;

constexpr milliseconds kLagMax{1000};
constexpr milliseconds kReturnMax{200};
constexpr uint64_t kSlotBytes = 4 * wire::kLeaseAlignment;

// What a client of a stream has been told.
struct Told {
  std::optional<Result<OpenedStream>> opened;
  std::vector<Result<uint64_t>> starts;
  std::vector<StreamBatch> batches;
  int ends = 0;
  std::vector<Status> errors;  // of Next
  uint64_t answers = 0;        // to Next

  std::vector<uint64_t> indices() const {
    std::vector<uint64_t> indices;
    for (const StreamBatch& batch : batches) indices.push_back(batch.index);
    return indices;
  }
};

ClientId IdOf(uint8_t client) {
  ClientId id{};
  id[0] = std::byte{client};
  return id;
}

// Members, and a producer that is asked for one step at a time.
class Group {
 public:
  Group(StreamMode mode, uint32_t members, uint32_t slots = 2, size_t places = 4)
      : slots_(slots),
        places_(places),
        members_({.mode = mode,
                  .members_max = members,
                  .group = "g",
                  .lag_max = kLagMax,
                  .return_max = kReturnMax},
                 answers_) {}

  void Open(uint64_t spare_bytes = 0) {
    members_.Opened({.feature_dim = 8, .slots = slots_}, BatchRoom(places_, kSlotBytes, spare_bytes),
                    kSlotBytes);
    answers_.Run();
  }

  // In a session of its own. Client 0 does not come back.
  Status Join(uint64_t stream, uint8_t client = 0) {
    const Status joined =
        members_.Join({stream, IdOf(client)}, stream,
                      [this, stream](const Result<OpenedStream>& opened) { told_[stream].opened = opened; });
    answers_.Run();
    return joined;
  }
  void Start(uint64_t stream, uint64_t pass = 0) {
    members_.StartPass(
        stream, {.stream = stream, .pass = pass},
        [this, stream](const Result<uint64_t>& begun) { told_[stream].starts.push_back(begun); });
    answers_.Run();
  }
  void Next(uint64_t stream, uint64_t tag = 0) {
    members_.Next(stream, tag, [this, stream](const Result<std::optional<StreamBatch>>& next) {
      Told& told = told_[stream];
      ++told.answers;
      if (!next.ok()) {
        told.errors.push_back(next.status());
      } else if (*next) {
        told.batches.push_back(**next);
      } else {
        ++told.ends;
      }
    });
    answers_.Run();
  }
  void Release(uint64_t stream, const StreamBatch& batch) { members_.Release(stream, batch.hold); }
  void Leave(uint64_t stream) {
    Do([&] { members_.Leave(stream, Status(Code::kCancelled, "closed")); });
  }
  void Lose(uint64_t stream) {
    Do([&] { members_.Lose(stream, Status(Code::kCancelled, "lost"), now_); });
  }

  // Begins a pass that all have asked for.
  void Begin(uint64_t batches) {
    ASSERT_TRUE(members_.AllHaveStarted());
    Do([&] {
      members_.BeginPass();
      members_.Begun(batches);
    });
  }
  // Whether a batch found its place. What keeps it waiting is remembered until one did.
  Result<bool> Produce(uint64_t index, uint64_t bytes = 100) {
    auto place = members_.TakePlace(index, bytes, wait_, now_);
    answers_.Run();
    if (!place.ok()) return place.status();
    if (*place == nullptr) return false;
    wait_ = {};
    Do([&] { members_.Give(std::move(*place)); });
    return true;
  }
  void End(const Status& status = Status::Ok()) {
    Do([&] { members_.EndPass(status); });
  }
  void Pass(milliseconds time) {
    now_ += time;
    Do([&] { members_.Expire(now_); });
  }

  template <typename Work>
  void Do(Work&& work) {
    work();
    answers_.Run();
  }
  Told& told(uint64_t stream) { return told_[stream]; }
  const GroupMembers::Wait& wait() const { return wait_; }
  Clock::time_point now() const { return now_; }
  GroupMembers& members() { return members_; }

 private:
  const uint32_t slots_;
  const size_t places_;
  std::map<uint64_t, Told> told_;
  AnswerQueue answers_;
  GroupMembers members_;
  GroupMembers::Wait wait_;
  Clock::time_point now_{};
};

// Members 1 to `members`, in a pass of so many batches.
void BeginWith(Group& group, uint64_t members, uint64_t batches) {
  group.Open();
  for (uint64_t stream = 1; stream <= members; ++stream) {
    ASSERT_OK(group.Join(stream, static_cast<uint8_t>(stream)));
    group.Start(stream);
  }
  group.Begin(batches);
}

TEST(GroupMembersTest, AStreamIsDescribedOnceTheGroupIsOpen) {
  Group group(StreamMode::kShared, 2);
  ASSERT_OK(group.Join(1));
  EXPECT_FALSE(group.told(1).opened);
  group.Open();
  ASSERT_TRUE(group.told(1).opened);
  EXPECT_EQ((*group.told(1).opened)->stream, 1u);
  ASSERT_OK(group.Join(2));
  EXPECT_EQ((*group.told(2).opened)->stream, 2u);
}

TEST(GroupMembersTest, APassBeginsWhenAllHaveAskedForIt) {
  Group group(StreamMode::kShared, 2);
  ASSERT_OK(group.Join(1));
  ASSERT_OK(group.Join(2));
  group.Start(1);
  EXPECT_FALSE(group.members().AllHaveStarted());
  group.Start(2);
  EXPECT_FALSE(group.members().AllHaveStarted()) << "the road is not open";
  group.Open();
  EXPECT_TRUE(group.members().AllHaveStarted());
  group.Begin(7);
  for (const uint64_t stream : {1, 2}) {
    ASSERT_EQ(group.told(stream).starts.size(), 1u);
    EXPECT_EQ(*group.told(stream).starts[0], 7u);
  }
}

TEST(GroupMembersTest, ThoseWhoLeftAreNotWaitedForAndThoseWhoHaveNeverBeenHereAre) {
  Group group(StreamMode::kShared, 3);
  group.Open();
  ASSERT_OK(group.Join(1));
  ASSERT_OK(group.Join(2));
  group.Start(1);
  group.Start(2);
  EXPECT_FALSE(group.members().AllHaveStarted());
  ASSERT_OK(group.Join(3));
  EXPECT_FALSE(group.members().AllHaveStarted());
  group.Leave(3);
  EXPECT_TRUE(group.members().AllHaveStarted());
  ASSERT_OK(group.Join(4));
  EXPECT_FALSE(group.members().AllHaveStarted()) << "it has the place of the one that left";
}

TEST(GroupMembersTest, APassIsTheSameForAll) {
  Group group(StreamMode::kShared, 2);
  group.Open();
  ASSERT_OK(group.Join(1));
  ASSERT_OK(group.Join(2));
  group.Start(1, 3);
  group.Start(2, 4);
  ASSERT_EQ(group.told(2).starts.size(), 1u);
  EXPECT_THAT(group.told(2).starts[0], IsStatus(Code::kInvalidArgument, HasSubstr("starts another pass")));
  group.Start(2, 3);
  EXPECT_TRUE(group.members().AllHaveStarted());
}

TEST(GroupMembersTest, AGroupTakesNobodyWhenFullOrInAPass) {
  Group group(StreamMode::kShared, 2);
  BeginWith(group, 2, 3);
  EXPECT_THAT(group.Join(3), IsStatus(Code::kBusy, HasSubstr("has its 2 members")));
  group.Leave(2);
  EXPECT_THAT(group.Join(3), IsStatus(Code::kBusy, HasSubstr("in the middle of a pass")));
  group.End();
  EXPECT_OK(group.Join(3));
}

TEST(GroupMembersTest, SharedBatchesGoToAllAndTheEndIsToldAfterTheLast) {
  Group group(StreamMode::kShared, 2);
  BeginWith(group, 2, 2);
  group.Next(1);
  EXPECT_EQ(group.told(1).answers, 0u) << "there is nothing to say yet";
  ASSERT_OK_AND_ASSIGN(const bool first, group.Produce(0));
  ASSERT_OK_AND_ASSIGN(const bool second, group.Produce(1));
  EXPECT_TRUE(first && second);
  group.Next(1);
  group.Next(1);
  EXPECT_EQ(group.told(1).ends, 0) << "the road may have more";
  group.End();
  EXPECT_EQ(group.told(1).ends, 1);
  for (int i = 0; i < 3; ++i) {
    group.Next(1);
    group.Next(2);
  }
  for (const uint64_t stream : {1, 2}) {
    EXPECT_THAT(group.told(stream).indices(), ElementsAre(0, 1));
    EXPECT_GE(group.told(stream).ends, 1);
  }
}

TEST(GroupMembersTest, ARoadThatRefusesThePassRefusesItToAll) {
  Group group(StreamMode::kShared, 2);
  group.Open();
  ASSERT_OK(group.Join(1));
  ASSERT_OK(group.Join(2));
  group.Start(1);
  group.Start(2);
  group.Next(1);
  group.Do([&] { group.members().BeginPass(); });
  group.End(Status(Code::kIoError, "no disk"));
  for (const uint64_t stream : {1, 2}) {
    ASSERT_EQ(group.told(stream).starts.size(), 1u);
    EXPECT_THAT(group.told(stream).starts[0], IsStatus(Code::kIoError, "no disk"));
  }
  EXPECT_THAT(group.told(1).errors, ElementsAre(IsStatus(Code::kIoError, "no disk")));
  group.Next(2);
  EXPECT_THAT(group.told(2).errors, ElementsAre(IsStatus(Code::kIoError, "no disk")))
      << "the same at every call";
}

TEST(GroupMembersTest, WhatASplitMemberHasNotAskedForOrStillHoldsGoesToTheOthersInOrder) {
  Group group(StreamMode::kSplit, 2, 8, 8);
  BeginWith(group, 2, 6);
  group.Next(1);
  for (uint64_t i = 0; i < 6; ++i) ASSERT_OK(group.Produce(i));
  EXPECT_THAT(group.told(1).indices(), ElementsAre(0)) << "and it holds that one";
  group.Leave(1);
  group.End();
  for (int i = 0; i < 7; ++i) group.Next(2);
  EXPECT_THAT(group.told(2).indices(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(group.told(2).ends, 1);
}

TEST(GroupMembersTest, WhoStartsAnotherPassGivesUpTheRest) {
  Group group(StreamMode::kShared, 2);
  BeginWith(group, 2, 6);
  ASSERT_OK(group.Produce(0));
  ASSERT_OK(group.Produce(1));
  group.Next(1);
  group.Start(1, 1);
  group.Next(1);
  EXPECT_THAT(group.told(1).indices(), ElementsAre(0)) << "batch 1 is not for it any more";
  group.Start(1, 1);
  EXPECT_THAT(group.told(1).errors,
              ElementsAre(IsStatus(Code::kCancelled, HasSubstr("pass 1 was started instead"))));
  group.Next(2);
  group.Next(2);
  EXPECT_THAT(group.told(2).indices(), ElementsAre(0, 1));
  EXPECT_FALSE(group.members().AllHaveStarted());
  group.Start(2, 1);
  EXPECT_TRUE(group.members().AllHaveStarted());
}

TEST(GroupMembersTest, WhoStopsTheOthersForLagMaxIsDroppedAndNotBefore) {
  Group group(StreamMode::kShared, 2, /*slots=*/1);
  BeginWith(group, 2, 6);
  ASSERT_OK(group.Produce(0));
  group.Next(1);  // holds it
  group.Next(2);
  group.Release(2, group.told(2).batches[0]);
  ASSERT_OK_AND_ASSIGN(bool produced, group.Produce(1));
  EXPECT_FALSE(produced);
  EXPECT_EQ(group.wait().until, Clock::time_point::max()) << "nobody waits for it";
  group.Pass(2 * kLagMax);
  group.Next(2);
  ASSERT_OK_AND_ASSIGN(produced, group.Produce(1));
  EXPECT_EQ(group.wait().until, group.now() + kLagMax);
  group.Pass(kLagMax - milliseconds(1));
  ASSERT_OK_AND_ASSIGN(produced, group.Produce(1));
  EXPECT_FALSE(produced);
  group.Next(1, 9);
  EXPECT_THAT(group.told(1).errors, IsEmpty());
  group.Pass(milliseconds(1));
  ASSERT_OK_AND_ASSIGN(produced, group.Produce(1));
  EXPECT_FALSE(produced) << "it is asked again";
  EXPECT_THAT(group.told(1).errors,
              ElementsAre(IsStatus(Code::kCancelled, HasSubstr("stream 1 fell behind"))));
  ASSERT_OK_AND_ASSIGN(produced, group.Produce(1));
  EXPECT_TRUE(produced);
  EXPECT_THAT(group.told(2).indices(), ElementsAre(0, 1));
  group.Next(1);
  EXPECT_THAT(group.told(1).errors.back(), IsStatus(Code::kCancelled, HasSubstr("close it")));
}

TEST(GroupMembersTest, ThoseWhoWereDroppedMayHoldAllPlaces) {
  Group group(StreamMode::kShared, 2, /*slots=*/1, /*places=*/1);
  BeginWith(group, 2, 6);
  ASSERT_OK(group.Produce(0));
  group.Next(1);
  group.Next(2);
  group.Release(2, group.told(2).batches[0]);
  group.Next(2);
  ASSERT_OK(group.Produce(1));
  group.Pass(kLagMax);
  ASSERT_OK(group.Produce(1));
  EXPECT_THAT(group.Produce(1), IsStatus(Code::kBusy, HasSubstr("hold all of its shared memory")));
  group.Leave(1);
  ASSERT_OK_AND_ASSIGN(const bool produced, group.Produce(1));
  EXPECT_TRUE(produced);
}

TEST(GroupMembersTest, AMemberThatComesBackIsGivenAgainWhatItHeld) {
  Group group(StreamMode::kShared, 2, 4, 8);
  BeginWith(group, 2, 6);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_OK(group.Produce(i));
  for (int i = 0; i < 2; ++i) group.Next(1);
  group.Release(1, group.told(1).batches[0]);
  group.Lose(1);
  ASSERT_OK(group.Join(11, /*client=*/1));
  group.Start(11);
  ASSERT_EQ(group.told(11).starts.size(), 1u);
  EXPECT_EQ(*group.told(11).starts[0], 6u);
  for (int i = 0; i < 3; ++i) group.Next(11);
  EXPECT_THAT(group.told(11).indices(), ElementsAre(1, 2));
  ASSERT_OK(group.Produce(3));
  EXPECT_THAT(group.told(11).indices(), ElementsAre(1, 2, 3));
}

TEST(GroupMembersTest, AClientMayComeBackBeforeItsOldConnectionIsKnownToBeLost) {
  Group group(StreamMode::kShared, 2, 4, 8);
  BeginWith(group, 2, 6);
  ASSERT_OK(group.Produce(0));
  group.Next(1);
  ASSERT_OK(group.Join(11, /*client=*/1));
  group.Start(11);
  group.Next(11);
  EXPECT_THAT(group.told(11).indices(), ElementsAre(0));
  group.Next(1);
  EXPECT_THAT(group.told(1).errors, ElementsAre(IsStatus(Code::kUsage, HasSubstr("stream 1 is not open"))));
}

TEST(GroupMembersTest, ALostPlaceIsKeptForReturnMaxAndNotLonger) {
  Group group(StreamMode::kShared, 2, 4, 8);
  BeginWith(group, 2, 6);
  group.Lose(1);
  EXPECT_EQ(group.members().NextExpiry(), group.now() + kReturnMax);
  group.Pass(kReturnMax - milliseconds(1));
  EXPECT_NE(group.members().NextExpiry(), Clock::time_point::max());
  group.Pass(milliseconds(1));
  EXPECT_EQ(group.members().NextExpiry(), Clock::time_point::max());
  EXPECT_THAT(group.Join(11, /*client=*/1), IsStatus(Code::kBusy, HasSubstr("in the middle of a pass")));
}

TEST(GroupMembersTest, NobodyIsWaitedForWhenNobodyElseIsThere) {
  Group group(StreamMode::kShared, 2, 4, 8);
  BeginWith(group, 2, 6);
  group.Lose(1);
  group.Lose(2);
  EXPECT_TRUE(group.members().closing());
}

TEST(GroupMembersTest, ABatchThatFindsNoLargePlaceForLagMaxIsRefused) {
  Group group(StreamMode::kExclusive, 1, /*slots=*/2, /*places=*/2);
  group.Open(/*spare_bytes=*/wire::kLeaseAlignment);
  ASSERT_OK(group.Join(1));
  group.Start(1);
  group.Begin(6);
  EXPECT_THAT(group.Produce(0, 2 * kSlotBytes), IsStatus(Code::kOutOfBudget, HasSubstr("batch 0 takes")));
  group.Next(1);
  ASSERT_OK_AND_ASSIGN(bool produced, group.Produce(0, kSlotBytes + 1));
  EXPECT_TRUE(produced) << "by the spare";
  group.Next(1);
  ASSERT_OK_AND_ASSIGN(produced, group.Produce(1, kSlotBytes + 1));
  EXPECT_FALSE(produced);
  group.Pass(kLagMax - milliseconds(1));
  ASSERT_OK_AND_ASSIGN(produced, group.Produce(1, kSlotBytes + 1));
  EXPECT_FALSE(produced);
  group.Pass(milliseconds(1));
  EXPECT_THAT(group.Produce(1, kSlotBytes + 1),
              IsStatus(Code::kOutOfBudget, HasSubstr("release each before the next")));
}

// Clients ask, cancel, release, leave, lose their connection and come back, by seed. The model knows a pass's batches and who
// was there all along.
class Random {
 public:
  Random(uint64_t seed, StreamMode mode)
      : rng_(seed),
        mode_(mode),
        group_(mode, kMembers, /*slots=*/1 + static_cast<uint32_t>(rng_.Below(3)), /*places=*/6) {
    group_.Open();
  }

  void Run() {
    for (uint64_t i = 0; i < kMembers; ++i) Enter();
    for (uint64_t pass = 0; pass < 4 && !HasFailure(); ++pass) RunPass(pass);
    group_.Do([&] { group_.members().LeaveAll(Status(Code::kCancelled, "over")); });
    EXPECT_TRUE(group_.members().closing());
    for (const auto& [stream, asked] : asked_) {
      EXPECT_EQ(group_.told(stream).answers, asked) << "stream " << stream << ": each call is answered, once";
    }
  }

 private:
  static constexpr uint64_t kMembers = 3;
  static bool HasFailure() { return testing::Test::HasFailure(); }

  void Enter() {
    const uint64_t stream = ++streams_;
    clients_[stream] = static_cast<uint8_t>(stream);
    if (group_.Join(stream, clients_[stream]).ok()) present_.insert(stream);
  }

  void RunPass(uint64_t pass) {
    while (present_.size() < kMembers) Enter();
    used_.clear();
    carried_.clear();
    pass_ = pass;
    for (const uint64_t stream : present_) {
      since_[stream] = group_.told(stream).batches.size();
      group_.Start(stream, pass);
    }
    const uint64_t batches = rng_.Below(20);
    group_.Begin(batches);
    if (HasFailure()) return;
    for (uint64_t made = 0; made < batches;) {
      Act();
      const auto produced = group_.Produce(made);
      ASSERT_OK(produced);
      made += *produced ? 1 : 0;
      if (!*produced && rng_.Below(4) == 0) ReleaseAll();
    }
    group_.End();
    for (const uint64_t stream : present_) Ask(stream, 25);
    Check(batches);
    ReleaseAll();
  }

  void Act() {
    const uint64_t stream = *std::next(present_.begin(), static_cast<ptrdiff_t>(rng_.Below(present_.size())));
    const uint64_t what = rng_.Below(44);
    if (what < 20) {
      Ask(stream, 1);
    } else if (what < 38) {
      ReleaseOne(stream);
    } else if (what < 40) {
      group_.Do([&] { group_.members().CancelNext(stream, 0); });
    } else if (what < 42 && mode_ == StreamMode::kShared && present_.size() > 1) {
      LoseAndComeBack(stream);
    } else if (what == 42 && present_.size() > 1) {
      const std::vector<uint64_t> had = HadInPass(stream);
      const size_t released = carried_[stream].size() + released_[stream] - since_[stream];
      used_.insert(used_.end(), had.begin(), had.begin() + static_cast<ptrdiff_t>(released));
      present_.erase(stream);
      group_.Leave(stream);
    }
  }

  // What it has not released is given again.
  void LoseAndComeBack(uint64_t stream) {
    const std::vector<uint64_t> had = HadInPass(stream);
    const size_t released = carried_[stream].size() + released_[stream] - since_[stream];
    const uint64_t back = ++streams_;
    if (rng_.Below(2) == 0) group_.Lose(stream);
    clients_[back] = clients_[stream];
    ASSERT_OK(group_.Join(back, clients_[back]));
    carried_[back].assign(had.begin(), had.begin() + static_cast<ptrdiff_t>(released));
    present_.erase(stream);
    present_.insert(back);
    group_.Start(back, pass_);
    ASSERT_EQ(group_.told(back).starts.size(), 1u);
    EXPECT_OK(group_.told(back).starts[0]);
  }

  void Ask(uint64_t stream, int times) {
    for (int i = 0; i < times; ++i) {
      ++asked_[stream];
      group_.Next(stream);
    }
  }

  void ReleaseOne(uint64_t stream) {
    const auto& batches = group_.told(stream).batches;
    size_t& released = released_[stream];
    if (released < batches.size()) group_.Release(stream, batches[released++]);
  }
  void ReleaseAll() {
    for (const uint64_t stream : present_) {
      while (released_[stream] < group_.told(stream).batches.size()) ReleaseOne(stream);
    }
  }

  std::vector<uint64_t> HadInPass(uint64_t stream) {
    std::vector<uint64_t> had = carried_[stream];
    const std::vector<uint64_t> told = group_.told(stream).indices();
    had.insert(had.end(), told.begin() + static_cast<ptrdiff_t>(since_[stream]), told.end());
    return had;
  }

  // In a shared group, whoever stayed had every batch; in a split, each was used once, by those who stayed or those who
  // released it before they left.
  void Check(uint64_t batches) {
    std::vector<uint64_t> all(batches);
    std::iota(all.begin(), all.end(), 0);
    for (const uint64_t stream : present_) {
      const std::vector<uint64_t> had = HadInPass(stream);
      EXPECT_GE(group_.told(stream).ends, 1);
      if (mode_ == StreamMode::kShared) {
        EXPECT_EQ(had, all) << "stream " << stream;
      }
      used_.insert(used_.end(), had.begin(), had.end());
    }
    if (mode_ == StreamMode::kSplit) {
      EXPECT_THAT(used_, testing::UnorderedElementsAreArray(all));
    }
  }

  Rng rng_;
  const StreamMode mode_;
  Group group_;
  uint64_t streams_ = 0;
  std::set<uint64_t> present_;
  uint64_t pass_ = 0;
  std::vector<uint64_t> used_;  // batches of the pass
  std::map<uint64_t, std::vector<uint64_t>>
      carried_;  // what a stream's client had released in the one before
  std::map<uint64_t, uint8_t> clients_;
  std::map<uint64_t, uint64_t> asked_;
  std::map<uint64_t, size_t> released_, since_;
};

TEST(GroupMembersTest, WhateverMembersDoEachBatchReachesThoseWhoStay) {
  for (uint64_t seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random(seed, StreamMode::kShared).Run();
    Random(seed, StreamMode::kSplit).Run();
  }
}

}  // namespace
}  // namespace quarry
