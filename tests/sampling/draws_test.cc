// Draws against distributions that are counted out: every order in which neighbors can be drawn, every order of the
// numbers that LABOR gives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "sampling/block_oracle.h"
#include "sampling/chi_square.h"
#include "sampling/counted_draws.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

// Enough for each set to come up often.
const int kDrawRounds = static_cast<int>(std::max<uint64_t>(10'000, testing_util::Repetitions(40'000)));
constexpr double kDeviationsMax = 5;
constexpr uint64_t kSeeds[] = {1, 2, 3};

// Node 0 and its neighbors 1, 2, ...: the first `in` of them have an edge to it, it has one to each from `first_out` on.
struct Star {
  Star(std::vector<float> edge_weights, size_t in) : Star(std::move(edge_weights), in, in) {}
  Star(std::vector<float> edge_weights, size_t in, size_t first_out) : weights(std::move(edge_weights)) {
    std::vector<std::pair<NodeId, NodeId>> edges;
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto leaf = static_cast<NodeId>(i + 1);
      if (i < in) edges.emplace_back(leaf, 0);
      if (i >= first_out) edges.emplace_back(0, leaf);
    }
    const auto weights_of = [&](const NeighborLists& lists) {
      std::vector<float> out(lists.indices.size());
      for (NodeId v = 0; v + 1 < lists.indptr.size(); ++v) {
        for (uint64_t e = lists.indptr[v]; e < lists.indptr[v + 1]; ++e)
          out[e] = weights[std::max(v, lists.indices[e]) - 1];
      }
      return out;
    };
    Graph graph{.csc = ListsOf(edges, weights.size() + 1), .csr = {}};
    for (auto& [from, to] : edges) std::swap(from, to);
    graph.csr = ListsOf(edges, weights.size() + 1);
    graph.csc.weights = weights_of(graph.csc);
    graph.csr.weights = weights_of(graph.csr);
    topology = InMemory(graph);
  }
  std::vector<float> weights;
  std::unique_ptr<Topology> topology;
};

std::unique_ptr<NeighborSampler> MakeSampler(const NeighborSource& source, const RoadSpec& spec) {
  auto sampler = NeighborSampler::Make(source, spec);
  EXPECT_OK(sampler);
  return sampler.ok() ? std::move(sampler).value() : nullptr;
}

// What a seed drew in a block, as ids below those of neighbors: its place in a star.
Places DrawnBy(const Block& block, uint32_t seed) {
  Places places;
  for (uint32_t e = block.indptr[seed]; e < block.indptr[seed + 1]; ++e)
    places.push_back(block.nodes[block.indices[e]] - 1);
  std::ranges::sort(places);
  return places;
}

double DeviationsOf(const Star& star, Direction direction, const RoadSpec& spec,
                    const std::map<Places, double>& probabilities, uint64_t seed) {
  const auto sampler = MakeSampler({.topology = star.topology.get(), .direction = direction}, spec);
  std::map<Places, int> counts;
  Block block;
  for (int i = 0; i < kDrawRounds; ++i) {
    EXPECT_OK(sampler->Sample(std::vector<NodeId>{0}, MixSeed(seed, i), block));
    ++counts[DrawnBy(block, 0)];
  }
  return ChiSquareDeviations(probabilities, counts, kDrawRounds);
}

TEST(Draws, ByWeightAreThoseOfDrawingOneAfterAnother) {
  const std::vector<float> weights = {1, 2, 0, 4, 0.5, 3, 8};
  for (const uint64_t seed : kSeeds) {
    for (const SamplerKind sampler : {SamplerKind::kNeighbor, SamplerKind::kLabor}) {
      for (const auto& [direction, in] :
           {std::pair(Direction::kIn, weights.size()), std::pair(Direction::kOut, size_t{0}),
            std::pair(Direction::kBoth, size_t{3})}) {
        for (const uint32_t fanout : {1U, 3U, 5U, 6U, 7U, 20U}) {
          SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << NameOf(sampler) << ", "
                                          << NameOf(direction) << ", fanout " << fanout);
          EXPECT_LT(DeviationsOf(Star(weights, in), direction,
                                 {.fanouts = {fanout}, .sampler = sampler, .weighted = true},
                                 Successive(weights, fanout), seed),
                    kDeviationsMax);
        }
      }
    }
  }
}

