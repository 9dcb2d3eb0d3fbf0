// Draws by type of edges, against lists by type that the test keeps itself; from memory and from disk, alone and by
// distribution.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "quarry/sampling/typed_lists.h"
#include "sampling/block_oracle.h"
#include "sampling/chi_square.h"
#include "sampling/topology_file.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using testing::HasSubstr;

// A graph with types, and the sources of each node's edges of each type, ascending.
struct TypedGraph {
  Manifest manifest;
  std::vector<std::map<uint32_t, std::vector<NodeId>>> lists;  // by node, by relation
  NeighborLists csc;
  std::vector<uint32_t> relations;  // by position

  uint64_t node_count() const { return manifest.node_count; }
  uint32_t relation_count() const { return static_cast<uint32_t>(manifest.edge_types.size()); }
  std::unique_ptr<Topology> InMemory() const {
    auto topology = Topology::FromMemory(csc.indptr, csc.indices);
    EXPECT_OK(topology);
    return std::move(topology).value();
  }
};

// Three types of nodes, the second of which may have none; relations between any of them, several between the same two.
TypedGraph RandomTypedGraph(Rng& rng, uint64_t nodes_max, uint32_t relations) {
  TypedGraph graph;
  for (const char* name : {"paper", "author", "field"}) {
    const uint64_t count = *name == 'a' && rng.Below(4) == 0 ? 0 : 1 + rng.Below(nodes_max);
    graph.manifest.node_types.push_back({.name = name, .first = graph.manifest.node_count, .count = count});
    graph.manifest.node_count += count;
  }
  graph.lists.resize(graph.node_count());
  const auto node_of = [&](const NodeTypeRecord& type) {
    return static_cast<NodeId>(type.first + rng.Below(type.count));
  };
  for (uint32_t r = 0; r < relations; ++r) {
    EdgeTypeRecord type{.source = static_cast<uint32_t>(rng.Below(3)),
                        .name = "r" + std::to_string(r),
                        .destination = static_cast<uint32_t>(rng.Below(3))};
    const NodeTypeRecord& sources = graph.manifest.node_types[type.source];
    const NodeTypeRecord& destinations = graph.manifest.node_types[type.destination];
    if (sources.count > 0 && destinations.count > 0) type.edge_count = rng.Below(6 * nodes_max);
    for (uint64_t e = 0; e < type.edge_count; ++e) {
      graph.lists[node_of(destinations)][r].push_back(node_of(sources));
    }
    graph.manifest.edge_types.push_back(type);
  }
  for (auto& of_node : graph.lists) {
    for (auto& [relation, sources] : of_node) {
      std::ranges::sort(sources);
      graph.csc.indices.insert(graph.csc.indices.end(), sources.begin(), sources.end());
      graph.relations.insert(graph.relations.end(), sources.size(), relation);
    }
    graph.csc.indptr.push_back(graph.csc.indices.size());
  }
  return graph;
}

RoadSpec TypedSpec(const TypedGraph& graph, std::vector<std::vector<uint32_t>> by_hop, bool replace = false) {
  RoadSpec spec{.fanouts = {}, .replace = replace, .edge_ids = true};
  for (const std::vector<uint32_t>& of_hop : by_hop) {
    uint32_t most = 1;
    for (size_t type = 0; type < graph.manifest.node_types.size(); ++type) {
      uint32_t sum = 0;
      for (uint32_t r = 0; r < graph.relation_count(); ++r) {
        if (graph.manifest.edge_types[r].destination == type) sum += of_hop[r];
      }
      most = std::max(most, sum);
    }
    spec.fanouts.push_back(most);
    spec.relation_fanouts.insert(spec.relation_fanouts.end(), of_hop.begin(), of_hop.end());
  }
  return spec;
}

Block SampleTyped(const NeighborSource& source, const RoadSpec& spec, std::span<const NodeId> seeds,
                  uint64_t seed) {
  Block block;
  const auto sampler = NeighborSampler::Make(source, spec);
  EXPECT_OK(sampler);
  if (!sampler.ok()) return block;
  EXPECT_OK((*sampler)->Sample(seeds, seed, block));
  return block;
}

// What a node drew of each type: positions, which tell equal edges apart.
using DrawsByRelation = std::map<uint32_t, std::vector<uint64_t>>;

