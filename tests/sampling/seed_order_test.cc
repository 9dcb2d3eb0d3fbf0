#include "quarry/sampling/seed_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "quarry/base/random.h"
#include "sampling/graphs.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kSide = 64;
constexpr uint64_t kGridNodes = kSide * kSide;

std::unique_ptr<Topology> FromEdges(std::vector<std::pair<NodeId, NodeId>> edges, uint64_t node_count) {
  const NeighborLists lists = ListsOf(std::move(edges), node_count);
  return Topology::FromMemory(lists.indptr, lists.indices).value();
}

// kSide x kSide nodes, each tied to the four beside it, in both directions.
std::unique_ptr<Topology> Grid() {
  std::vector<std::pair<NodeId, NodeId>> edges;
  const auto tie = [&](uint64_t a, uint64_t b) {
    edges.emplace_back(static_cast<NodeId>(a), static_cast<NodeId>(b));
    edges.emplace_back(static_cast<NodeId>(b), static_cast<NodeId>(a));
  };
  for (uint64_t v = 0; v < kGridNodes; ++v) {
    if (v % kSide + 1 < kSide) tie(v, v + 1);
    if (v + kSide < kGridNodes) tie(v, v + kSide);
  }
  return FromEdges(std::move(edges), kGridNodes);
}

std::vector<NodeId> AllNodes(uint64_t count) {
  std::vector<NodeId> nodes(count);
  std::iota(nodes.begin(), nodes.end(), NodeId{0});
  return nodes;
}

std::vector<NodeId> Sorted(std::vector<NodeId> nodes) {
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

std::set<NodeId> TwoHopInputs(const Topology& topology, std::span<const NodeId> batch) {
  std::set<NodeId> nodes(batch.begin(), batch.end());
  for (int hop = 0; hop < 2; ++hop) {
    for (const NodeId node : std::vector<NodeId>(nodes.begin(), nodes.end())) {
      const auto indptr = topology.indptr(Adjacency::kCsc);
      const auto indices = topology.indices(Adjacency::kCsc);
      nodes.insert(indices.begin() + static_cast<std::ptrdiff_t>(indptr[node]),
                   indices.begin() + static_cast<std::ptrdiff_t>(indptr[node + 1]));
    }
  }
  return nodes;
}

// The share of the input nodes of batches that the batch before had too.
double SharedInputs(const Topology& topology, std::span<const NodeId> order, size_t batch_size) {
  size_t shared = 0, all = 0;
  std::set<NodeId> before;
  for (size_t first = 0; first < order.size(); first += batch_size) {
    std::set<NodeId> inputs =
        TwoHopInputs(topology, order.subspan(first, std::min(batch_size, order.size() - first)));
    for (const NodeId node : inputs) shared += before.count(node);
    all += inputs.size();
    before = std::move(inputs);
  }
  return static_cast<double>(shared) / static_cast<double>(all);
}

// The error by its definition, slowly: the mean over batches of half the sum of differences.
double MeanDistance(std::span<const NodeId> order, std::span<const int64_t> labels, size_t batch_size,
                    int64_t class_count) {
  double sum = 0;
  size_t batches = 0;
  for (size_t first = 0; first < order.size(); first += batch_size, ++batches) {
    const auto batch = order.subspan(first, std::min(batch_size, order.size() - first));
    for (int64_t c = 0; c < class_count; ++c) {
      const auto is_c = [&](NodeId node) { return labels[node] == c; };
      const auto share = [&](std::span<const NodeId> nodes) {
        return static_cast<double>(std::count_if(nodes.begin(), nodes.end(), is_c)) /
               static_cast<double>(nodes.size());
      };
      sum += std::abs(share(batch) - share(order)) / 2;
    }
  }
  return sum / static_cast<double>(batches);
}

TEST(SeedOrderTest, NamesAreReadAsTheyAreWritten) {
  for (const SeedOrder order : {SeedOrder::kRandom, SeedOrder::kProximity}) {
    EXPECT_EQ(ParseName<SeedOrder>(NameOf(order)).value(), order);
  }
  const Status status = ParseName<SeedOrder>("sorted").status();
  EXPECT_EQ(status.code(), Code::kUsage);
  EXPECT_THAT(std::string(status.message()), HasSubstr("random, proximity"));
}

// A layout is planned on this order and trained from later: it must never change.
TEST(SeedOrderTest, AShuffleIsNamedBySeedAndPass) {
  const auto shuffled = [](uint64_t seed, uint64_t pass) {
    std::vector<NodeId> seeds = AllNodes(10);
    ShuffleSeeds(seeds, seed, pass);
    return seeds;
  };
  EXPECT_THAT(shuffled(0, 0), ElementsAre(5, 8, 3, 1, 2, 6, 0, 9, 7, 4));
  EXPECT_EQ(shuffled(7, 3), shuffled(7, 3));
  EXPECT_NE(shuffled(7, 3), shuffled(7, 4));
  EXPECT_NE(shuffled(7, 3), shuffled(3, 7));
  EXPECT_EQ(Sorted(shuffled(7, 3)), AllNodes(10));
}

TEST(SeedOrderTest, IsAPermutationOfTheSeedsForAnyGraph) {
  constexpr uint64_t kGraphSeed = 11;
  SCOPED_TRACE(kGraphSeed);
  Rng rng(kGraphSeed);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const uint64_t nodes = 1 + rng.Below(300);
    const auto topology = InMemory(RandomGraph(rng, nodes, rng.Below(4 * nodes), round % 3));
    const std::vector<NodeId> seeds = RandomSeeds(rng, nodes, 1 + rng.Below(nodes));
    std::vector<int64_t> labels;
    if (round % 2 == 0) labels.resize(nodes);
    for (int64_t& label : labels) label = static_cast<int64_t>(rng.Below(4)) - 1;
    const ProximityOptions options{.batch_size = static_cast<uint32_t>(1 + rng.Below(40)),
                                   .sequences = static_cast<uint32_t>(rng.Below(6)),
                                   .sequences_max = 8,
                                   .seed = rng()};
    const OrderedSeeds ordered = OrderByProximity(*topology, seeds, labels, options).value();
    ASSERT_EQ(Sorted(ordered.seeds), Sorted(seeds));
    ASSERT_TRUE(options.sequences == 0 || ordered.sequences == options.sequences);
    ASSERT_GE(ordered.sequences, 1u);
    ASSERT_LE(ordered.sequences, 8u);
  }
}

