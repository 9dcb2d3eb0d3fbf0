#include "quarry/cache/cache_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <list>
#include <new>
#include <numeric>
#include <set>

#include "cache/access_trace.h"
#include "quarry/cache/cache_simulator.h"
#include "support/status_matchers.h"

namespace {
uint64_t allocation_count = 0;  // of this program; the tests have one thread
}  // namespace

// Not inlined, else g++ sees `free` on what `new` returned and warns.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocation_count;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
// Replaced too, so that whatever is deleted below came from malloc (AddressSanitizer has its own).
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocation_count;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The residents after each batch, from the policy's changes alone; checks that the changes are possible.
class Replay {
 public:
  Replay(PolicyKind kind, uint64_t node_count, uint64_t capacity, const std::vector<NodeId>& start,
         const std::vector<KeepRule>& rules)
      : policy_(CachePolicy::Make(kind, node_count, capacity, start, rules)),
        capacity_(capacity),
        residents_(start.begin(), start.end()) {}

  void Step(uint32_t batch, const std::vector<NodeId>& nodes, const std::vector<uint32_t>& next_uses) {
    std::vector<uint8_t> resident;
    for (const NodeId node : nodes) resident.push_back(residents_.contains(node));
    misses_ += static_cast<uint64_t>(std::ranges::count(resident, uint8_t{0}));
    policy_->Step({.batch = batch, .nodes = nodes, .next_uses = next_uses, .resident = resident}, change_);
    for (const NodeId node : change_.evicted) ASSERT_EQ(residents_.erase(node), 1u) << "node " << node;
    ASSERT_TRUE(std::ranges::is_sorted(change_.admitted));
    for (const uint32_t position : change_.admitted) {
      ASSERT_EQ(resident[position], 0);
      ASSERT_TRUE(residents_.insert(nodes[position]).second) << "position " << position;
    }
    ASSERT_LE(residents_.size(), capacity_);
  }

  const std::set<NodeId>& residents() const { return residents_; }
  const CacheChange& change() const { return change_; }
  uint64_t misses() const { return misses_; }

 private:
  const std::unique_ptr<CachePolicy> policy_;
  const uint64_t capacity_;
  std::set<NodeId> residents_;
  CacheChange change_;
  uint64_t misses_ = 0;
};

// Every row of every batch in turn, but served from what was there before the batch.
class FifoModel {
 public:
  FifoModel(uint64_t capacity, const std::vector<NodeId>& start)
      : capacity_(capacity), queue_(start.begin(), start.end()) {}
  void Step(const std::vector<NodeId>& nodes) {
    const std::set<NodeId> before = residents();
    for (const NodeId node : nodes) {
      if (before.contains(node)) continue;
      queue_.push_back(node);
      if (queue_.size() > capacity_) queue_.pop_front();
    }
  }
  std::set<NodeId> residents() const { return {queue_.begin(), queue_.end()}; }

 private:
  const uint64_t capacity_;
  std::deque<NodeId> queue_;
};

class LruModel {
 public:
  LruModel(uint64_t capacity, const std::vector<NodeId>& start)
      : capacity_(capacity), order_(start.begin(), start.end()) {}
  void Step(const std::vector<NodeId>& nodes) {
    for (const NodeId node : nodes) {
      order_.remove(node);
      order_.push_back(node);
      if (order_.size() > capacity_) order_.pop_front();
    }
  }
  std::set<NodeId> residents() const { return {order_.begin(), order_.end()}; }

 private:
  const uint64_t capacity_;
  std::list<NodeId> order_;  // used longest ago first
};

template <typename Model>
void ExpectBehavesLike(PolicyKind kind) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(testing::Message() << NameOf(kind) << ", seed " << seed);
    Rng rng(seed);
    const uint64_t node_count = 1 + rng.Below(40);
    const uint64_t capacity = rng.Below(node_count + 3);
    const std::vector<NodeId> start =
        RandomNodes(rng, node_count, rng.Below(std::min(capacity, node_count) + 1));
    Replay replay(kind, node_count, capacity, start, {});
    Model model(capacity, start);
    for (uint32_t batch = 0; batch < 60; ++batch) {
      SCOPED_TRACE(testing::Message() << "batch " << batch);
      const std::vector<NodeId> nodes = RandomNodes(rng, node_count, rng.Below(node_count + 1));
      replay.Step(batch, nodes, {});
      model.Step(nodes);
      if (testing::Test::HasFatalFailure()) return;
      ASSERT_EQ(replay.residents(), model.residents());
    }
  }
}

