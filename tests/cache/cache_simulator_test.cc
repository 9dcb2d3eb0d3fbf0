#include "quarry/cache/cache_simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "cache/access_trace.h"

namespace quarry {
namespace {

using NodeSet = uint32_t;  // a bit per node
constexpr uint64_t kImpossible = 1'000'000;

NodeSet SetOf(const std::vector<NodeId>& nodes) {
  NodeSet set = 0;
  for (const NodeId node : nodes) set |= NodeSet{1} << node;
  return set;
}

// The fewest misses with which `trace` can leave each set of residents, from `start`, over all that a cache
// of `capacity` rows could keep after each batch.
std::vector<uint64_t> FewestMisses(const AccessTrace& trace, uint64_t node_count, uint64_t capacity,
                                   NodeSet start) {
  const NodeSet sets = NodeSet{1} << node_count;
  std::vector<uint64_t> misses(sets, kImpossible);
  misses[start] = 0;
  for (const auto& nodes : trace.nodes) {
    const NodeSet batch = SetOf(nodes);
    std::vector<uint64_t> after(sets, kImpossible);
    for (NodeSet before = 0; before < sets; ++before) {
      if (misses[before] == kImpossible) continue;
      const uint64_t cost = misses[before] + static_cast<uint64_t>(std::popcount(batch & ~before));
      for (NodeSet kept = before | batch;; kept = (kept - 1) & (before | batch)) {
        if (static_cast<uint64_t>(std::popcount(kept)) <= capacity) after[kept] = std::min(after[kept], cost);
        if (kept == 0) break;
      }
    }
    misses = std::move(after);
  }
  return misses;
}

AccessTrace TinyTrace(Rng& rng, uint64_t node_count, bool cyclic) {
  AccessTrace trace;
  const uint64_t batch_count = 1 + rng.Below(7);
  for (uint64_t batch = 0; batch < batch_count; ++batch) {
    trace.nodes.push_back(RandomNodes(rng, node_count, rng.Below(std::min<uint64_t>(node_count, 4) + 1)));
  }
  trace.FindNextUses(cyclic);
  return trace;
}

struct Round {
  uint64_t misses = 0;
  uint64_t carried = 0;
  std::vector<NodeId> residents;  // before closing
};

Round RunBelady(const AccessTrace& trace, uint64_t node_count, uint64_t capacity,
                const std::vector<NodeId>& start) {
  CacheSimulator simulator(PolicyKind::kBelady, node_count, capacity, start, trace.FirstUses(start));
  Round round;
  CacheStep step;
  for (uint32_t batch = 0; batch < trace.batch_count(); ++batch) {
    simulator.Step(batch, trace.nodes[batch], trace.next_uses[batch], step);
    round.misses += step.misses;
  }
  round.residents = simulator.Residents();
  std::vector<CacheSimulator::Carried> carried;
  simulator.Close(start, carried);
  round.carried = carried.size();
  return round;
}

TEST(CacheSimulatorTest, BeladyMissesAsLittleAsAnyChoiceOfResidentsCould) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t node_count = 1 + rng.Below(6), capacity = rng.Below(4);
    const AccessTrace trace = TinyTrace(rng, node_count, false);
    std::vector<NodeId> start;
    if (seed % 2 == 0) start = RandomNodes(rng, node_count, rng.Below(std::min(capacity, node_count) + 1));
    std::ranges::sort(start);
    const std::vector<uint64_t> fewest = FewestMisses(trace, node_count, capacity, SetOf(start));
    ASSERT_EQ(RunBelady(trace, node_count, capacity, start).misses, std::ranges::min(fewest));
  }
}

uint64_t FewestInACycle(const AccessTrace& trace, uint64_t node_count, uint64_t capacity) {
  uint64_t least = kImpossible;
  for (NodeSet start = 0; start < NodeSet{1} << node_count; ++start) {
    if (static_cast<uint64_t>(std::popcount(start)) > capacity) continue;
    const std::vector<uint64_t> fewest = FewestMisses(trace, node_count, capacity, start);
    for (NodeSet end = 0; end < fewest.size(); ++end) {
      least = std::min(least, fewest[end] + static_cast<uint64_t>(std::popcount(start & ~end)));
    }
  }
  return least;
}

// Belady misses least in the long run, but rows of equal next use are interchangeable, and which of them are
// there may differ from one round to the next: then closing the cycle carries a row or two that the best
// cycle would not. One warm-up round is the best cycle for 99 % of tiny traces, six rounds reach it for all.
TEST(CacheSimulatorTest, AClosedCycleAfterOneWarmUpIsTheBestOneSaveForTies) {
  constexpr int kTraces = 3000;
  int best_after_one = 0;
  for (uint64_t seed = 1; seed <= kTraces; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t node_count = 1 + rng.Below(6), capacity = rng.Below(4);
    const AccessTrace trace = TinyTrace(rng, node_count, true);
    const uint64_t fewest = FewestInACycle(trace, node_count, capacity);
    Round round = RunBelady(trace, node_count, capacity, {});
    uint64_t least_found = kImpossible;
    for (int warm_ups = 1; warm_ups <= 6; ++warm_ups) {
      round = RunBelady(trace, node_count, capacity, round.residents);
      const uint64_t cost = round.misses + round.carried;
      ASSERT_GE(cost, fewest) << "the oracle is wrong";
      ASSERT_LE(cost, fewest + 2) << warm_ups << " warm-ups";
      best_after_one += warm_ups == 1 && cost == fewest;
      least_found = std::min(least_found, cost);
    }
    ASSERT_EQ(least_found, fewest);
  }
  EXPECT_GE(best_after_one, kTraces * 99 / 100);
}

TEST(CacheSimulatorTest, TiesMayCostACycleARow) {
  AccessTrace trace;
  trace.nodes = {{1, 3}, {}, {}, {2, 1, 0}, {}, {3, 0}, {2}};
  trace.FindNextUses(true);
  const Round warm = RunBelady(trace, 4, 2, {});
  const Round round = RunBelady(trace, 4, 2, warm.residents);
  EXPECT_EQ(FewestInACycle(trace, 4, 2), 3u);
  EXPECT_EQ(round.misses, 3u);
  EXPECT_EQ(round.carried, 1u);
}

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
      if (kind != PolicyKind::kNone) start = RandomNodes(rng, node_count, rng.Below(capacity + 1));
      std::ranges::sort(start);
      CacheSimulator simulator(kind, node_count, capacity, start, trace.FirstUses(start));
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
