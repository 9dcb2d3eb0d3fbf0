// The partitioned road as a stream of a hub: its batches are those of the road alone, for one member and for several, on
// the memory that was said; and what it cannot give is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "partition/partitioned_store.h"
#include "quarry/format/element_type.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/pipeline/partitioned_node_road.h"
#include "server/hub_util.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::Exclusive;
using testing_util::Grouped;
using testing_util::HashBatch;
using testing_util::HubUser;
using testing_util::HubWorld;
using testing_util::Pending;
using testing_util::RandomAssignment;
using testing_util::SmallLive;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;
using wire::StreamMode;

using Hashes = std::vector<std::pair<uint64_t, uint64_t>>;

constexpr uint32_t kParts = 8;
constexpr Split kSplits[] = {Split::kTrain, Split::kValid, Split::kTest};

class PartitionedStreamTest : public testing::Test {
 protected:
  PartitionedStreamTest() : database_(TinyGraph{.both_directions = true}), world_({}, database_) {
    Cut(/*seed=*/7);
    world_.open.road.reset();
  }

  void Cut(uint64_t seed) {
    const auto built =
        BuildPartitioning(*world_.open.store, *world_.open.budget, {.table = "feature"},
                          RandomAssignment(world_.open.store->manifest()->node_count, kParts, seed), {});
    ASSERT_OK(built);
  }

  static wire::PartitionedSpec Parts(uint32_t buffer = 3) { return {.live = SmallLive(), .buffer = buffer}; }

  // The pass as a road of this process has it, on the parts that the stream was opened with.
  Hashes Expected(const wire::OpenedParts& parts, const wire::StartPass& pass, StreamStats* stats = nullptr) {
    const Split split = std::get<Split>(pass.seeds);
    PartitionedNodeRoadOptions options{.spec = SmallLive(), .sampler_threads = 2};
    options.parts.buffer = parts.buffer;
    options.parts.logical = parts.logical;
    Hashes hashes;
    const auto road = PartitionedNodeRoad::Open(*world_.open.store, *world_.open.budget, options);
    EXPECT_OK(road);
    if (!road.ok()) return hashes;
    EXPECT_EQ(parts.NodesIn(split), (*road)->CountNodes(split));
    EXPECT_EQ(parts.class_count, (*road)->class_count());
    const auto stream =
        (*road)->StartSplit(split, {.shuffle = pass.shuffle, .pass = pass.pass, .ordered = true});
    EXPECT_OK(stream);
    while (stream.ok()) {
      const auto batch = (*stream)->Next();
      EXPECT_OK(batch);
      if (!batch.ok() || *batch == nullptr) break;
      hashes.emplace_back((*batch)->index(), HashBatch((*batch)->view()));
    }
    if (stats != nullptr && stream.ok()) *stats = (*stream)->stats();
    return hashes;
  }

  std::vector<HubUser> OpenMembers(const wire::OpenStream& request) {
    std::vector<HubUser> members;
    for (uint32_t i = 0; i < request.members; ++i) {
      members.push_back(world_.User(i + 1));
      EXPECT_OK(members.back().Open(request));
    }
    return members;
  }

  static void StartAll(std::vector<HubUser>& members, const wire::StartPass& pass) {
    std::vector<Pending<uint64_t>> starts;
    for (HubUser& member : members) starts.push_back(member.AskStart(pass));
    for (const auto& start : starts) EXPECT_OK(start.Get());
  }

  static std::vector<Hashes> DrainAll(std::vector<HubUser>& members) {
    std::vector<Hashes> hashes(members.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < members.size(); ++i) {
      threads.emplace_back([&, i] { EXPECT_OK(members[i].Drain(hashes[i])); });
    }
    for (std::thread& thread : threads) thread.join();
    return hashes;
  }

  const TinyDatabase database_;
  HubWorld world_;
};

TEST_F(PartitionedStreamTest, BatchesAreThoseOfTheRoad) {
  HubUser user = world_.User();
  ASSERT_OK(user.Open(Exclusive(Parts())));
  ASSERT_TRUE(user.opened.parts);
  EXPECT_EQ(user.opened.parts->buffer, 3U);
  EXPECT_EQ(user.opened.parts->logical, kParts);
  uint64_t pass = 0;
  for (const Split split : kSplits) {
    for (const bool shuffle : {true, false}) {
      const wire::StartPass request{.seeds = split, .shuffle = shuffle, .pass = ++pass, .ordered = true};
      Hashes hashes;
      ASSERT_OK_AND_ASSIGN(const uint64_t batches, user.Start(request));
      ASSERT_OK(user.Drain(hashes));
      EXPECT_EQ(hashes.size(), batches);
      EXPECT_EQ(hashes, Expected(*user.opened.parts, request)) << "split " << static_cast<int>(split);
    }
  }
}