TEST(CachePolicyTest, FifoBehavesLikeADequeOfRows) { ExpectBehavesLike<FifoModel>(PolicyKind::kFifo); }
TEST(CachePolicyTest, LruBehavesLikeAListOfRows) { ExpectBehavesLike<LruModel>(PolicyKind::kLru); }

TEST(CachePolicyTest, StaticPoliciesNeverChangeAnything) {
  for (const PolicyKind kind : {PolicyKind::kNone, PolicyKind::kStaticDegree, PolicyKind::kStaticFrequency}) {
    SCOPED_TRACE(NameOf(kind));
    const std::vector<NodeId> start =
        kind == PolicyKind::kNone ? std::vector<NodeId>{} : std::vector<NodeId>{1, 4, 7};
    Replay replay(kind, 10, 3, start, {});
    for (uint32_t batch = 0; batch < 5; ++batch) {
      replay.Step(batch, {4, 5, batch}, {});
      EXPECT_THAT(replay.change().admitted, IsEmpty());
      EXPECT_THAT(replay.change().evicted, IsEmpty());
    }
  }
}

TEST(CachePolicyTest, BeladyKeepsWhatWasUsedLatelyEnoughForItsNextUse) {
  const std::vector<KeepRule> rules = {{}, {1, 5}, {2, 1}, {4, 0}};
  Replay replay(PolicyKind::kBelady, 10, 4, {}, rules);
  replay.Step(0, {1, 2, 3, 4, 5, 6}, {1, 2, kNeverUsed, 2, 3, 4});
  EXPECT_THAT(replay.residents(), ElementsAre(1, 2, 5)) << "one row for batch 2, the first; none for batch 0";
  EXPECT_THAT(replay.change().admitted, ElementsAre(0, 1, 4));
  replay.Step(1, {1, 7, 8}, {kNeverUsed, 2, 2});
  EXPECT_THAT(replay.residents(), ElementsAre(2, 5, 7, 8)) << "later rows for batch 2 stay, all of them";
  EXPECT_THAT(replay.change().evicted, ElementsAre(1));
}

TEST(CachePolicyTest, BeladyPrefersAResidentRowToAnEquallyGoodMiss) {
  const std::vector<KeepRule> rules = {{}, {}, {}, {3, 2}};
  Replay replay(PolicyKind::kBelady, 10, 3, {5, 6}, rules);
  replay.Step(0, {1, 6, 2, 5}, {3, 3, 2, 3});
  EXPECT_THAT(replay.residents(), ElementsAre(5, 6));
  EXPECT_THAT(replay.change().admitted, IsEmpty());
}

TEST(CachePolicyTest, BeladyAdmitsInOrderWhatResidentsLeave) {
  const std::vector<KeepRule> rules = {{}, {1, 9}, {}, {3, 3}};
  Replay replay(PolicyKind::kBelady, 10, 6, {5, 6}, rules);
  replay.Step(0, {1, 6, 2, 3, 4}, {3, 3, 1, 3, 3});
  EXPECT_THAT(replay.change().admitted, ElementsAre(0, 2, 3));
}

TEST(CachePolicyTest, WhatBeladyKeepsForTheNextRoundDependsOnNoResident) {
  const std::vector<KeepRule> rules = {{}, {2, 1}};  // one row of batch 1, from one round to the next
  for (const std::vector<NodeId>& start : {std::vector<NodeId>{}, std::vector<NodeId>{7}}) {
    Replay replay(PolicyKind::kBelady, 10, 2, start, rules);
    replay.Step(0, {}, {});
    replay.Step(1, {4, 7}, {3, 3});
    EXPECT_THAT(replay.residents(), ElementsAre(4));
  }
}

TEST(CachePolicyTest, BeladyHitsAtLeastAsOftenAsAnyOtherOnPowerLaws) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t node_count = 3000, capacity = 50 + rng.Below(1000);
    const AccessTrace trace = PowerLawTrace(rng, node_count, 300, 40, false);
    const std::vector<KeepRule> rules = PlanOf(trace, capacity, false).rules;
    const auto misses = [&](PolicyKind kind, const std::vector<NodeId>& start) {
      Replay replay(kind, node_count, capacity, start, rules);
      for (uint32_t batch = 0; batch < trace.batch_count(); ++batch) {
        replay.Step(batch, trace.nodes[batch], trace.next_uses[batch]);
      }
      return replay.misses();
    };
    for (const PolicyKind kind : {PolicyKind::kNone, PolicyKind::kFifo, PolicyKind::kLru}) {
      EXPECT_LT(misses(PolicyKind::kBelady, {}), misses(kind, {})) << NameOf(kind);
    }
  }
}

