#include "quarry/cache/belady.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "cache/access_trace.h"
#include "cache/belady_oracle.h"
#include "quarry/cache/cache_simulator.h"

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

// The fewest misses of a cycle: over all contents that it could begin with; rows of it that are not there at
// the end are read once more.
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

AccessTrace TinyTrace(Rng& rng, uint64_t node_count, bool cyclic) {
  AccessTrace trace;
  const uint64_t batch_count = 1 + rng.Below(7);
  for (uint64_t batch = 0; batch < batch_count; ++batch) {
    trace.nodes.push_back(RandomNodes(rng, node_count, rng.Below(std::min<uint64_t>(node_count, 4) + 1)));
  }
  trace.FindNextUses(cyclic);
  return trace;
}

uint64_t AccessesOf(const AccessTrace& trace) {
  uint64_t accesses = 0;
  for (const auto& nodes : trace.nodes) accesses += nodes.size();
  return accesses;
}

struct Round {
  uint64_t misses = 0;
  std::vector<NodeId> residents;  // afterwards
  std::vector<CacheSimulator::Carried> carried;
};

Round RunRound(PolicyKind policy, const AccessTrace& trace, uint64_t node_count, uint64_t capacity,
               const std::vector<NodeId>& start, const std::vector<KeepRule>& rules) {
  CacheSimulator simulator(policy, node_count, capacity, start, rules);
  Round round;
  CacheStep step;
  for (uint32_t batch = 0; batch < trace.batch_count(); ++batch) {
    simulator.Step(batch, trace.nodes[batch], trace.next_uses[batch], step);
    round.misses += step.misses;
    EXPECT_LE(simulator.resident_count(), capacity) << "after batch " << batch;
  }
  round.residents = simulator.Residents();
  simulator.Close(start, round.carried);
  return round;
}

// The rules carried out, from an empty cache and then from what that ends with.
uint64_t CycleMisses(const AccessTrace& trace, uint64_t node_count, uint64_t capacity) {
  const BeladyPlan plan = PlanOf(trace, capacity, true);
  const Round warm = RunRound(PolicyKind::kBelady, trace, node_count, capacity, {}, plan.rules);
  const Round round = RunRound(PolicyKind::kBelady, trace, node_count, capacity, warm.residents, plan.rules);
  EXPECT_EQ(round.residents, warm.residents) << "the cycle is closed";
  EXPECT_EQ(round.misses, AccessesOf(trace) - plan.hits);
  return round.misses;
}

TEST(BeladyTest, MissesAsLittleAsAnyChoiceOfResidentsCould) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t node_count = 1 + rng.Below(6), capacity = rng.Below(4);
    const AccessTrace trace = TinyTrace(rng, node_count, false);
    const std::vector<uint64_t> fewest = FewestMisses(trace, node_count, capacity, 0);
    const BeladyPlan plan = PlanOf(trace, capacity, false);
    const Round round = RunRound(PolicyKind::kBelady, trace, node_count, capacity, {}, plan.rules);
    ASSERT_EQ(round.misses, std::ranges::min(fewest));
    ASSERT_EQ(round.misses, AccessesOf(trace) - plan.hits);
    ASSERT_TRUE(round.residents.empty()) << "kept for nothing";
  }
}

TEST(BeladyTest, TheBestCycleIsTheLongRunsMissesRoundedUp) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t node_count = 1 + rng.Below(6), capacity = rng.Below(4);
    const AccessTrace trace = TinyTrace(rng, node_count, true);
    const double long_run = EndlessBelady(trace.nodes, node_count, capacity).LongRunMisses(2 * 2 * 3 * 5 * 7);
    ASSERT_EQ(static_cast<double>(FewestInACycle(trace, node_count, capacity)), std::ceil(long_run - 1e-6))
        << long_run;
  }
}

TEST(BeladyTest, ACycleMissesAsLittleAsTheBestOne) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t node_count = 1 + rng.Below(6), capacity = rng.Below(4);
    const AccessTrace trace = TinyTrace(rng, node_count, true);
    ASSERT_EQ(CycleMisses(trace, node_count, capacity), FewestInACycle(trace, node_count, capacity));
    if (HasFailure()) return;
  }
}

// The misses of a cycle of another policy, carried rows included, once a round has warmed it.
uint64_t OtherMisses(PolicyKind policy, const AccessTrace& trace, uint64_t node_count, uint64_t capacity) {
  std::vector<NodeId> start;
  if (policy == PolicyKind::kStaticFrequency) {
    std::vector<uint32_t> counts(node_count);
    for (const auto& nodes : trace.nodes) {
      for (const NodeId node : nodes) ++counts[node];
    }
    start = TopNodes(counts, capacity);
  } else {
    start = RunRound(policy, trace, node_count, capacity, {}, {}).residents;
  }
  const Round round = RunRound(policy, trace, node_count, capacity, start, {});
  return round.misses + round.carried.size();
}

// Few batches, and many; batches that hold little of the graph and much; caches that hold nearly all.
TEST(BeladyTest, CyclesOfAnyShapeAreWithinARowABatchOfTheLongRunAndNoPolicyMissesLess) {
  constexpr uint64_t kNodes = 2000;
  constexpr double kRowsOfNoiseMax = 0.01 * kNodes;  // in a long run that does not settle, over its 30 rounds
  for (const uint32_t batch_count : {1, 2, 3, 5, 10, 60}) {
    for (const uint64_t batch_nodes : {60, 300, 900}) {
      Rng rng(batch_count * 1000 + batch_nodes);
      const AccessTrace trace = PowerLawTrace(rng, kNodes, batch_nodes, batch_count, true);
      for (const uint64_t percent : {5, 10, 15, 20, 30, 50, 90}) {
        SCOPED_TRACE(testing::Message()
                     << batch_count << " batches of " << batch_nodes << ", cache of " << percent << " %");
        const uint64_t capacity = kNodes * percent / 100;
        const uint64_t misses = CycleMisses(trace, kNodes, capacity);
        const double long_run = EndlessBelady(trace.nodes, kNodes, capacity).LongRunMisses(30);
        EXPECT_GE(static_cast<double>(misses), long_run - kRowsOfNoiseMax);
        EXPECT_LE(static_cast<double>(misses), long_run + batch_count);
        EXPECT_LE(static_cast<double>(misses), 1.005 * long_run + 1);
        for (const PolicyKind policy : {PolicyKind::kStaticFrequency, PolicyKind::kFifo, PolicyKind::kLru}) {
          EXPECT_LE(misses, OtherMisses(policy, trace, kNodes, capacity)) << NameOf(policy);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quarry