TEST(SeedOrderTest, OneSeedGivesOneOrderAndAnotherAnother) {
  const auto grid = Grid();
  const std::vector<NodeId> seeds = AllNodes(kGridNodes);
  const auto order = [&](uint64_t seed) {
    return OrderByProximity(*grid, seeds, {}, {.batch_size = 64, .sequences = 3, .seed = seed}).value().seeds;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

// A search along a path from one of its ends and back would leave neighbors at most two places apart; a
// circular shift keeps that, around the end.
TEST(SeedOrderTest, ASequenceIsABreadthFirstOrderShiftedCircularly) {
  constexpr uint64_t kNodes = 200;
  std::vector<std::pair<NodeId, NodeId>> edges;
  for (NodeId v = 0; v + 1 < kNodes; ++v) {
    edges.emplace_back(v, v + 1);
    edges.emplace_back(v + 1, v);
  }
  const auto path = FromEdges(edges, kNodes);
  int started_elsewhere = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<NodeId> order =
        OrderByProximity(*path, AllNodes(kNodes), {}, {.sequences = 1, .seed = seed}).value().seeds;
    // From the root on, and from no other place, each node is beside one that came before.
    int roots = 0;
    for (size_t start = 0; start < kNodes; ++start) {
      NodeId low = order[start], high = order[start];
      size_t length = 1;
      for (; length < kNodes; ++length) {
        const NodeId next = order[(start + length) % kNodes];
        if (next + 1 == low) {
          low = next;
        } else if (next == high + 1) {
          high = next;
        } else {
          break;
        }
      }
      if (length < kNodes) continue;
      ++roots;
      started_elsewhere += start == 0 ? 0 : 1;
    }
    EXPECT_GE(roots, 1);
  }
  EXPECT_GE(started_elsewhere, 15) << "the shift is random";
}

TEST(SeedOrderTest, ConsecutiveBatchesShareMoreInputsThanShuffledOnes) {
  const auto grid = Grid();
  constexpr size_t kBatch = 64;
  std::vector<NodeId> shuffled = AllNodes(kGridNodes);
  ShuffleSeeds(shuffled, 1, 0);
  const double random = SharedInputs(*grid, shuffled, kBatch);
  const auto shared = [&](uint32_t sequences) {
    const ProximityOptions options{.batch_size = kBatch, .sequences = sequences, .seed = 1};
    return SharedInputs(*grid, OrderByProximity(*grid, shuffled, {}, options).value().seeds, kBatch);
  };
  EXPECT_GT(shared(1), 3 * random);
  EXPECT_GT(shared(4), 1.5 * random);
  EXPECT_GT(shared(16), 1.5 * random);
  EXPECT_GT(shared(1), shared(4)) << "more sequences are more random";
}

TEST(SeedOrderTest, LabelsThatFollowThePlaceNeedMoreSequences) {
  const auto grid = Grid();
  const std::vector<NodeId> seeds = AllNodes(kGridNodes);
  std::vector<int64_t> by_place(kGridNodes), by_chance(kGridNodes);
  Rng rng(3);
  for (NodeId v = 0; v < kGridNodes; ++v) {
    by_place[v] = static_cast<int64_t>(v / kSide * 4 / kSide);
    by_chance[v] = static_cast<int64_t>(rng.Below(4));
  }
  uint64_t placed = 0, scattered = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const ProximityOptions options{.batch_size = 64, .sequences_max = 256, .seed = seed};
    const OrderedSeeds near = OrderByProximity(*grid, seeds, by_place, options).value();
    const OrderedSeeds far = OrderByProximity(*grid, seeds, by_chance, options).value();
    placed += near.sequences;
    scattered += far.sequences;
    EXPECT_LE(far.shuffling_error, far.error_bound);
  }
  EXPECT_GT(placed, 2 * scattered);
}