TEST(CachePolicyTest, NamesAreParsedBackAndOthersRefusedWithTheList) {
  for (const PolicyKind kind : kAllPolicies) {
    ASSERT_OK_AND_ASSIGN(const auto parsed, ParseName<PolicyKind>(NameOf(kind)));
    EXPECT_EQ(parsed, kind);
  }
  const auto refused = ParseName<PolicyKind>("mru");
  EXPECT_THAT(refused, IsStatus(Code::kUsage));
  EXPECT_THAT(std::string(refused.status().message()),
              testing::HasSubstr("none, static-degree, static-frequency, fifo, lru, belady"));
}

TEST(CachePolicyTest, AllocatesNothingOnceItIsUnderWay) {
  const uint64_t node_count = 2000, capacity = 500;
  Rng rng(3);
  const AccessTrace trace = PowerLawTrace(rng, node_count, 250, 150, true);
  const std::vector<KeepRule> rules = PlanOf(trace, capacity, true).rules;
  for (const PolicyKind kind : {PolicyKind::kFifo, PolicyKind::kLru, PolicyKind::kBelady}) {
    SCOPED_TRACE(NameOf(kind));
    const auto policy = CachePolicy::Make(kind, node_count, capacity, {}, rules);
    std::vector<uint8_t> is_resident(node_count), resident(250);
    CacheChange change;
    change.admitted.reserve(250);
    change.evicted.reserve(capacity);
    uint64_t before = 0;
    for (uint32_t batch = 0; batch < trace.batch_count(); ++batch) {
      if (batch == 1) before = allocation_count;
      const std::vector<NodeId>& nodes = trace.nodes[batch];
      for (size_t i = 0; i < nodes.size(); ++i) resident[i] = is_resident[nodes[i]];
      policy->Step({batch, nodes, trace.next_uses[batch], resident}, change);
      for (const NodeId node : change.evicted) is_resident[node] = 0;
      for (const uint32_t position : change.admitted) is_resident[nodes[position]] = 1;
    }
    EXPECT_EQ(allocation_count, before);
  }
}

TEST(CachePolicyTest, MemoryIsByCapacityForLruAlsoByNodesAndForBeladyByBatch) {
  const auto bytes = [](PolicyKind kind) {
    return CachePolicy::MemoryBytes(kind, 50'000'000, 10'000'000, 700'000);
  };
  EXPECT_EQ(bytes(PolicyKind::kStaticFrequency), 0u);
  EXPECT_EQ(bytes(PolicyKind::kFifo), 40'000'000u);
  EXPECT_EQ(bytes(PolicyKind::kLru), 320'000'000u);
  EXPECT_EQ(bytes(PolicyKind::kBelady), 2'800'000u);
}

TEST(TopNodesTest, TakesWhatSortingWouldTake) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t bound = uint64_t{1} << (1 + rng.Below(32));
    std::vector<uint32_t> scores(rng.Below(2000));
    for (uint32_t& score : scores) score = static_cast<uint32_t>(rng.Below(rng.Below(bound) + 1));
    std::vector<NodeId> order(scores.size());
    std::iota(order.begin(), order.end(), NodeId{0});
    std::erase_if(order, [&](NodeId node) { return scores[node] == 0; });
    std::ranges::stable_sort(order, [&](NodeId a, NodeId b) { return scores[a] > scores[b]; });
    for (const uint64_t count : {uint64_t{0}, uint64_t{1}, rng.Below(2000), uint64_t{5000}}) {
      std::vector<NodeId> expected(order.begin(),
                                   order.begin() + static_cast<ptrdiff_t>(std::min(count, order.size())));
      std::ranges::sort(expected);
      ASSERT_EQ(TopNodes(scores, count), expected) << count << " nodes";
    }
  }
  EXPECT_THAT(TopNodes(std::vector<uint32_t>{0xffffffff, 0, 0xffff0000, 0xffffffff}, 2), ElementsAre(0, 3));
}

}  // namespace
}  // namespace quarry
