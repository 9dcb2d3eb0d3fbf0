#include "quarry/cache/cache_simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cache/access_trace.h"

namespace quarry {
namespace {

// A cache that does what the steps say, and nothing else: it knows slots, not nodes.
class Executor {
 public:
  Executor(uint64_t capacity, const std::vector<NodeId>& start) : rows_(capacity, kNoNode) {
    std::ranges::copy(start, rows_.begin());
  }

  // Serves the batch; every hit must find its own row.
  void Execute(const std::vector<NodeId>& nodes, const CacheStep& step) {
    ASSERT_EQ(step.slots.size(), nodes.size());
    ASSERT_EQ(step.misses, static_cast<uint64_t>(std::ranges::count(step.slots, kNoSlot)));
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (step.slots[i] != kNoSlot) {
        ASSERT_EQ(rows_.at(step.slots[i]), nodes[i]) << "position " << i;
      }
    }
    for (const Admission& admission : step.admitted) {
      ASSERT_EQ(step.slots[admission.position], kNoSlot);
      rows_.at(admission.slot) = nodes[admission.position];
    }
  }
  void Execute(const std::vector<CacheSimulator::Carried>& carried) {
    for (const auto& [node, slot] : carried) rows_.at(slot) = node;
  }

  // The rows that the simulator says are resident, each in the slot it says.
  void ExpectHolds(const CacheSimulator& simulator) const {
    std::set<uint32_t> taken;
    const std::vector<NodeId> residents = simulator.Residents();
    ASSERT_EQ(residents.size(), simulator.resident_count());
    for (const NodeId node : residents) {
      ASSERT_TRUE(taken.insert(simulator.SlotOf(node)).second)
          << "two rows in slot " << simulator.SlotOf(node);
      ASSERT_EQ(rows_.at(simulator.SlotOf(node)), node);
    }
  }

 private:
  std::vector<NodeId> rows_;  // by slot
};

TEST(CacheSimulatorTest, ExecutedStepsServeEveryHitWithItsOwnRow) {
  for (const PolicyKind kind : kAllPolicies) {
    for (uint64_t seed = 1; seed <= 15; ++seed) {
      SCOPED_TRACE(testing::Message() << NameOf(kind) << ", seed " << seed);
      Rng rng(seed);
      const uint64_t node_count = 20 + rng.Below(400);
      const uint64_t capacity = rng.Below(node_count / 2);
      const AccessTrace trace = PowerLawTrace(rng, node_count, 1 + rng.Below(node_count / 2), 25, true);
      std::vector<NodeId> start;
      std::vector<KeepRule> rules;
      if (kind == PolicyKind::kBelady) {
        rules = PlanOf(trace, capacity, true).rules;
      } else if (kind != PolicyKind::kNone) {
        start = RandomNodes(rng, node_count, rng.Below(capacity + 1));
      }
      std::ranges::sort(start);
      CacheSimulator simulator(kind, node_count, capacity, start, rules);
      Executor executor(capacity, start);
      CacheStep step;
      uint64_t evicted = 0, admitted = 0;
      for (uint32_t batch = 0; batch < trace.batch_count(); ++batch) {
        simulator.Step(batch, trace.nodes[batch], trace.next_uses[batch], step);
        executor.Execute(trace.nodes[batch], step);
        executor.ExpectHolds(simulator);
        if (HasFatalFailure()) return;
        evicted += step.evicted.size();
        admitted += step.admitted.size();
        for (const NodeId node : step.evicted) ASSERT_EQ(simulator.SlotOf(node), kNoSlot);
      }
      ASSERT_EQ(start.size() + admitted - evicted, simulator.resident_count());
      std::vector<CacheSimulator::Carried> carried;
      simulator.Close(start, carried);
      executor.Execute(carried);
      executor.ExpectHolds(simulator);
      ASSERT_EQ(simulator.Residents(), start);
      ASSERT_TRUE(std::ranges::is_sorted(carried, {}, &CacheSimulator::Carried::node));
    }
  }
}

TEST(CacheSimulatorTest, ASlotFreedByABatchIsTakenByARowThatEntersAfterIt) {
  CacheSimulator simulator(PolicyKind::kFifo, 10, 1, std::vector<NodeId>{3}, {});
  CacheStep step;
  simulator.Step(0, std::vector<NodeId>{3, 5}, {}, step);
  EXPECT_THAT(step.slots, testing::ElementsAre(0, kNoSlot));
  ASSERT_EQ(step.admitted.size(), 1u);
  EXPECT_EQ(step.admitted[0].position, 1u);
  EXPECT_EQ(step.admitted[0].slot, 0u);
  EXPECT_THAT(step.evicted, testing::ElementsAre(3));
}

TEST(CacheSimulatorTest, CloseKeepsWhatIsWantedInItsSlotAndCarriesTheRest) {
  CacheSimulator simulator(PolicyKind::kLru, 10, 3, std::vector<NodeId>{1, 4, 8}, {});
  std::vector<CacheSimulator::Carried> carried;
  simulator.Close(std::vector<NodeId>{2, 4}, carried);
  EXPECT_THAT(simulator.Residents(), testing::ElementsAre(2, 4));
  EXPECT_EQ(simulator.resident_count(), 2u);
  EXPECT_EQ(simulator.SlotOf(4), 1u);
  ASSERT_EQ(carried.size(), 1u);
  EXPECT_EQ(carried[0].node, 2u);
  EXPECT_EQ(carried[0].slot, simulator.SlotOf(2));
  EXPECT_NE(carried[0].slot, 1u);
}

}  // namespace
}  // namespace quarry