TEST(SeedOrderTest, TheNumberOfSequencesIsTheLeastWithinTheBound) {
  const auto grid = Grid();
  const std::vector<NodeId> seeds = AllNodes(kGridNodes);
  std::vector<int64_t> labels(kGridNodes);
  for (NodeId v = 0; v < kGridNodes; ++v) labels[v] = v % kSide < kSide / 2 ? 0 : 1;
  // A bound that a few sequences can keep.
  ProximityOptions options{.batch_size = 256, .workers = 400, .seed = 5};
  const OrderedSeeds found = OrderByProximity(*grid, seeds, labels, options).value();
  EXPECT_DOUBLE_EQ(found.error_bound, std::sqrt(256.0 * 400) / kGridNodes);
  EXPECT_LE(found.shuffling_error, found.error_bound);
  ASSERT_GT(found.sequences, 1u);
  ASSERT_LT(found.sequences, options.sequences_max);
  for (uint32_t fewer = 1; fewer < found.sequences; ++fewer) {
    options.sequences = fewer;
    EXPECT_GT(OrderByProximity(*grid, seeds, labels, options).value().shuffling_error, found.error_bound);
  }
  options.sequences = found.sequences;
  EXPECT_EQ(OrderByProximity(*grid, seeds, labels, options).value().seeds, found.seeds);
}