// Holds a block against the lists: as many of each type as there are or as the hop's fanout says, and no others.
std::map<NodeId, DrawsByRelation> ExpectTypedBlock(const Block& block, const TypedGraph& graph,
                                                   const RoadSpec& spec) {
  std::map<NodeId, DrawsByRelation> drawn;
  EXPECT_EQ(block.relations.size(), block.indices.size());
  uint32_t v = 0;
  for (uint32_t hop = 0; hop < block.view().hops(); ++hop) {
    for (; v < block.hop_offsets[hop]; ++v) {
      const NodeId node = block.nodes[v];
      DrawsByRelation& of_node = drawn[node];
      for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; ++e) {
        const uint64_t position = block.edge_ids[e];
        EXPECT_GE(position, graph.csc.indptr[node]);
        EXPECT_LT(position, graph.csc.indptr[node + 1]);
        EXPECT_EQ(graph.relations[position], block.relations[e]);
        EXPECT_EQ(graph.csc.indices[position], block.nodes[block.indices[e]]);
        if (e > block.indptr[v]) {
          EXPECT_GE(block.relations[e], block.relations[e - 1]);
        }
        of_node[block.relations[e]].push_back(position);
      }
      for (uint32_t r = 0; r < graph.relation_count(); ++r) {
        const auto list = graph.lists[node].find(r);
        const size_t there = list == graph.lists[node].end() ? 0 : list->second.size();
        const size_t wanted = spec.relation_fanouts[hop * graph.relation_count() + r];
        const size_t expected = spec.replace && there > 0 ? wanted : std::min(there, wanted);
        const std::vector<uint64_t>& found = of_node[r];
        EXPECT_EQ(found.size(), expected) << "node " << node << ", relation " << r << ", hop " << hop;
        const std::set<uint64_t> distinct(found.begin(), found.end());
        if (!spec.replace) {
          EXPECT_EQ(distinct.size(), found.size());
        }
      }
    }
  }
  return drawn;
}

std::vector<uint32_t> RandomFanouts(Rng& rng, uint32_t relations) {
  std::vector<uint32_t> fanouts(relations);
  for (uint32_t& fanout : fanouts) fanout = static_cast<uint32_t>(rng.Below(3) == 0 ? 0 : rng.Below(40));
  return fanouts;
}

TEST(TypedDraws, GiveEachTypeItsFanoutOfEveryHop) {
  const TemporaryFolder folder("typed-draws");
  const auto backend = MakeDefaultBackend();
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const TypedGraph graph =
        RandomTypedGraph(rng, seed == 0 ? 4000 : 1 + rng.Below(300), 1 + static_cast<uint32_t>(rng.Below(7)));
    const auto memory = graph.InMemory();
    const auto types = TypedLists::FromMemory(graph.manifest, *memory, graph.relations);
    ASSERT_OK(types);
    EXPECT_EQ((*types)->memory_bytes(), TypedLists::Bytes(graph.manifest));
    const std::vector<NodeId> seeds = RandomSeeds(rng, graph.node_count(), 1 + rng.Below(60));
    const RoadSpec spec = TypedSpec(
        graph, {RandomFanouts(rng, graph.relation_count()), RandomFanouts(rng, graph.relation_count())},
        seed % 3 == 2);
    const Block block = SampleTyped({.topology = memory.get(), .types = types->get()}, spec, seeds, seed);
    ExpectTypedBlock(block, graph, spec);

    // Lists on disk, with a cache and without, give the same.
    const auto disk = WriteTopology(*backend, folder.path(), fmt::format("t{}", seed), graph.csc, nullptr);
    ASSERT_OK(disk);
    for (const uint64_t cache_bytes : {uint64_t{0}, uint64_t{1} << 20}) {
      const auto cache = NeighborCache::Build(*backend, **disk, Adjacency::kCsc, cache_bytes);
      ASSERT_OK(cache);
      const Block read = SampleTyped({.topology = disk->get(),
                                      .types = types->get(),
                                      .backend = backend.get(),
                                      .caches = {cache->get(), nullptr}},
                                     spec, seeds, seed);
      EXPECT_TRUE(SameBlock(read, block));
      EXPECT_EQ(read.relations, block.relations);
    }
  }
}

// What one type is given depends on its own fanout, the node and the block's seed: not on other types' fanouts.
TEST(TypedDraws, OfATypeDoNotDependOnOtherTypes) {
  Rng rng(5);
  const TypedGraph graph = RandomTypedGraph(rng, 60, 6);
  const auto memory = graph.InMemory();
  const auto types = TypedLists::FromMemory(graph.manifest, *memory, graph.relations);
  ASSERT_OK(types);
  const NeighborSource source{.topology = memory.get(), .types = types->get()};
  std::vector<NodeId> seeds(graph.node_count());
  std::iota(seeds.begin(), seeds.end(), NodeId{0});
  const RoadSpec all = TypedSpec(graph, {std::vector<uint32_t>(6, 3)});
  const auto together = ExpectTypedBlock(SampleTyped(source, all, seeds, 17), graph, all);
  for (uint32_t r = 0; r < 6; ++r) {
    std::vector<uint32_t> alone(6, 0);
    alone[r] = 3;
    const RoadSpec spec = TypedSpec(graph, {alone});
    for (const auto& [node, draws] : ExpectTypedBlock(SampleTyped(source, spec, seeds, 17), graph, spec)) {
      EXPECT_EQ(draws.at(r), together.at(node).at(r)) << "node " << node << ", relation " << r;
    }
  }
}