TEST_F(PartitionedStreamTest, InASplitEveryBatchGoesToTheMemberOfItsNumberAndPartsAreReadOnce) {
  std::vector<HubUser> members = OpenMembers(Grouped(StreamMode::kSplit, 3, Parts()));
  for (const bool ordered : {true, false}) {
    const wire::StartPass request{.seeds = Split::kTrain, .pass = 4, .ordered = ordered};
    StartAll(members, request);
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
    StreamStats alone;
    EXPECT_EQ(all, Expected(*members[0].opened.parts, request, &alone));
    const auto stats = members[1].Stats();
    ASSERT_OK(stats);
    // A pass may begin with parts that the one before has left.
    EXPECT_LE(stats->feature_bytes_read, alone.feature_bytes_read);
    EXPECT_EQ(stats->input_nodes, alone.input_nodes);
  }
}

TEST_F(PartitionedStreamTest, SharedMembersGetEveryBatch) {
  std::vector<HubUser> members = OpenMembers(Grouped(StreamMode::kShared, 3, Parts()));
  EXPECT_EQ(members[0].opened.region, members[2].opened.region);
  const wire::StartPass request{.seeds = Split::kValid, .pass = 1, .ordered = true};
  StartAll(members, request);
  const Hashes expected = Expected(*members[0].opened.parts, request);
  for (const Hashes& hashes : DrainAll(members)) EXPECT_EQ(hashes, expected);
}

// Its batches go to the others, while other parts swap in, and the next pass is theirs.
TEST_F(PartitionedStreamTest, AMemberThatGoesStopsNobody) {
  std::vector<HubUser> members = OpenMembers(Grouped(StreamMode::kSplit, 3, Parts()));
  StartAll(members, {.seeds = Split::kTrain, .ordered = true});
  const StreamBatch held = **members[1].Next();
  EXPECT_EQ(held.index, 1U);
  members[1].CloseSession();
  members.erase(members.begin() + 1);
  for (const uint64_t pass : {0, 1}) {
    const wire::StartPass request{.seeds = Split::kTrain, .pass = pass, .ordered = true};
    if (pass > 0) StartAll(members, request);
    const std::vector<Hashes> hashes = DrainAll(members);
    Hashes all = hashes[0];
    all.insert(all.end(), hashes[1].begin(), hashes[1].end());
    std::ranges::sort(all);
    EXPECT_EQ(all, Expected(*members[0].opened.parts, request)) << "pass " << pass;
  }
}

TEST_F(PartitionedStreamTest, APassIsGivenUpWhereverItIs) {
  HubUser user = world_.User();
  ASSERT_OK(user.Open(Exclusive(Parts(2))));
  const wire::StartPass whole{.seeds = Split::kTrain, .pass = 9, .ordered = true};
  const Hashes expected = Expected(*user.opened.parts, whole);
  for (size_t taken = 0; taken <= expected.size(); ++taken) {
    ASSERT_OK(user.Start({.seeds = Split::kTrain, .pass = taken}));
    for (size_t i = 0; i < taken; ++i) {
      const auto batch = user.Next();
      ASSERT_OK(batch);
      if (!*batch) break;
      user.Release(**batch);
    }
    Hashes hashes;
    ASSERT_OK(user.Start(whole));
    ASSERT_OK(user.Drain(hashes));
    EXPECT_EQ(hashes, expected) << taken << " batches of the pass before";
  }
}

