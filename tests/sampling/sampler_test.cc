#include "quarry/sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <thread>

#include "sampling/block_oracle.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

constexpr Direction kDirections[] = {Direction::kIn, Direction::kOut, Direction::kBoth};

std::unique_ptr<NeighborSampler> MakeSampler(const NeighborSource& source, std::vector<uint32_t> fanouts) {
  auto sampler = NeighborSampler::Make(source, {.fanouts = fanouts});
  EXPECT_OK(sampler);
  return sampler.ok() ? std::move(sampler).value() : nullptr;
}

TEST(NeighborSampler, MakesValidBlocksOfRandomGraphs) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t node_count = 1 + rng.Below(200);
    const Graph graph = RandomGraph(rng, node_count, rng.Below(3000), static_cast<int>(rng.Below(4)));
    const auto topology = InMemory(graph);
    std::vector<uint32_t> fanouts;
    for (uint64_t hop = 1 + rng.Below(4); hop > 0; --hop)
      fanouts.push_back(static_cast<uint32_t>(1 + rng.Below(60)));
    for (const Direction direction : kDirections) {
      const NeighborSource source{.topology = topology.get(), .direction = direction};
      const auto sampler = MakeSampler(source, fanouts);
      Block block;
      for (uint64_t batch = 0; batch < 3; ++batch) {
        const std::vector<NodeId> seeds = RandomSeeds(rng, node_count, rng.Below(40));
        ASSERT_OK(sampler->Sample(seeds, MixSeed(seed, batch), block));
        ASSERT_NO_FATAL_FAILURE(ExpectValidBlock(block, graph, direction, fanouts, seeds));
      }
    }
  }
}

TEST(NeighborSampler, MakesValidBlocksThatOutgrowItsTilesAndItsTable) {
  Rng rng(1);
  const Graph graph = RandomGraph(rng, 60'000, 900'000, 1);
  const auto topology = InMemory(graph);
  const NeighborSource source{.topology = topology.get(), .direction = Direction::kBoth};
  const std::vector<uint32_t> fanouts = {7, 1024, 5};
  const auto sampler = MakeSampler(source, fanouts);
  Block block;
  for (const size_t seed_count : {10u, 9000u, 100u}) {
    const std::vector<NodeId> seeds = RandomSeeds(rng, graph.node_count(), seed_count);
    ASSERT_OK(sampler->Sample(seeds, 5, block));
    ASSERT_NO_FATAL_FAILURE(ExpectValidBlock(block, graph, source.direction, fanouts, seeds));
  }
  EXPECT_LT(sampler->scratch_bytes(), NeighborSampler::ScratchBytesMax(source, 60'000, 1 << 20, true));
}

TEST(NeighborSampler, SamplesEachNodeOnceWhereverItIsFound) {
  // 0 and 1 name each other and 2: whatever the number of hops, three nodes with one list each.
  const Graph graph{.csc = {.indptr = {0, 2, 4, 4}, .indices = {1, 2, 0, 2}}, .csr = {}};
  const auto topology = Topology::FromMemory(graph.csc.indptr, graph.csc.indices);
  ASSERT_OK(topology);
  const auto sampler = MakeSampler({.topology = topology->get()}, {2, 2, 2});
  Block block;
  ASSERT_OK(sampler->Sample(std::vector<NodeId>{0}, 1, block));
  EXPECT_EQ(block.nodes, (std::vector<NodeId>{0, 1, 2}));
  EXPECT_EQ(block.hop_offsets, (std::vector<uint32_t>{1, 3, 3, 3}));
  EXPECT_EQ(block.indptr, (std::vector<uint32_t>{0, 2, 4, 4}));
  EXPECT_EQ(block.indices, (std::vector<uint32_t>{1, 2, 0, 2}));
}

TEST(NeighborSampler, CountsEveryCopyOfAMultiEdgeAsAPosition) {
  // Node 0 is named by 1 nine times and by 2 once; of two drawn, 2 is one with probability 1/5.
  const std::vector<NodeId> indices = {1, 1, 1, 1, 1, 1, 1, 1, 1, 2};
  const auto topology = Topology::FromMemory({0, 10, 10, 10}, indices);
  ASSERT_OK(topology);
  const auto sampler = MakeSampler({.topology = topology->get()}, {2});
  Block block;
  int found = 0;
  constexpr int kRounds = 20'000;
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_OK(sampler->Sample(std::vector<NodeId>{0}, i, block));
    ASSERT_EQ(block.indices.size(), 2);
    found += block.nodes.back() == 2 ? 1 : 0;
  }
  EXPECT_NEAR(found, kRounds / 5, 5 * std::sqrt(kRounds * 0.2 * 0.8));
}

TEST(NeighborSampler, DrawsFromBothSidesAsFromOneList) {
  // Node 0 has one in-neighbor, 1, and three out-neighbors, all 2.
  const auto topology = Topology::FromMemory({0, 1, 3, 3}, std::vector<NodeId>{1, 2, 2}, {0, 3, 3, 3},
                                             std::vector<NodeId>{2, 2, 2});
  ASSERT_OK(topology);
  const auto sampler = MakeSampler({.topology = topology->get(), .direction = Direction::kBoth}, {1});
  Block block;
  int found = 0;
  constexpr int kRounds = 20'000;
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_OK(sampler->Sample(std::vector<NodeId>{0}, i, block));
    found += block.nodes.back() == 1 ? 1 : 0;
  }
  EXPECT_NEAR(found, kRounds / 4, 5 * std::sqrt(kRounds * 0.25 * 0.75));
}

