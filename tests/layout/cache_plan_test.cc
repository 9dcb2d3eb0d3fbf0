#include "cache_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "layout/hand_trace.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::Batches;
using testing_util::HandTrace;
using testing_util::RandomBatches;

constexpr uint64_t kPlanNodes = 300;

// The next batch after `batch` that uses the node, counted on through a second round of a cycle.
uint32_t NextUse(const Batches& batches, uint64_t batch, NodeId node, bool cyclic) {
  const uint64_t end = cyclic ? 2 * batches.size() : batches.size();
  for (uint64_t b = batch + 1; b < end; ++b) {
    if (std::ranges::binary_search(batches[b % batches.size()], node)) return static_cast<uint32_t>(b);
  }
  return kNeverUsed;
}

std::vector<uint32_t> UsesByNode(const Batches& batches) {
  std::vector<uint32_t> uses(kPlanNodes);
  for (const auto& batch : batches) {
    for (const NodeId node : batch) ++uses[node];
  }
  return uses;
}

TEST(NextUsesTest, AreThoseOfASearchForwardCyclicAndNot) {
  for (const uint64_t seed : {1u, 2u}) {
    for (const bool cyclic : {false, true}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << (cyclic ? ", cyclic" : ""));
      Batches batches = RandomBatches(seed, 12, kPlanNodes, 60);
      batches[4].clear();
      const HandTrace hand(batches);
      ASSERT_OK_AND_ASSIGN(const auto uses, NextUses::Make(hand.backend(), hand.trace(), kPlanNodes, cyclic,
                                                           hand.ScratchPath()));
      IoBuffer buffer;
      for (const uint64_t batch : {0, 11, 5, 4, 3, 2, 1, 6, 7, 8, 9, 10}) {
        ASSERT_OK_AND_ASSIGN(const auto read, uses->Read(batch, buffer));
        std::vector<uint32_t> expected;
        for (const NodeId node : hand.batches()[batch]) {
          expected.push_back(NextUse(hand.batches(), batch, node, cyclic));
        }
        EXPECT_EQ(std::vector(read.begin(), read.end()), expected) << "batch " << batch;
      }
      ASSERT_EQ(uses->first_uses().size(), kPlanNodes);
      for (NodeId node = 0; node < kPlanNodes; ++node) {
        uint32_t first = kNeverUsed;
        for (uint32_t b = 0; b < hand.batches().size() && first == kNeverUsed; ++b) {
          if (std::ranges::binary_search(hand.batches()[b], node)) first = b;
        }
        EXPECT_EQ(uses->first_uses()[node], first) << "node " << node;
      }
    }
  }
}

// The steps of a plan, as a layout keeps them.
struct Steps {
  CachePlan plan;
  std::vector<CacheStep> steps;
};

class Simulations {
 public:
  Simulations(const HandTrace& hand, bool cyclic)
      : hand_(hand), cyclic_(cyclic), degrees_(UsesByNode(hand.batches())) {
    auto next_uses = NextUses::Make(hand.backend(), hand.trace(), kPlanNodes, cyclic, hand.ScratchPath());
    EXPECT_OK(next_uses);
    next_uses_ = std::move(next_uses).value();
  }
  Steps Run(PolicyKind policy, uint64_t capacity) const {
    Steps result;
    auto plan = SimulateCache(hand_.trace(), next_uses_.get(),
                              {.policy = policy,
                               .node_count = kPlanNodes,
                               .capacity = capacity,
                               .degrees = degrees_,
                               .cyclic = cyclic_},
                              [&](uint64_t batch, const TraceBatch& nodes, const CacheStep& step) -> Status {
                                EXPECT_EQ(batch, result.steps.size());
                                EXPECT_EQ(nodes.nodes, hand_.batches()[batch]);
                                result.steps.push_back(step);
                                return Status::Ok();
                              });
    EXPECT_OK(plan);
    result.plan = std::move(plan).value();
    return result;
  }

 private:
  const HandTrace& hand_;
  const bool cyclic_;
  const std::vector<uint32_t> degrees_;
  std::unique_ptr<NextUses> next_uses_;
};

// A cache of rows (here: the nodes whose they are) that does what a plan says and looks nothing up.
class Replay {
 public:
  Replay(const CachePlan& plan, uint64_t capacity) : rows_(capacity) {
    for (size_t i = 0; i < plan.start.size(); ++i) rows_[i] = plan.start[i];
  }
  // Returns the misses, and expects every hit to find its row.
  uint64_t Serve(const std::vector<NodeId>& nodes, const CacheStep& step) {
    uint64_t misses = 0;
    EXPECT_EQ(step.slots.size(), nodes.size());
    for (size_t p = 0; p < nodes.size(); ++p) {
      if (step.slots[p] == kNoSlot) {
        ++misses;
        continue;
      }
      EXPECT_EQ(rows_.at(step.slots[p]), nodes[p]) << "slot " << step.slots[p];
    }
    for (const Admission& admission : step.admitted) {
      EXPECT_EQ(step.slots[admission.position], kNoSlot) << "only what was read can enter";
      rows_.at(admission.slot) = nodes[admission.position];
    }
    return misses;
  }
  // From the state after the last batch to that before the first.
  void Wrap(const CachePlan& plan) {
    for (const CacheSimulator::Carried& carried : plan.carried) rows_.at(carried.slot) = carried.node;
    std::vector<std::optional<NodeId>> next(rows_.size());
    ASSERT_EQ(plan.wrap.size(), plan.start.size());
    for (size_t i = 0; i < plan.start.size(); ++i) {
      next[i] = rows_.at(plan.wrap[i]);
      EXPECT_EQ(next[i], plan.start[i]) << "row " << i << " of the start";
    }
    rows_ = next;
  }