TEST(Draws, AgainByWeightAreIndependent) {
  const std::vector<float> weights = {1, 0, 2, 4, 0.5, 0};
  for (const uint64_t seed : kSeeds) {
    for (const auto& [direction, in] :
         {std::pair(Direction::kIn, weights.size()), std::pair(Direction::kBoth, size_t{2})}) {
      for (const uint32_t fanout : {1U, 3U}) {
        SCOPED_TRACE(testing::Message()
                     << "seed " << seed << ", " << NameOf(direction) << ", fanout " << fanout);
        EXPECT_LT(DeviationsOf(Star(weights, in), direction,
                               {.fanouts = {fanout}, .replace = true, .weighted = true},
                               Independent(weights, fanout), seed),
                  kDeviationsMax);
      }
    }
  }
}

TEST(Draws, OfLaborAreUniformForEachNode) {
  const std::vector<float> same(6, 1);
  for (const uint64_t seed : kSeeds) {
    for (const uint32_t dependency : {0U, 4U}) {
      for (const uint32_t fanout : {1U, 2U, 4U, 6U, 9U}) {
        SCOPED_TRACE(testing::Message()
                     << "seed " << seed << ", dependency " << dependency << ", fanout " << fanout);
        const RoadSpec spec{
            .fanouts = {fanout}, .sampler = SamplerKind::kLabor, .batch_dependency = dependency};
        EXPECT_LT(DeviationsOf(Star(same, 6), Direction::kIn, spec, Successive(same, fanout), seed),
                  kDeviationsMax);
      }
    }
  }
}

// Along both directions an edge to a neighbor and one from it are two, each drawn whatever becomes of the other.
TEST(Draws, OfEdgesBothWaysAreThoseOfTwoEdges) {
  const std::vector<float> weights = {1, 3, 0.5, 2};
  for (const bool weighted : {false, true}) {
    std::vector<float> twice(2 * weights.size(), 1);
    if (weighted) {
      std::ranges::copy(weights, twice.begin());
      std::ranges::copy(weights, twice.begin() + static_cast<ptrdiff_t>(weights.size()));
    }
    for (const uint32_t fanout : {1U, 2U, 4U, 5U, 8U}) {
      std::map<Places, double> probabilities;
      for (auto& [edges, probability] : Successive(twice, fanout)) {
        Places leaves;
        for (const size_t edge : edges) leaves.push_back(edge % weights.size());
        std::ranges::sort(leaves);
        probabilities[leaves] += probability;
      }
      for (const auto& [sampler, dependency] :
           {std::pair(SamplerKind::kNeighbor, 0U), std::pair(SamplerKind::kLabor, 0U),
            std::pair(SamplerKind::kLabor, 4U)}) {
        for (const uint64_t seed : kSeeds) {
          SCOPED_TRACE(testing::Message()
                       << "seed " << seed << ", " << NameOf(sampler) << ", weighted " << weighted
                       << ", dependency " << dependency << ", fanout " << fanout);
          EXPECT_LT(DeviationsOf(Star(weights, weights.size(), 0), Direction::kBoth,
                                 {.fanouts = {fanout},
                                  .sampler = sampler,
                                  .batch_dependency = dependency,
                                  .weighted = weighted},
                                 probabilities, seed),
                    kDeviationsMax);
        }
      }
    }
  }
}