TEST(NeighborSampler, DrawsWithReplacementIndependentlyAndUniformly) {
  // Edges 3..7 -> 0, 8 -> 1, 0 -> 9, 0 -> 10: node 0 has five in-neighbors and two out-neighbors, node 1 one
  // neighbor, node 2 none.
  const auto topology = Topology::FromMemory(
      {0, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7, 8}, std::vector<NodeId>{3, 4, 5, 6, 7, 8, 0, 0},
      {0, 2, 2, 2, 3, 4, 5, 6, 7, 8, 8, 8}, std::vector<NodeId>{9, 10, 0, 0, 0, 0, 0, 1});
  ASSERT_OK(topology);
  constexpr uint32_t kFanout = 3;
  constexpr int kRounds = 20'000;
  for (const auto& [direction, degree] : {std::pair(Direction::kIn, 5), std::pair(Direction::kBoth, 7)}) {
    SCOPED_TRACE(NameOf(direction));
    const auto sampler = NeighborSampler::Make({.topology = topology->get(), .direction = direction},
                                               {.fanouts = {kFanout}, .replace = true});
    ASSERT_OK(sampler);
    // Each triple of neighbors of node 0 is as likely as any other.
    std::map<std::vector<NodeId>, int> triples;
    Block block;
    for (int i = 0; i < kRounds; ++i) {
      ASSERT_OK((*sampler)->Sample(std::vector<NodeId>{0, 1, 2}, i, block));
      ASSERT_EQ(block.indptr, (std::vector<uint32_t>{0, kFanout, 2 * kFanout, 2 * kFanout}));
      std::vector<NodeId> triple;
      for (uint32_t e = 0; e < kFanout; ++e) triple.push_back(block.nodes[block.indices[e]]);
      ++triples[triple];
      for (uint32_t e = kFanout; e < 2 * kFanout; ++e) EXPECT_EQ(block.nodes[block.indices[e]], 8u);
    }
    const int cells = degree * degree * degree;
    const double expected = static_cast<double>(kRounds) / cells;
    ASSERT_EQ(triples.size(), static_cast<size_t>(cells));
    double chi_square = 0;
    for (const auto& [triple, count] : triples)
      chi_square += (count - expected) * (count - expected) / expected;
    const double freedom = cells - 1;
    EXPECT_NEAR(chi_square, freedom, 5 * std::sqrt(2 * freedom));
  }
}