// The more memory, the more parts are held; and with the least that opens at all, every pass has room for its batches, as
// many as a member may hold.
TEST_F(PartitionedStreamTest, TheLeastMemoryThatOpensIsEnough) {
  SessionId session = 0;
  const auto open = [&](uint64_t bytes, StreamMode mode, std::vector<HubUser>& members) -> Status {
    const auto budget = std::make_shared<MemoryBudget>(bytes);
    const uint32_t count = mode == StreamMode::kExclusive ? 1 : 2;
    wire::OpenStream request = Exclusive(Parts(0));
    if (mode != StreamMode::kExclusive) {
      request = Grouped(mode, count, Parts(0));
      request.group = fmt::format("g{}", session);
    }
    for (uint32_t i = 0; i < count; ++i) {
      members.emplace_back(*world_.hub, ++session, budget);
      QUARRY_RETURN_IF_ERROR(members.back().Open(request));
    }
    return Status::Ok();
  };
  const auto close = [](std::vector<HubUser>& members) {
    for (HubUser& member : members) member.CloseSession();
    members.clear();
  };
  for (const StreamMode mode : {StreamMode::kExclusive, StreamMode::kShared, StreamMode::kSplit}) {
    SCOPED_TRACE(static_cast<int>(mode));
    std::vector<HubUser> members;
    uint64_t least = 64 * kMiB, too_little = 0;
    uint32_t buffer = kParts + 1;
    while (least - too_little > 64) {
      const uint64_t bytes = (least + too_little) / 2;
      const Status status = open(bytes, mode, members);
      if (status.ok()) {
        EXPECT_LE(members[0].opened.parts->buffer, buffer) << bytes;
        buffer = members[0].opened.parts->buffer;
        least = bytes;
      } else {
        EXPECT_THAT(status, IsStatus(Code::kOutOfBudget));
        too_little = bytes;
      }
      close(members);
    }
    ASSERT_OK(open(least, mode, members));
    for (const Split split : kSplits) {
      const wire::StartPass request{.seeds = split, .pass = 2, .ordered = true};
      StartAll(members, request);
      size_t had = 0;
      // All hold what they may before anybody lets go.
      for (bool more = true; more;) {
        std::vector<std::vector<StreamBatch>> held(members.size());
        more = false;
        for (uint32_t slot = 0; slot < members[0].opened.slots; ++slot) {
          for (size_t i = 0; i < members.size(); ++i) {
            const auto batch = members[i].Next();
            ASSERT_OK(batch);
            if (*batch) held[i].push_back(**batch);
          }
        }
        for (size_t i = 0; i < members.size(); ++i) {
          for (const StreamBatch& batch : held[i]) members[i].Release(batch);
          had += held[i].size();
          more = more || !held[i].empty();
        }
      }
      const size_t times = mode == StreamMode::kShared ? members.size() : 1;
      EXPECT_EQ(had, times * Expected(*members[0].opened.parts, request).size());
    }
    close(members);
  }
}

TEST_F(PartitionedStreamTest, RowsAreThoseOfTheBuildAndNoSnapshots) {
  Store& store = *world_.open.store;
  const auto manifest = store.manifest();
  const uint64_t built = manifest->partitionings.front().timestamp;
  const TableRecord& table = *manifest->FindTable("feature");
  const std::vector<std::byte> row(RowBytes(table.element_type, table.dim));
  WriteBatch batch;
  batch.Put("feature", 0, row);
  ASSERT_OK(store.Write(batch));
  ASSERT_OK_AND_ASSIGN(const auto newest, store.TakeSnapshot());
  ASSERT_GT(newest->timestamp, built);

  HubUser user = world_.User(), other = world_.User(2), third = world_.User(3);
  const auto refused = IsStatus(Code::kUnsupported, HasSubstr("those of its build"));
  EXPECT_THAT(user.Open(Exclusive(Parts()), newest), refused);
  ASSERT_OK(user.Open(Exclusive(Parts())));
  EXPECT_EQ(user.opened.timestamp, built);
  ASSERT_OK(other.Open(Grouped(StreamMode::kShared, 2, Parts())));
  EXPECT_THAT(third.Open(Grouped(StreamMode::kShared, 2, Parts()), newest), refused);
  ASSERT_OK(third.Open(Grouped(StreamMode::kShared, 2, Parts())));
  EXPECT_EQ(third.opened.timestamp, built);
}

TEST_F(PartitionedStreamTest, WhatItCannotGiveIsRefused) {
  HubUser user = world_.User();
  wire::PartitionedSpec parts = Parts();
  parts.partitioning = "none";
  EXPECT_THAT(user.Open(Exclusive(parts)), IsStatus(Code::kNotFound, HasSubstr("default")));
  parts = Parts();
  parts.live.edge_ids = true;
  EXPECT_THAT(user.Open(Exclusive(parts)), IsStatus(Code::kUnsupported, HasSubstr("edge ids")));
  EXPECT_THAT(user.Open(Exclusive(Parts(kParts + 1))), IsStatus(Code::kInvalidArgument));
  ASSERT_OK(user.Open(Exclusive(Parts())));
  EXPECT_THAT(user.Start({.seeds = wire::NodeIds(std::vector<NodeId>{1, 2})}),
              IsStatus(Code::kUnsupported, HasSubstr("given nodes")));
  HubUser other = world_.User(2), third = world_.User(3);
  ASSERT_OK(other.Open(Grouped(StreamMode::kShared, 2, Parts())));
  EXPECT_THAT(third.Open(Grouped(StreamMode::kShared, 2, Parts(4))),
              IsStatus(Code::kInvalidArgument, HasSubstr("buffer 4, the group has 3")));
  EXPECT_THAT(third.Open(Grouped(StreamMode::kShared, 2)),
              IsStatus(Code::kInvalidArgument, HasSubstr("a live road, the group has a partitioned road")));
}

}  // namespace
}  // namespace quarry