// Nodes 0 and 1 have neighbors in common. LABOR's draws of both are what any order of six numbers makes them, each order
// being equally likely: 720 of them.
TEST(Draws, OfLaborShareTheNumbersOfNeighbors) {
  const std::vector<NodeId> first = {2, 3, 4, 5}, second = {4, 5, 6, 7};
  std::vector<NodeId> indices = first;
  indices.insert(indices.end(), second.begin(), second.end());
  const auto topology = Topology::FromMemory({0, 4, 8, 8, 8, 8, 8, 8, 8}, indices);
  ASSERT_OK(topology);
  constexpr size_t kFanout = 2;
  using Both = std::pair<Places, Places>;
  std::vector<int> rank = {0, 1, 2, 3, 4, 5};  // of nodes 2 to 7
  std::map<Both, double> probabilities;
  const auto smallest = [&](std::vector<NodeId> list) {
    std::ranges::sort(list, {}, [&](NodeId node) { return rank[node - 2]; });
    Places places;
    for (size_t k = 0; k < kFanout; ++k) places.push_back(list[k] - 1);
    std::ranges::sort(places);
    return places;
  };
  do {
    probabilities[{smallest(first), smallest(second)}] += 1.0 / 720;
  } while (std::next_permutation(rank.begin(), rank.end()));

  for (const uint64_t seed : kSeeds) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto counts_of = [&](SamplerKind kind) {
      const auto sampler =
          MakeSampler({.topology = topology->get()}, {.fanouts = {kFanout}, .sampler = kind});
      std::map<Both, int> counts;
      Block block;
      for (int i = 0; i < kDrawRounds; ++i) {
        EXPECT_OK(sampler->Sample(std::vector<NodeId>{0, 1}, MixSeed(seed, i), block));
        ++counts[{DrawnBy(block, 0), DrawnBy(block, 1)}];
      }
      return counts;
    };
    EXPECT_LT(ChiSquareDeviations(probabilities, counts_of(SamplerKind::kLabor), kDrawRounds),
              kDeviationsMax);
    EXPECT_GT(ChiSquareDeviations(probabilities, counts_of(SamplerKind::kNeighbor), kDrawRounds), 20)
        << "the test tells them apart";
  }
}

// One of two neighbors is drawn. Each keeps its number until its turn, so the choice is the same in the next batch when
// neither has a new number (probability (1-q)^2, q = 1 / dependency), in two of three cases when one has, and in one of
// two when both have.
TEST(Draws, OfBatchesThatDependOnEachOtherChangeSlowly) {
  const Star star({1, 1}, 2);
  for (const uint64_t seed : kSeeds) {
    for (const uint32_t dependency : {2U, 8U, 64U}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", dependency " << dependency);
      const RoadSpec spec{
          .fanouts = {1}, .seed = seed, .sampler = SamplerKind::kLabor, .batch_dependency = dependency};
      const auto sampler = MakeSampler({.topology = star.topology.get()}, spec);
      Block block;
      const auto choice = [&](uint64_t pass, uint64_t number) {
        EXPECT_OK(sampler->Sample(std::vector<NodeId>{0}, spec.SeedOf(pass, number), block));
        return DrawnBy(block, 0);
      };
      int same = 0, same_later = 0, first = 0;
      for (int pass = 0; pass < kDrawRounds; ++pass) {
        const auto number = static_cast<uint64_t>(pass % 100);
        const Places now = choice(pass, number);
        same += now == choice(pass, number + 1) ? 1 : 0;
        same_later += now == choice(pass, number + dependency) ? 1 : 0;
        first += now == Places{0} ? 1 : 0;
      }
      const double q = 1.0 / dependency;
      const double expected = (1 - q) * (1 - q) + 2 * q * (1 - q) * 2 / 3 + q * q / 2;
      const auto tolerance = [](double p) { return 5 * std::sqrt(kDrawRounds * p * (1 - p)); };
      EXPECT_NEAR(same, kDrawRounds * expected, tolerance(expected));
      EXPECT_NEAR(same_later, kDrawRounds / 2.0, tolerance(0.5)) << "all numbers are new";
      EXPECT_NEAR(first, kDrawRounds / 2.0, tolerance(0.5));
    }
  }
}

RoadSpec RandomSpec(Rng& rng) {
  RoadSpec spec;
  spec.fanouts = {static_cast<uint32_t>(1 + rng.Below(12)), static_cast<uint32_t>(1 + rng.Below(12))};
  spec.seed = rng();
  if (rng.Below(2) == 0) spec.sampler = SamplerKind::kLabor;
  spec.weighted = spec.sampler == SamplerKind::kNeighbor || rng.Below(2) == 0;
  spec.replace = spec.sampler == SamplerKind::kNeighbor && rng.Below(2) == 0;
  if (spec.sampler == SamplerKind::kLabor) spec.batch_dependency = static_cast<uint32_t>(rng.Below(4));
  return spec;
}

std::string TextOf(const RoadSpec& spec, Direction direction) {
  return fmt::format("{} {} fanouts {} weighted {} replace {} dependency {}", NameOf(spec.sampler),
                     NameOf(direction), fmt::join(spec.fanouts, ","), spec.weighted, spec.replace,
                     spec.batch_dependency);
}