 private:
  std::vector<std::optional<NodeId>> rows_;
};

TEST(SimulateCacheTest, ACyclicPlanServesEveryHitRoundAfterRound) {
  for (const uint64_t seed : {4u, 5u}) {
    const HandTrace hand(RandomBatches(seed, 10, kPlanNodes, 60));
    const Simulations simulations(hand, true);
    for (const PolicyKind policy : kAllPolicies) {
      for (const uint64_t capacity : {1, 20, 70, 299, 300}) {
        SCOPED_TRACE(testing::Message() << NameOf(policy) << ", " << capacity << " rows, seed " << seed);
        const Steps steps = simulations.Run(policy, policy == PolicyKind::kNone ? 0 : capacity);
        ASSERT_EQ(steps.steps.size(), hand.batches().size());
        EXPECT_TRUE(std::ranges::is_sorted(steps.plan.start));
        EXPECT_LE(steps.plan.start.size(), capacity);
        Replay replay(steps.plan, capacity);
        for (int round = 0; round < 3; ++round) {
          uint64_t accesses = 0, misses = steps.plan.carried.size();
          for (size_t b = 0; b < steps.steps.size(); ++b) {
            accesses += hand.batches()[b].size();
            misses += replay.Serve(hand.batches()[b], steps.steps[b]);
          }
          EXPECT_EQ(steps.plan.accesses, accesses);
          EXPECT_EQ(steps.plan.misses, misses);
          replay.Wrap(steps.plan);
        }
      }
    }
  }
}

TEST(SimulateCacheTest, APlanThatIsNoCycleBeginsEmptyAndServesEveryHitOnce) {
  constexpr uint64_t kSeed = 6;
  const HandTrace hand(RandomBatches(kSeed, 10, kPlanNodes, 60));
  const Simulations simulations(hand, false);
  for (const PolicyKind policy : {PolicyKind::kFifo, PolicyKind::kLru, PolicyKind::kBelady}) {
    SCOPED_TRACE(testing::Message() << NameOf(policy) << ", seed " << kSeed);
    const Steps steps = simulations.Run(policy, 70);
    EXPECT_TRUE(steps.plan.start.empty());
    EXPECT_TRUE(steps.plan.wrap.empty());
    EXPECT_TRUE(steps.plan.carried.empty());
    Replay replay(steps.plan, 70);
    uint64_t misses = 0;
    for (size_t b = 0; b < steps.steps.size(); ++b) misses += replay.Serve(hand.batches()[b], steps.steps[b]);
    EXPECT_EQ(steps.plan.misses, misses);
    EXPECT_LT(misses, steps.plan.accesses) << "something was hit";
  }
}

TEST(SimulateCacheTest, StaticPoliciesKeepTheNodesThatAreUsedMost) {
  const HandTrace hand(RandomBatches(7, 10, kPlanNodes, 60));
  const std::vector<uint32_t> uses = UsesByNode(hand.batches());
  const Steps steps = Simulations(hand, true).Run(PolicyKind::kStaticFrequency, 25);
  ASSERT_EQ(steps.plan.start.size(), 25u);
  uint64_t hits = 0;
  uint32_t least = kNeverUsed;
  for (const NodeId node : steps.plan.start) {
    hits += uses[node];
    least = std::min(least, uses[node]);
  }
  for (NodeId node = 0; node < kPlanNodes; ++node) {
    if (!std::ranges::binary_search(steps.plan.start, node)) {
      EXPECT_LE(uses[node], least) << node;
    }
  }
  EXPECT_EQ(steps.plan.misses, steps.plan.accesses - hits);
  for (const CacheStep& step : steps.steps) EXPECT_TRUE(step.admitted.empty());
}

TEST(SimulateCacheTest, AnErrorOfTheVisitorStopsIt) {
  const HandTrace hand(RandomBatches(8, 10, kPlanNodes, 60));
  uint64_t visited = 0;
  const auto plan = SimulateCache(hand.trace(), nullptr,
                                  {.policy = PolicyKind::kLru, .node_count = kPlanNodes, .capacity = 20},
                                  [&](uint64_t batch, const TraceBatch&, const CacheStep&) {
                                    ++visited;
                                    return batch == 3 ? Status(Code::kCancelled, "enough") : Status::Ok();
                                  });
  EXPECT_THAT(plan, IsStatus(Code::kCancelled));
  EXPECT_EQ(visited, 4u);
}

TEST(CountAccessesTest, CountsEveryBatch) {
  const HandTrace hand(RandomBatches(9, 10, kPlanNodes, 60));
  ASSERT_OK_AND_ASSIGN(const auto counts, CountAccesses(hand.trace(), kPlanNodes));
  EXPECT_EQ(counts, UsesByNode(hand.batches()));
}

}  // namespace
}  // namespace quarry