// Two of five and three of four: every pair of subsets is as likely as any other, over block seeds.
TEST(TypedDraws, AreUniformAndIndependentBetweenTypes) {
  TypedGraph graph;
  graph.manifest.node_types = {{.name = "a", .first = 0, .count = 1}, {.name = "b", .first = 1, .count = 9}};
  graph.manifest.node_count = 10;
  graph.manifest.edge_types = {{.source = 1, .name = "x", .destination = 0, .edge_count = 5},
                               {.source = 1, .name = "y", .destination = 0, .edge_count = 4}};
  graph.lists.resize(10);
  graph.csc.indptr = {0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
  for (NodeId source = 1; source < 10; ++source) {
    graph.csc.indices.push_back(source);
    graph.relations.push_back(source > 5 ? 1 : 0);
    graph.lists[0][source > 5 ? 1 : 0].push_back(source);
  }
  const auto memory = graph.InMemory();
  const auto types = TypedLists::FromMemory(graph.manifest, *memory, graph.relations);
  ASSERT_OK(types);
  const auto sampler =
      NeighborSampler::Make({.topology = memory.get(), .types = types->get()}, TypedSpec(graph, {{2, 3}}));
  ASSERT_OK(sampler);
  const int rounds = static_cast<int>(std::max<uint64_t>(4000, testing_util::Repetitions(40'000)));
  std::map<std::vector<NodeId>, double> probabilities;
  std::map<std::vector<NodeId>, int> counts;
  for (unsigned subset = 0; subset < 512; ++subset) {
    std::vector<NodeId> drawn;
    for (NodeId i = 0; i < 9; ++i) {
      if ((subset >> i & 1) != 0) drawn.push_back(i + 1);
    }
    if (__builtin_popcount(subset & 31) == 2 && __builtin_popcount(subset >> 5) == 3)
      probabilities[drawn] = 1.0 / 40;
  }
  Block block;
  const NodeId seed_node = 0;
  for (int round = 0; round < rounds; ++round) {
    ASSERT_OK((*sampler)->Sample({&seed_node, 1}, MixSeed(3, static_cast<uint64_t>(round)), block));
    std::vector<NodeId> drawn(block.nodes.begin() + 1, block.nodes.end());
    std::ranges::sort(drawn);
    ++counts[drawn];
  }
  EXPECT_LT(ChiSquareDeviations(probabilities, counts, rounds), 5);
}

TEST(TypedDraws, RefuseWhatDoesNotFitTheTypes) {
  Rng rng(7);
  const TypedGraph graph = RandomTypedGraph(rng, 20, 3);
  const auto memory = graph.InMemory();
  const auto types = TypedLists::FromMemory(graph.manifest, *memory, graph.relations);
  ASSERT_OK(types);
  const NeighborSource source{.topology = memory.get(), .types = types->get()};
  const auto refusal = [&](const RoadSpec& spec, NeighborSource from) {
    return NeighborSampler::Make(from, spec).status();
  };
  RoadSpec spec = TypedSpec(graph, {{1, 2, 3}});
  EXPECT_OK(refusal(spec, source));
  EXPECT_THAT(refusal(spec, {.topology = memory.get()}), IsStatus(Code::kUnsupported, HasSubstr("types")));
  spec.relation_fanouts.pop_back();
  EXPECT_THAT(refusal(spec, source), IsStatus(Code::kUsage, HasSubstr("1 hops of 3 types take 3")));
  spec = TypedSpec(graph, {{1, 2, 3}});
  spec.relation_fanouts[1] = 2000;
  spec.fanouts[0] = 4000;
  EXPECT_THAT(refusal(spec, source), IsStatus(Code::kUsage, HasSubstr("fanout 2000 of hop 1")));
  spec = TypedSpec(graph, {{5, 5, 5}});
  spec.fanouts[0] = 4;
  EXPECT_THAT(refusal(spec, source), IsStatus(Code::kUsage, HasSubstr("the hop's fanout is 4")));
  spec = TypedSpec(graph, {{1, 1, 1}});
  spec.weighted = true;
  EXPECT_THAT(refusal(spec, source), IsStatus(Code::kUnsupported, HasSubstr("uniformly")));
}

// Lists that are not by relation, and edges into nodes of another type than theirs.
TEST(TypedDraws, FindListsThatAreNotByType) {
  Rng rng(11);
  const TypedGraph graph = RandomTypedGraph(rng, 50, 5);
  const auto memory = graph.InMemory();
  int found = 0;
  for (size_t edge = 0; edge < graph.relations.size(); ++edge) {
    std::vector<uint32_t> damaged = graph.relations;
    damaged[edge] = (damaged[edge] + 1 + static_cast<uint32_t>(rng.Below(4))) % 5;
    const Status status = TypedLists::FromMemory(graph.manifest, *memory, damaged).status();
    if (!status.ok()) {
      EXPECT_THAT(status, IsStatus(Code::kCorruption, HasSubstr("of type")));
    }
    found += status.ok() ? 0 : 1;
  }
  EXPECT_GT(found, 0);
  const auto cut = std::span(graph.relations).first(graph.relations.size() - 1);
  EXPECT_EQ(TypedLists::FromMemory(graph.manifest, *memory, cut).status().code(), Code::kCorruption);
}

}  // namespace
}  // namespace quarry