TEST(NeighborSampler, EdgeIdsSayWhichEdgesWereDrawn) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t node_count = 1 + rng.Below(100);
    const Graph graph = RandomGraph(rng, node_count, rng.Below(6000), static_cast<int>(rng.Below(4)));
    const auto topology = InMemory(graph);
    const std::vector<uint32_t> fanouts = {static_cast<uint32_t>(1 + rng.Below(60)), 5};
    for (const bool replace : {false, true}) {
      const auto with = NeighborSampler::Make({.topology = topology.get()},
                                              {.fanouts = fanouts, .replace = replace, .edge_ids = true});
      const auto without =
          NeighborSampler::Make({.topology = topology.get()}, {.fanouts = fanouts, .replace = replace});
      ASSERT_OK(with);
      ASSERT_OK(without);
      Block block, plain;
      for (uint64_t batch = 0; batch < 3; ++batch) {
        const std::vector<NodeId> seeds = RandomSeeds(rng, node_count, rng.Below(40));
        ASSERT_OK((*with)->Sample(seeds, batch, block));
        ASSERT_NO_FATAL_FAILURE(ExpectEdgeIds(block, graph, replace));
        ASSERT_OK((*without)->Sample(seeds, batch, plain));
        EXPECT_TRUE(plain.edge_ids.empty());
        plain.edge_ids = block.edge_ids;
        ASSERT_TRUE(SameBlock(block, plain)) << "asking for ids changes nothing else";
      }
    }
  }
}

TEST(NeighborSampler, DependsOnTheStreamSeedAndNothingBefore) {
  Rng rng(7);
  const Graph graph = RandomGraph(rng, 5000, 100'000, 1);
  const auto topology = InMemory(graph);
  const NeighborSource source{.topology = topology.get()};
  std::vector<std::vector<NodeId>> seeds;
  std::vector<Block> expected(16);
  for (uint64_t batch = 0; batch < expected.size(); ++batch) {
    seeds.push_back(RandomSeeds(rng, graph.node_count(), 50));
    ASSERT_OK(MakeSampler(source, {10, 5, 5})->Sample(seeds[batch], batch, expected[batch]));
  }
  EXPECT_FALSE(SameBlock(expected[0], expected[1]));

  // Threads with a sampler each, in opposite orders.
  std::vector<Block> forward(expected.size()), backward(expected.size());
  const auto run = [&](std::vector<Block>& blocks, bool reverse) {
    const auto sampler = MakeSampler(source, {10, 5, 5});
    for (uint64_t i = 0; i < blocks.size(); ++i) {
      const uint64_t batch = reverse ? blocks.size() - 1 - i : i;
      if (!sampler->Sample(seeds[batch], batch, blocks[batch]).ok()) return;
    }
  };
  std::thread thread([&] { run(forward, false); });
  run(backward, true);
  thread.join();
  for (uint64_t batch = 0; batch < expected.size(); ++batch) {
    EXPECT_TRUE(SameBlock(forward[batch], expected[batch])) << batch;
    EXPECT_TRUE(SameBlock(backward[batch], expected[batch])) << batch;
  }
  Block other;
  ASSERT_OK(MakeSampler(source, {10, 5, 5})->Sample(seeds[0], 99, other));
  EXPECT_FALSE(SameBlock(other, expected[0]));
}

TEST(NeighborSampler, DrawsWhatItDrewInEarlierVersions) {
  // A training that is repeated, and a layout that is planned again, meet the same blocks. 0 is named by 0..99.
  std::vector<NodeId> indices(100);
  for (NodeId v = 0; v < 100; ++v) indices[v] = v;
  std::vector<uint64_t> indptr(101, 100);
  indptr[0] = 0;
  const auto topology = Topology::FromMemory(indptr, indices);
  ASSERT_OK(topology);
  Block block;
  ASSERT_OK(MakeSampler({.topology = topology->get()}, {5})->Sample(std::vector<NodeId>{0}, 42, block));
  EXPECT_EQ(block.nodes, (std::vector<NodeId>{0, 14, 87, 66, 15, 53}));
}

// So whoever draws for a part of a block's nodes, or in another order, draws what the sampler of one machine does.
TEST(NeighborSampler, ANodesNeighborsDependOnTheBlocksSeedAndTheNodeAlone) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const Graph graph = RandomGraph(rng, 200, 6000, static_cast<int>(rng.Below(4)));
    const auto topology = InMemory(graph);
    for (const Direction direction : kDirections) {
      const NeighborSource source{.topology = topology.get(), .direction = direction};
      const std::vector<NodeId> seeds = RandomSeeds(rng, 200, 40);
      Block all, one;
      ASSERT_OK(MakeSampler(source, {5, 5})->Sample(seeds, seed, all));
      const auto alone = MakeSampler(source, {5});
      for (uint32_t v = 0; v + 1 < all.indptr.size(); ++v) {
        ASSERT_OK(alone->Sample(std::vector<NodeId>{all.nodes[v]}, seed, one));
        std::vector<NodeId> in_all, in_one;
        for (uint32_t e = all.indptr[v]; e < all.indptr[v + 1]; ++e)
          in_all.push_back(all.nodes[all.indices[e]]);
        for (const uint32_t neighbor : one.indices) in_one.push_back(one.nodes[neighbor]);
        ASSERT_EQ(in_all, in_one) << all.nodes[v];
      }
    }
  }
}