// Edges of weight 0 are not there for draws.
Graph WithoutZeros(const Graph& graph) {
  const auto without = [](const NeighborLists& lists) {
    NeighborLists left;
    for (NodeId v = 0; v + 1 < lists.indptr.size(); ++v) {
      for (uint64_t e = lists.indptr[v]; e < lists.indptr[v + 1]; ++e) {
        if (lists.weights[e] > 0) left.indices.push_back(lists.indices[e]);
      }
      left.indptr.push_back(left.indices.size());
    }
    return left;
  };
  return {.csc = without(graph.csc), .csr = without(graph.csr)};
}

TEST(Draws, MakeValidBlocksOfRandomGraphs) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Rng rng(seed);
    const uint64_t node_count = 1 + rng.Below(200);
    Graph graph = RandomGraph(rng, node_count, rng.Below(3000), static_cast<int>(rng.Below(4)));
    AddWeights(rng, graph);
    const auto topology = InMemory(graph);
    for (const Direction direction : {Direction::kIn, Direction::kOut, Direction::kBoth}) {
      RoadSpec spec = RandomSpec(rng);
      spec.edge_ids = direction == Direction::kIn;
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << TextOf(spec, direction));
      const auto sampler = MakeSampler({.topology = topology.get(), .direction = direction}, spec);
      Block block;
      for (uint64_t batch = 0; batch < 3; ++batch) {
        const std::vector<NodeId> seeds = RandomSeeds(rng, node_count, rng.Below(40));
        ASSERT_OK(sampler->Sample(seeds, spec.SeedOf(seed, batch), block));
        if (spec.edge_ids) {
          ASSERT_NO_FATAL_FAILURE(ExpectEdgeIds(block, graph, spec.replace));
          for (const uint64_t id : block.edge_ids) ASSERT_TRUE(!spec.weighted || graph.csc.weights[id] > 0);
        }
        if (spec.replace) continue;
        block.edge_ids.clear();
        ASSERT_NO_FATAL_FAILURE(ExpectValidBlock(block, spec.weighted ? WithoutZeros(graph) : graph,
                                                 direction, spec.fanouts, seeds));
      }
    }
  }
}

// Lists that are longer than what LABOR reads at a time.
TEST(Draws, OfALongListAreUniform) {
  constexpr uint64_t kLeaves = 300'000;
  std::vector<NodeId> indices(kLeaves);
  std::iota(indices.begin(), indices.end(), NodeId{1});
  std::vector<uint64_t> indptr(kLeaves + 2, kLeaves);
  indptr[0] = 0;
  const auto topology = Topology::FromMemory(indptr, indices);
  ASSERT_OK(topology);
  const auto sampler =
      MakeSampler({.topology = topology->get()}, {.fanouts = {1000}, .sampler = SamplerKind::kLabor});
  Block block;
  std::map<size_t, int> counts;
  std::map<size_t, double> probabilities;
  constexpr size_t kParts = 30;
  for (size_t part = 0; part < kParts; ++part) probabilities[part] = 1.0 / kParts;
  int drawn = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_OK(sampler->Sample(std::vector<NodeId>{0}, MixSeed(9, i), block));
    ASSERT_EQ(block.indices.size(), 1000u);
    for (const size_t place : DrawnBy(block, 0)) ++counts[place * kParts / kLeaves], ++drawn;
  }
  EXPECT_LT(ChiSquareDeviations(probabilities, counts, drawn), kDeviationsMax);
}

TEST(Draws, DependOnTheSeedAndNothingBefore) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Rng rng(seed);
    Graph graph = RandomGraph(rng, 3000, 60'000, 2);
    AddWeights(rng, graph);
    const auto topology = InMemory(graph);
    const RoadSpec spec = RandomSpec(rng);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << TextOf(spec, Direction::kBoth));
    const NeighborSource source{.topology = topology.get(), .direction = Direction::kBoth};
    constexpr size_t kBatches = 16;
    std::vector<std::vector<NodeId>> seeds;
    for (size_t b = 0; b < kBatches; ++b) seeds.push_back(RandomSeeds(rng, 3000, 100));
    std::vector<Block> expected(kBatches), got(kBatches);
    for (size_t b = 0; b < kBatches; ++b) {  // by a sampler of its own each
      ASSERT_OK(MakeSampler(source, spec)->Sample(seeds[b], spec.SeedOf(1, b), expected[b]));
    }
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const auto sampler = MakeSampler(source, spec);
        for (size_t b = kBatches - 1 - t; b < kBatches; b -= 4)
          EXPECT_OK(sampler->Sample(seeds[b], spec.SeedOf(1, b), got[b]));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t b = 0; b < kBatches; ++b) ASSERT_TRUE(SameBlock(got[b], expected[b])) << "batch " << b;
  }
}

