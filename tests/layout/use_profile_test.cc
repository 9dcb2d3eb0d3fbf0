// What the fitted profile says, beside caches that are simulated on a trace of the same nodes.
#include "quarry/layout/use_profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "cache_plan.h"
#include "hand_trace.h"

namespace quarry {
namespace {

using testing_util::Batches;
using testing_util::HandTrace;

constexpr uint64_t kNodes = 3'000;

// Node v is in a batch with a chance that falls with v as in graphs of skewed degrees; 0 for every tenth.
double Chance(uint64_t node) {
  if (node % 10 == 9) return 0;
  return std::min(0.95, 40.0 / std::pow(static_cast<double>(node) + 30, 1.1));
}

Batches DrawBatches(uint64_t seed, uint64_t count) {
  Rng rng(seed);
  Batches batches(count);
  for (std::vector<NodeId>& batch : batches) {
    for (uint64_t v = 0; v < kNodes; ++v) {
      if (static_cast<double>(rng.Below(1 << 30)) < Chance(v) * (1 << 30))
        batch.push_back(static_cast<NodeId>(v));
    }
  }
  return batches;
}

UseProfile FitTo(const Batches& batches) {
  std::map<NodeId, uint64_t> uses;
  for (const auto& batch : batches) {
    for (const NodeId node : batch) ++uses[node];
  }
  std::vector<uint64_t> nodes_by_uses(batches.size() + 1);
  for (const auto& [node, count] : uses) ++nodes_by_uses[count];
  nodes_by_uses[0] = kNodes - uses.size();
  return UseProfile::Fit(nodes_by_uses);
}

double Accesses(const Batches& batches) {
  double accesses = 0;
  for (const auto& batch : batches) accesses += static_cast<double>(batch.size());
  return accesses;
}

TEST(UseProfileTest, DistinctNodesOfMoreBatchesThanWereSeen) {
  constexpr uint64_t kSeed = 5;
  const UseProfile profile = FitTo(DrawBatches(kSeed, 12));
  const Batches batches = DrawBatches(kSeed + 1, 60);
  EXPECT_NEAR(profile.BatchNodes(), Accesses(batches) / 60, 0.05 * Accesses(batches) / 60);
  std::set<NodeId> seen;
  for (uint64_t b = 0; b < batches.size(); ++b) {
    seen.insert(batches[b].begin(), batches[b].end());
    const auto count = static_cast<double>(seen.size());
    if (b < 4) continue;  // single batches differ from their mean
    EXPECT_NEAR(profile.DistinctNodes(static_cast<double>(b + 1)), count, 0.1 * count) << "batch " << b;
    EXPECT_NEAR(profile.DistinctNodes(profile.BatchesOf(count)), count, 1);
  }
  EXPECT_TRUE(std::isinf(profile.BatchesOf(kNodes * 2)));
}

// The share of accesses that a cycle of 60 batches misses, by what 12 others told. Lru is left out where the cache
// holds less than three batches, which the profile is too coarse for, and nearly the whole cycle, where a row more or
// less decides.
TEST(UseProfileTest, MissesAreThoseOfTheSimulatedCaches) {
  constexpr uint64_t kBatches = 60;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const UseProfile profile = FitTo(DrawBatches(seed, 12));
    const HandTrace hand(DrawBatches(seed + 100, kBatches));
    const double accesses = Accesses(hand.batches());
    for (const bool cyclic : {true, false}) {
      ASSERT_OK_AND_ASSIGN(const auto next_uses, NextUses::Make(hand.backend(), hand.trace(), kNodes, cyclic,
                                                                hand.ScratchPath() + (cyclic ? "c" : "o")));
      for (const PolicyKind policy :
           {PolicyKind::kNone, PolicyKind::kBelady, PolicyKind::kStaticFrequency, PolicyKind::kLru}) {
        if (!cyclic && policy == PolicyKind::kStaticFrequency) continue;
        for (const uint64_t rows : {kNodes / 20, kNodes / 10, kNodes / 4, kNodes / 2}) {
          const bool middle = rows > kNodes / 20 && rows < kNodes / 2;
          if (policy == PolicyKind::kLru && !middle) continue;
          ASSERT_OK_AND_ASSIGN(
              const CachePlan plan,
              SimulateCache(hand.trace(), next_uses.get(),
                            {.policy = policy, .node_count = kNodes, .capacity = rows, .cyclic = cyclic},
                            {}));
          const double misses = profile.CycleMisses(policy, static_cast<double>(rows), kBatches, cyclic);
          EXPECT_NEAR(misses / (profile.BatchNodes() * kBatches), static_cast<double>(plan.misses) / accesses,
                      0.05)
              << NameOf(policy) << ", " << rows << " rows, " << (cyclic ? "cyclic" : "once");
        }
      }
    }
  }
}

// A few batches see next to nothing of such a graph. The nodes that they did not see must not swell a batch.
TEST(UseProfileTest, ABatchOfALargeGraphHasTheNodesThatWereProbed) {
  constexpr uint64_t kAll = 500'000'000, kBatch = 100'000;
  for (const uint64_t batches : {2, 8, 32}) {
    std::vector<uint64_t> nodes_by_uses(batches + 1);
    nodes_by_uses[1] = kBatch * batches - 2 * 1000;
    nodes_by_uses[2] = 1000;
    nodes_by_uses[0] = kAll - nodes_by_uses[1] - nodes_by_uses[2];
    EXPECT_NEAR(UseProfile::Fit(nodes_by_uses).BatchNodes(), kBatch, 0.05 * kBatch) << batches << " batches";
  }
}

TEST(UseProfileTest, BeladyMissesNoMoreThanTheOthers) {
  const UseProfile profile = FitTo(DrawBatches(3, 8));
  for (const uint64_t batches : {1, 2, 7, 100, 10'000}) {
    for (double rows = 50; rows <= kNodes; rows += 50) {
      const double belady = profile.CycleMisses(PolicyKind::kBelady, rows, batches, true);
      for (const PolicyKind policy : {PolicyKind::kStaticFrequency, PolicyKind::kLru, PolicyKind::kNone}) {
        EXPECT_LE(belady, profile.CycleMisses(policy, rows, batches, true) * 1.001 + 1)
            << NameOf(policy) << ", " << rows << " rows, " << batches << " batches";
      }
    }
  }
}

}  // namespace
}  // namespace quarry
