#include "cache_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>

#include "cache/belady_oracle.h"
#include "layout/hand_trace.h"
#include "quarry/layout/row_places.h"
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
    }
  }
}

TEST(NextUsesTest, CountsAreThoseOfTheNextUsesAndTopUsesThoseOfASort) {
  Batches batches = RandomBatches(3, 12, kPlanNodes, 60);
  batches[4].clear();
  const HandTrace hand(batches);
  ASSERT_OK_AND_ASSIGN(const auto uses, NextUses::Make(hand.backend(), hand.trace(), kPlanNodes,
                                                       /*cyclic=*/true, hand.ScratchPath()));
  IoBuffer buffer;
  uint64_t total = 0;
  for (uint64_t batch = 0; batch < hand.batches().size(); ++batch) {
    std::map<uint32_t, uint32_t> expected, counts;
    for (const NodeId node : hand.batches()[batch]) ++expected[NextUse(hand.batches(), batch, node, true)];
    ASSERT_OK_AND_ASSIGN(const auto read, uses->ReadCounts(batch, buffer));
    EXPECT_TRUE(std::ranges::is_sorted(read, {}, &UseCount::next_use));
    for (const UseCount& count : read) counts[count.next_use] = count.rows;
    EXPECT_EQ(counts, expected) << "batch " << batch;
    total += read.size();
  }
  EXPECT_EQ(uses->counts(), total);
  std::vector<uint32_t> sorted = UsesByNode(hand.batches());
  std::ranges::sort(sorted, std::greater());
  for (const ptrdiff_t count : {0, 1, 77, 300}) {
    EXPECT_EQ(uses->UsesOfTop(static_cast<uint64_t>(count)),
              std::accumulate(sorted.begin(), sorted.begin() + count, uint64_t{0}));
  }
  EXPECT_EQ(uses->UsesOfTop(1000), uses->UsesOfTop(300));
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
  // `row_bytes` as in CachePlanOptions.
  Steps Run(PolicyKind policy, uint64_t capacity, uint64_t row_bytes = 0) const {
    Steps result;
    auto plan = SimulateCache(hand_.trace(), next_uses_.get(),
                              {.policy = policy,
                               .node_count = kPlanNodes,
                               .capacity = capacity,
                               .degrees = degrees_,
                               .cyclic = cyclic_,
                               .row_bytes = row_bytes},
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
        if (policy == PolicyKind::kBelady) {
          EXPECT_TRUE(steps.plan.carried.empty());
        }
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

uint64_t AdmissionsOf(const Steps& steps) {
  uint64_t admissions = 0;
  for (const CacheStep& step : steps.steps) admissions += step.admitted.size();
  return admissions;
}

TEST(SimulateCacheTest, BeladyKeepsConstantRowsWhereChangesCostMoreThanTheySave) {
  const HandTrace hand(RandomBatches(10, 8, kPlanNodes, 60));
  const Simulations simulations(hand, true);
  const Steps constant = simulations.Run(PolicyKind::kStaticFrequency, 20);
  const Steps free = simulations.Run(PolicyKind::kBelady, 20);
  ASSERT_LT(free.plan.misses, constant.plan.misses);
  ASSERT_GT(AdmissionsOf(free), 0u);
  EXPECT_EQ(simulations.Run(PolicyKind::kBelady, 20, 4096).plan.misses, free.plan.misses);
  const Steps dear = simulations.Run(PolicyKind::kBelady, 20, 1);
  EXPECT_EQ(dear.plan.misses, constant.plan.misses);
  EXPECT_EQ(AdmissionsOf(dear), 0u);
  EXPECT_EQ(dear.plan.start, constant.plan.start);
}

// Counts of more batches than are kept in memory are read from their file, for fewer rounds.
TEST(SimulateCacheTest, BeladyOfManyBatchesIsAsGood) {
  constexpr uint64_t kNodes = 20'000, kCapacity = 2'000;
  const HandTrace hand(RandomBatches(11, 1'200, kNodes, 600));
  ASSERT_OK_AND_ASSIGN(const auto next_uses, NextUses::Make(hand.backend(), hand.trace(), kNodes,
                                                            /*cyclic=*/true, hand.ScratchPath()));
  ASSERT_GT(next_uses->counts(), uint64_t{128} << 10);
  const auto run = [&](PolicyKind policy) {
    auto plan = SimulateCache(hand.trace(), next_uses.get(),
                              {.policy = policy, .node_count = kNodes, .capacity = kCapacity}, {});
    EXPECT_OK(plan);
    return std::move(plan).value();
  };
  const CachePlan belady = run(PolicyKind::kBelady);
  EXPECT_TRUE(belady.carried.empty());
  const double long_run = EndlessBelady(hand.batches(), kNodes, kCapacity).LongRunMisses(2);
  EXPECT_LE(static_cast<double>(belady.misses), 1.001 * long_run);
  for (const PolicyKind policy : {PolicyKind::kStaticFrequency, PolicyKind::kFifo, PolicyKind::kLru}) {
    EXPECT_LT(belady.misses, run(policy).misses) << NameOf(policy);
  }
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

// Batches of hops in a graph whose neighbors follow a power law.
Batches HopBatches(uint64_t seed, uint64_t node_count, uint64_t batch_count, uint64_t seed_count,
                   const std::vector<uint32_t>& fanouts) {
  constexpr uint64_t kDegree = 15;
  Rng rng(seed);
  std::vector<NodeId> neighbors(node_count * kDegree);
  for (NodeId& neighbor : neighbors) {
    const auto rank = static_cast<uint64_t>(std::pow(rng.Unit(), 2) * static_cast<double>(node_count));
    neighbor = static_cast<NodeId>(Mix64(rank) % node_count);
  }
  Batches batches;
  for (uint64_t b = 0; b < batch_count; ++b) {
    std::set<NodeId> nodes, targets;
    for (uint64_t i = 0; i < seed_count; ++i)
      nodes.insert(static_cast<NodeId>((b * seed_count + i) % node_count));
    targets = nodes;
    for (const uint32_t fanout : fanouts) {
      std::set<NodeId> sampled;
      for (const NodeId target : targets) {
        for (uint32_t i = 0; i < fanout; ++i)
          sampled.insert(neighbors[target * kDegree + rng.Below(kDegree)]);
      }
      targets.clear();
      std::ranges::set_difference(sampled, nodes, std::inserter(targets, targets.end()));
      nodes.insert(targets.begin(), targets.end());
    }
    batches.emplace_back(nodes.begin(), nodes.end());
  }
  return batches;
}

// What Belady is for: hops by cache sizes by numbers of batches, held against Belady row by row for ever, and
// against every other policy.
TEST(SimulateCacheTest, NoPolicyReadsLessThanBeladyWhateverTheShape) {
  constexpr uint64_t kNodes = 20'000, kRowBytes = 512;
  struct Shape {
    std::vector<uint32_t> fanouts;
    uint64_t batch_count, seeds;
  };
  for (const Shape& shape : {Shape{{10}, 1, 200},
                             {{10}, 60, 50},
                             {{10, 10}, 2, 50},
                             {{10, 10}, 3, 50},
                             {{10, 10}, 5, 50},
                             {{10, 10}, 10, 20},
                             {{10, 10}, 60, 10},
                             {{10, 10, 5}, 10, 10}}) {
    const HandTrace hand(HopBatches(12, kNodes, shape.batch_count, shape.seeds, shape.fanouts));
    const std::vector<uint32_t> degrees(kNodes, 1);
    ASSERT_OK_AND_ASSIGN(const auto next_uses, NextUses::Make(hand.backend(), hand.trace(), kNodes,
                                                              /*cyclic=*/true, hand.ScratchPath()));
    ASSERT_OK(RemoveTree(hand.backend(), hand.ScratchPath()));
    for (const uint64_t percent : {5, 10, 15, 20, 30, 50}) {
      SCOPED_TRACE(testing::Message() << shape.fanouts.size() << " hops, " << shape.batch_count
                                      << " batches, cache of " << percent << " %");
      const auto misses = [&](PolicyKind policy) {
        uint64_t admissions = 0;
        const auto plan = SimulateCache(hand.trace(), next_uses.get(),
                                        {.policy = policy,
                                         .node_count = kNodes,
                                         .capacity = kNodes * percent / 100,
                                         .degrees = degrees,
                                         .row_bytes = kRowBytes},
                                        [&](uint64_t, const TraceBatch&, const CacheStep& step) {
                                          admissions += step.admitted.size();
                                          return Status::Ok();
                                        });
        EXPECT_OK(plan);
        EXPECT_TRUE(policy != PolicyKind::kBelady || plan->carried.empty());
        // A slot and a place a change: three bytes at most.
        return std::pair(plan->misses, plan->misses * kRowBytes + admissions * 3);
      };
      const auto [belady, belady_bytes] = misses(PolicyKind::kBelady);
      const double long_run = EndlessBelady(hand.batches(), kNodes, kNodes * percent / 100).LongRunMisses(12);
      EXPECT_LE(static_cast<double>(belady), 1.005 * long_run + 1);
      for (const PolicyKind policy : kAllPolicies) {
        if (policy == PolicyKind::kNone || policy == PolicyKind::kBelady) continue;
        EXPECT_LE(belady_bytes, misses(policy).second) << NameOf(policy);
      }
    }
  }
}

TEST(CountAccessesTest, CountsEveryBatch) {
  const HandTrace hand(RandomBatches(9, 10, kPlanNodes, 60));
  ASSERT_OK_AND_ASSIGN(const auto counts, CountAccesses(hand.trace(), kPlanNodes));
  EXPECT_EQ(counts, UsesByNode(hand.batches()));
}

// Nodes of two tables, whose ranges lie between each other, and of none.
struct TwoTables {
  std::vector<std::vector<NodeTypes::Range>> nodes = {
      {{.first = 0, .end = 40, .row = 0}, {.first = 220, .end = 280, .row = 40}},
      {{.first = 40, .end = 180, .row = 0}, {.first = 280, .end = 300, .row = 140}}};
  std::vector<uint64_t> rows = {100, 160};
  std::vector<RowRange> ranges = {{40, 0}, {180, 1}, {220, 2}, {280, 0}, {300, 1}};

  uint64_t TableOf(NodeId node) const {
    return std::ranges::upper_bound(ranges, node, {}, &RowRange::end)->table;
  }
  // What a batch uses of a table, as its rows.
  std::vector<NodeId> RowsOf(uint64_t table, const std::vector<NodeId>& batch) const {
    std::vector<NodeId> found;
    for (const NodeId node : batch) {
      for (const NodeTypes::Range& range : nodes[table]) {
        if (node >= range.first && node < range.end) found.push_back(static_cast<NodeId>(range.RowOf(node)));
      }
    }
    return found;
  }
  Batches Of(uint64_t table, const Batches& all) const {
    Batches batches;
    for (const auto& batch : all) batches.push_back(RowsOf(table, batch));
    return batches;
  }
};

// The caches of both tables; `capacities` are chosen by the caller.
std::vector<TableCache> CachesOf(const TwoTables& tables, const std::vector<std::unique_ptr<NextUses>>& uses,
                                 const std::vector<std::vector<uint32_t>>& degrees, PolicyKind policy,
                                 bool cyclic, const std::vector<uint64_t>& strides) {
  std::vector<TableCache> caches;
  for (size_t table = 0; table < 2; ++table) {
    caches.push_back({.nodes = tables.nodes[table],
                      .next_uses = uses[table].get(),
                      .options = {.policy = policy,
                                  .node_count = tables.rows[table],
                                  .degrees = degrees[table],
                                  .cyclic = cyclic,
                                  .row_bytes = strides[table]}});
  }
  return caches;
}

std::vector<std::unique_ptr<NextUses>> UsesOf(const TwoTables& tables, const HandTrace& hand, bool cyclic) {
  std::vector<std::unique_ptr<NextUses>> uses;
  for (size_t table = 0; table < 2; ++table) {
    auto made =
        NextUses::Make(hand.backend(), hand.trace(), tables.rows[table], cyclic,
                       fmt::format("{}-{}-{}", hand.ScratchPath(), table, cyclic), tables.nodes[table]);
    EXPECT_OK(made);
    uses.push_back(std::move(made).value());
  }
  return uses;
}

// Every table's cache serves what one of its own rows would by itself, in slots that are the table's.
TEST(SimulateCachesTest, EachTableHasItsOwnSlots) {
  const TwoTables tables;
  const std::vector<std::vector<uint32_t>> degrees = {std::vector<uint32_t>(100, 1),
                                                      std::vector<uint32_t>(160, 1)};
  for (uint64_t seed = 31; seed < 35; ++seed) {
    Rng rng(seed);
    const HandTrace hand(RandomBatches(seed, 10, kPlanNodes, 60));
    for (const bool cyclic : {true, false}) {
      const auto uses = UsesOf(tables, hand, cyclic);
      for (const PolicyKind policy : kAllPolicies) {
        SCOPED_TRACE(testing::Message()
                     << "seed " << seed << ", " << NameOf(policy) << (cyclic ? ", cyclic" : ""));
        std::vector<TableCache> caches = CachesOf(tables, uses, degrees, policy, cyclic, {8, 20});
        for (TableCache& cache : caches) {
          cache.options.capacity = policy == PolicyKind::kNone ? 0 : rng.Below(cache.options.node_count + 1);
        }
        std::vector<CacheStep> steps;
        ASSERT_OK_AND_ASSIGN(
            const CachePlan plan,
            SimulateCaches(hand.trace(), caches, [&](uint64_t, const TraceBatch&, const CacheStep& step) {
              steps.push_back(step);
              return Status::Ok();
            }));
        std::vector<RowForm> forms;
        uint64_t slots = 0, accesses = 0, hits = 0;
        for (size_t table = 0; table < 2; ++table) {
          const uint64_t capacity = caches[table].options.capacity;
          forms.push_back({.row_bytes = 8,
                           .places = 1 + table,
                           .cache_slots = capacity,
                           .image_rows = plan.table_rows.at(table)});
          slots += capacity;
          // By itself.
          const HandTrace own(tables.Of(table, hand.batches()));
          ASSERT_OK_AND_ASSIGN(
              const auto own_uses,
              NextUses::Make(own.backend(), own.trace(), tables.rows[table], cyclic, own.ScratchPath()));
          ASSERT_OK_AND_ASSIGN(const CachePlan alone,
                               SimulateCache(own.trace(), own_uses.get(), caches[table].options, {}));
          accesses += alone.accesses;
          hits += alone.hits;
        }
        EXPECT_EQ(plan.accesses, accesses);
        EXPECT_EQ(plan.hits, hits);
        const RowPlaces places(kPlanNodes, slots, forms, tables.ranges);
        Replay replay(plan, slots);
        for (int round = 0; round < (cyclic ? 3 : 1); ++round) {
          uint64_t misses = 0;
          for (size_t b = 0; b < steps.size(); ++b) {
            const std::vector<NodeId>& batch = hand.batches()[b];
            misses += replay.Serve(batch, steps[b]);
            for (size_t p = 0; p < batch.size(); ++p) {
              if (steps[b].slots[p] == kNoSlot) continue;
              ASSERT_EQ(places.TableOfSlot(steps[b].slots[p]), tables.TableOf(batch[p]));
            }
            for (const Admission& admission : steps[b].admitted) {
              ASSERT_EQ(places.TableOfSlot(admission.slot), tables.TableOf(batch[admission.position]));
            }
            misses -= static_cast<uint64_t>(
                std::ranges::count_if(batch, [&](NodeId node) { return tables.TableOf(node) == 2; }));
          }
          EXPECT_EQ(misses + plan.carried.size(), plan.misses);
          if (cyclic) replay.Wrap(plan);
        }
      }
    }
  }
}

// No division of the same bytes, in steps of a fortieth, misses more than a little less.
TEST(DivideCacheTest, NoOtherDivisionMissesMuchLess) {
  const TwoTables tables;
  for (uint64_t seed = 41; seed < 49; ++seed) {
    Rng rng(seed);
    const HandTrace hand(RandomBatches(seed, 16, kPlanNodes, 50 + rng.Below(60)));
    const bool cyclic = seed % 4 > 0;
    const auto uses = UsesOf(tables, hand, cyclic);
    const std::vector<uint64_t> strides = {4 * (1 + rng.Below(40)), 4 * (1 + rng.Below(40))};
    const uint64_t all_bytes = tables.rows[0] * strides[0] + tables.rows[1] * strides[1];
    for (const uint64_t percent : {5, 20, 50, 80}) {
      const uint64_t bytes = all_bytes * percent / 100;
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", rows of " << strides[0] << " and "
                                      << strides[1] << " bytes, " << percent << " %");
      std::vector<TableCache> caches = CachesOf(tables, uses, {{}, {}}, PolicyKind::kBelady, cyclic, strides);
      const auto missed_bytes = [&](const std::vector<uint64_t>& rows) {
        uint64_t missed = 0;
        for (size_t table = 0; table < 2; ++table) {
          TableCache cache = caches[table];
          cache.options.capacity = rows[table];
          const auto plan = SimulateCaches(hand.trace(), {&cache, 1}, {});
          EXPECT_OK(plan);
          missed += plan->misses * strides[table];
        }
        return missed;
      };
      ASSERT_OK_AND_ASSIGN(const std::vector<uint64_t> divided, DivideCache(hand.trace(), caches, bytes));
      ASSERT_EQ(divided.size(), 2U);
      EXPECT_LE(divided[0] * strides[0] + divided[1] * strides[1], bytes);
      EXPECT_LE(divided[0], tables.rows[0]);
      EXPECT_LE(divided[1], tables.rows[1]);
      uint64_t least = UINT64_MAX;
      for (uint64_t part = 0; part <= 40; ++part) {
        const uint64_t first = std::min(bytes * part / 40 / strides[0], tables.rows[0]);
        least = std::min(
            least,
            missed_bytes({first, std::min((bytes - first * strides[0]) / strides[1], tables.rows[1])}));
      }
      EXPECT_LE(static_cast<double>(missed_bytes(divided)), 1.03 * static_cast<double>(least));
    }
    std::vector<TableCache> caches = CachesOf(tables, uses, {{}, {}}, PolicyKind::kBelady, cyclic, strides);
    EXPECT_EQ(DivideCache(hand.trace(), caches, 2 * all_bytes).value(), tables.rows) << "all rows fit";
    EXPECT_EQ(DivideCache(hand.trace(), caches, 0).value(), (std::vector<uint64_t>{0, 0}));
  }
}

// Rows one after the other, and slots of the cache, as a sum over those before says.
TEST(RowPlacesTest, RowsAndSlotsFollowEachOther) {
  for (uint64_t seed = 51; seed < 61; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    std::vector<RowForm> forms(1 + rng.Below(4));
    uint64_t slots = 0, images = 0, all_places = 0;
    for (RowForm& form : forms) {
      form = {.row_bytes = 1 + rng.Below(50), .places = 1 + rng.Below(7), .cache_slots = rng.Below(30)};
      form.image_rows = rng.Below(form.cache_slots + 1);
      slots += form.cache_slots;
      images += form.image_rows;
      all_places += form.cache_slots * form.places;
    }
    std::vector<RowRange> ranges;
    for (uint64_t end = 0; end < 200;) {
      end += 1 + rng.Below(60);
      ranges.push_back({end, rng.Below(forms.size() + 1)});
    }
    const uint64_t node_count = ranges.back().end;
    const RowPlaces places(node_count, slots, forms, ranges);
    std::vector<NodeId> nodes;
    for (NodeId node = 0; node < node_count; ++node) {
      if (rng.Below(2) == 0) nodes.push_back(node);
    }
    if (seed % 2 == 0) std::ranges::reverse(nodes);
    std::vector<uint32_t> at;
    const uint64_t end = places.Locate(nodes, 17, at);
    uint64_t place = 17, bytes = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      uint64_t table = 0;
      for (const RowRange& range : ranges) {
        table = range.table;
        if (nodes[i] < range.end) break;
      }
      ASSERT_EQ(places.TableOf(nodes[i]), table);
      ASSERT_EQ(at[i], place);
      if (table == forms.size()) continue;
      place += forms[table].places;
      bytes += forms[table].row_bytes;
    }
    EXPECT_EQ(end, place);
    EXPECT_EQ(places.Sum(nodes), place - 17);
    EXPECT_EQ(places.StoredBytes(nodes, 1), bytes);
    place = 0;
    std::vector<uint64_t> found(forms.size());
    for (uint64_t slot = 0; slot < slots; ++slot) {
      if (slot == images) {
        EXPECT_EQ(places.ImagePlaces(images), place);
      }
      const uint64_t table = places.TableOfSlot(slot);
      ASSERT_EQ(places.OfSlot(slot).place, place);
      ASSERT_EQ(places.OfSlot(slot).places, forms[table].places);
      place += forms[table].places;
      ++found[table];
    }
    EXPECT_EQ(place, all_places);
    EXPECT_EQ(places.cache_places(), all_places);
    for (size_t table = 0; table < forms.size(); ++table) EXPECT_EQ(found[table], forms[table].cache_slots);
  }
}

}  // namespace
}  // namespace quarry