TEST(Draws, OfLaborFindFewerNodes) {
  Rng rng(3);
  const Graph graph = RandomGraph(rng, 20'000, 800'000, 1);
  const auto topology = InMemory(graph);
  size_t nodes[2] = {0, 0}, edges[2] = {0, 0};
  for (const SamplerKind kind : {SamplerKind::kNeighbor, SamplerKind::kLabor}) {
    const auto sampler = MakeSampler({.topology = topology.get()}, {.fanouts = {10, 10}, .sampler = kind});
    Block block;
    for (uint64_t batch = 0; batch < 5; ++batch) {
      ASSERT_OK(sampler->Sample(RandomSeeds(rng, 20'000, 500), batch, block));
      nodes[static_cast<int>(kind)] += block.nodes.size();
      edges[static_cast<int>(kind)] += block.indices.size();
    }
  }
  EXPECT_LT(nodes[1], nodes[0] * 9 / 10);
  EXPECT_LT(edges[1], edges[0]);
}

TEST(Draws, OptionsThatContradictEachOtherAreRefused) {
  const Star star({1, 2}, 2);
  const auto code_of = [&](const RoadSpec& spec) {
    return NeighborSampler::Make({.topology = star.topology.get()}, spec).status();
  };
  EXPECT_THAT(code_of({.replace = true, .sampler = SamplerKind::kLabor}),
              IsStatus(Code::kUsage, HasSubstr("distinct neighbors")));
  EXPECT_THAT(code_of({.batch_dependency = 3}),
              IsStatus(Code::kUsage, HasSubstr("needs the sampler 'labor'")));
  const auto unweighted = Topology::FromMemory({0, 1, 1}, std::vector<NodeId>{1});
  ASSERT_OK(unweighted);
  EXPECT_THAT(NeighborSampler::Make({.topology = unweighted->get()}, {.weighted = true}).status(),
              IsStatus(Code::kInvalidArgument, HasSubstr("weights are not loaded")));
}

// Lists of parts.
class NoLists final : public PiecedLists {
 public:
  uint64_t node_count() const override { return 1; }
  uint64_t Degree(size_t, NodeId) const override { return 0; }
  void Take(NodeId, std::span<const uint64_t>, NodeId*) const override {}
};

TEST(Draws, OfPartsAreUniformAlone) {
  const NoLists lists;
  EXPECT_OK(NeighborSampler::Make({.lists = &lists}, {}));
  EXPECT_THAT(NeighborSampler::Make({.lists = &lists}, {.sampler = SamplerKind::kLabor}).status(),
              IsStatus(Code::kUnsupported, HasSubstr("the sampler 'labor'")));
  EXPECT_THAT(NeighborSampler::Make({.lists = &lists}, {.weighted = true}).status(),
              IsStatus(Code::kUnsupported, HasSubstr("weighted samples")));
}

TEST(Draws, WeightsThatAreNoChancesAreRefusedByEdgeAndValue) {
  const auto topology = Topology::FromMemory({0, 0, 2, 3}, std::vector<NodeId>{0, 2, 1});
  ASSERT_OK(topology);
  EXPECT_THAT((*topology)->SetWeights(Adjacency::kCsc, std::vector<float>{1, -0.5F, 2}),
              IsStatus(Code::kInvalidArgument, HasSubstr("csc_weights[1], of an edge of node 1, is -0.5")));
  EXPECT_THAT((*topology)->SetWeights(Adjacency::kCsc, std::vector<float>{1, 0, NAN}),
              IsStatus(Code::kInvalidArgument, HasSubstr("csc_weights[2], of an edge of node 2, is nan")));
  EXPECT_OK((*topology)->SetWeights(Adjacency::kCsc, std::vector<float>{1, 0, 2}));
}

}  // namespace
}  // namespace quarry