TEST(SeedOrderTest, TheErrorIsTheDistanceBeyondThatOfShuffledBatches) {
  const auto grid = Grid();
  const std::vector<NodeId> seeds = AllNodes(kGridNodes);
  std::vector<int64_t> labels(kGridNodes);
  for (NodeId v = 0; v < kGridNodes; ++v) labels[v] = static_cast<int64_t>(v / kSide * 5 / kSide);
  double reference = 0;
  constexpr int kShuffles = 50;
  for (uint64_t i = 0; i < kShuffles; ++i) {
    std::vector<NodeId> shuffled = seeds;
    ShuffleSeeds(shuffled, 99, i);
    reference += MeanDistance(shuffled, labels, 100, 5) / kShuffles;
  }
  const OrderedSeeds ordered =
      OrderByProximity(*grid, seeds, labels, {.batch_size = 100, .sequences = 2, .seed = 4}).value();
  EXPECT_GT(ordered.shuffling_error, 0.1);
  EXPECT_NEAR(ordered.shuffling_error, MeanDistance(ordered.seeds, labels, 100, 5) - reference, 0.01);
}

TEST(SeedOrderTest, WithoutLabelsAFifthOfTheBatchesSaysHowManySequences) {
  const auto grid = Grid();
  const std::vector<NodeId> seeds = AllNodes(kGridNodes);
  const auto sequences = [&](uint32_t batch_size, uint32_t sequences_max) {
    return OrderByProximity(*grid, seeds, {}, {.batch_size = batch_size, .sequences_max = sequences_max})
        .value()
        .sequences;
  };
  EXPECT_EQ(sequences(64, 64), 12u);
  EXPECT_EQ(sequences(4, 10), 10u);
  EXPECT_EQ(sequences(4096, 64), 1u);
}

TEST(SeedOrderTest, GraphsWithoutEdgesEnd) {
  const auto islands = FromEdges({}, 5000);
  const std::vector<NodeId> seeds = AllNodes(5000);
  const OrderedSeeds ordered =
      OrderByProximity(*islands, seeds, {}, {.batch_size = 100, .sequences = 3}).value();
  EXPECT_EQ(Sorted(ordered.seeds), seeds);
  EXPECT_NE(ordered.seeds, seeds) << "in random order";
  EXPECT_TRUE(OrderByProximity(*islands, {}, {}, {}).value().seeds.empty());
}

TEST(SeedOrderTest, NeedsASideInMemoryAndTakesWhicheverThereIs) {
  Rng rng(8);
  const Graph graph = RandomGraph(rng, 300, 900, 0);
  const std::vector<NodeId> seeds = AllNodes(300);
  const auto backend = MakeDefaultBackend();
  const TemporaryFolder folder("seed-order");
  const auto topology = WriteTopology(*backend, folder.path(), "t", graph.csc, &graph.csr).value();
  const auto order = [&](const Topology& from) {
    return OrderByProximity(from, seeds, {}, {.sequences = 2});
  };
  EXPECT_EQ(order(*topology).status().code(), Code::kOutOfBudget);
  ASSERT_OK(topology->LoadIndices(*backend, Adjacency::kCsr));
  const auto out_edges = Topology::FromMemory(graph.csr.indptr, graph.csr.indices).value();
  EXPECT_EQ(order(*topology).value().seeds, order(*out_edges).value().seeds);
  ASSERT_OK(topology->LoadIndices(*backend, Adjacency::kCsc));
  EXPECT_EQ(order(*topology).value().seeds, order(*InMemory(graph)).value().seeds);
}

TEST(SeedOrderTest, WhatCannotBeOrderedIsRefused) {
  const auto grid = Grid();
  const auto code = [&](std::vector<NodeId> seeds, size_t label_count, uint32_t batch_size) {
    const std::vector<int64_t> labels(label_count);
    return OrderByProximity(*grid, seeds, labels, {.batch_size = batch_size}).status().code();
  };
  EXPECT_EQ(code({1, 2}, 0, 8), Code::kOk);
  EXPECT_EQ(code({1, 2, 1}, 0, 8), Code::kInvalidArgument);
  EXPECT_EQ(code({1, kGridNodes}, 0, 8), Code::kInvalidArgument);
  EXPECT_EQ(code({1, 2}, 2, 8), Code::kInvalidArgument);
  EXPECT_EQ(code({1, 2}, 0, 0), Code::kInvalidArgument);
}

}  // namespace
}  // namespace quarry