TEST(NeighborSampler, TakesSeedsWithoutNeighborsAndNoSeedsAtAll) {
  const auto topology = Topology::FromMemory({0, 0, 0, 0}, {});
  ASSERT_OK(topology);
  const auto sampler = MakeSampler({.topology = topology->get()}, {3, 3});
  Block block;
  ASSERT_OK(sampler->Sample(std::vector<NodeId>{2, 0}, 1, block));
  EXPECT_EQ(block.nodes, (std::vector<NodeId>{2, 0}));
  EXPECT_EQ(block.hop_offsets, (std::vector<uint32_t>{2, 2, 2}));
  EXPECT_EQ(block.indptr, (std::vector<uint32_t>{0, 0, 0}));
  EXPECT_TRUE(block.indices.empty());
  ASSERT_OK(sampler->Sample({}, 1, block));
  EXPECT_EQ(block.hop_offsets, (std::vector<uint32_t>{0, 0, 0}));
  EXPECT_EQ(block.indptr, (std::vector<uint32_t>{0}));
}

TEST(NeighborSampler, RefusesSeedsThatAreOutOfRangeOrGivenTwice) {
  const auto topology = Topology::FromMemory(std::vector<uint64_t>(10'001, 0), {});
  ASSERT_OK(topology);
  const auto sampler = MakeSampler({.topology = topology->get()}, {3});
  Block block;
  Status status = sampler->Sample(std::vector<NodeId>{1, 10'000}, 1, block);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "seed node 10000 is out of range: the graph has 10000 nodes");
  status = sampler->Sample(std::vector<NodeId>{1, 7, 5, 7, 5}, 1, block);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "seed node 7 is given twice: at 1 and at 3");
  std::vector<NodeId> many(10'000);
  for (NodeId v = 0; v < many.size(); ++v) many[v] = v;
  ASSERT_OK(sampler->Sample(many, 1, block));
  many.back() = 4;
  EXPECT_EQ(sampler->Sample(many, 1, block).message(), "seed node 4 is given twice: at 4 and at 9999");
}

TEST(NeighborSampler, RefusesFanoutsItCannotTakeAndSidesThatAreMissing) {
  const auto topology = Topology::FromMemory({0, 0}, {});
  ASSERT_OK(topology);
  const auto code_of = [&](std::vector<uint32_t> fanouts, Direction direction) {
    const auto sampler =
        NeighborSampler::Make({.topology = topology->get(), .direction = direction}, {.fanouts = fanouts});
    return sampler.ok() ? Code::kOk : sampler.status().code();
  };
  EXPECT_EQ(code_of({1, 1024, 1, 1, 1, 1, 1, 1}, Direction::kIn), Code::kOk);
  EXPECT_EQ(code_of({}, Direction::kIn), Code::kUsage);
  EXPECT_EQ(code_of({5, 0}, Direction::kIn), Code::kUsage);
  EXPECT_EQ(code_of({1025}, Direction::kIn), Code::kUsage);
  EXPECT_EQ(code_of(std::vector<uint32_t>(9, 1), Direction::kIn), Code::kUsage);
  EXPECT_EQ(code_of({5}, Direction::kOut), Code::kInvalidArgument);
  EXPECT_EQ(code_of({5}, Direction::kBoth), Code::kInvalidArgument);
  const std::vector<uint32_t> bad = {5, 0};
  EXPECT_EQ(NeighborSampler::Make({.topology = topology->get()}, {.fanouts = bad}).status().message(),
            "fanout 0 of hop 2: give 1 to 1024");
}

}  // namespace
}  // namespace quarry
